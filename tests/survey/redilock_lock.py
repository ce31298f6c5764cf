"""python-redilock's `DistributedLock` (`redilock.sync_redilock`).

https://github.com/zferentz/python-redilock

The lock is not renewed. The library makes its own connection, whose time limits are those of its redis-py.
"""

from redilock.sync_redilock import DistributedLock

from harness_client import serve
from serve_survey import TimedLock


class Redilock(TimedLock):
    contract = {**TimedLock.contract, "owner": "server", "forks": True, "keys": "{lock}", "value": "string"}

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = lease_ms / 1000
        self.redilock = DistributedLock(redis_host=host, redis_port=int(port), ttl=self.lease)
        self.redilock.unlock("_LOCK:harness:0")  # connects; nobody has this token

    def contender(self, lock):
        return [lock]  # and the token, when it is taken

    def attempt(self, contender):
        token = self.redilock.lock(contender[0], block=False)
        if token:
            contender.append(token)
        return bool(token)

    def grant(self, contender):
        return None, contender[1]

    def give(self, contender):
        return bool(self.redilock.unlock(contender[1]))


serve(Redilock)
