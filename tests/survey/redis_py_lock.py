"""redis-py's `Lock`: https://redis.readthedocs.io/en/stable/lock.html

Its value on the server is a random token, and in 2.9 the time at which it expires. The client polls, since 2.9 has no wait with an end.
"""

import redis

from harness_client import serve
from serve_survey import TimedLock


class RedisPyLock(TimedLock):
    contract = {
        **TimedLock.contract,
        "owner": "server",
        "forks": True,
        "wall_clock": redis.VERSION < (2, 10),
        "keys": "harness:{lock}",
        "value": "string",
    }
    not_held = ValueError  # also the library's LockError of 2.10

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = lease_ms / 1000
        self.redis = redis.StrictRedis(host=host, port=int(port), socket_timeout=self.lease)
        self.redis.ping()

    def contender(self, lock):
        return self.redis.lock(f"harness:{lock}", timeout=self.lease)

    def grant(self, contender):
        if redis.VERSION < (2, 10):
            return None, repr(contender.acquired_until)
        token = contender.local.token if hasattr(contender, "local") else contender.token
        return None, token if isinstance(token, str) else token.decode()


serve(RedisPyLock)
