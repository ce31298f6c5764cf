"""redlock's `RedLock`, from `RedLockFactory.create_lock`.

https://github.com/glasslion/redlock

The lock is not renewed, and `acquire` does not say how long it is valid. A release answers nothing, also where the lock was gone.
"""

from redlock import RedLockFactory

from harness_client import ping_most, serve
from serve_survey import TimedLock, redis_at


class RedlockLock(TimedLock):
    contract = {
        **TimedLock.contract,
        "owner": "server",
        "forks": True,
        "wall_clock": True,
        "keys": "harness:{lock}",
        "value": "string",
    }

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.factory = RedLockFactory([redis_at(endpoint, self.lease / 2) for endpoint in endpoints])
        ping_most(self.factory.redis_nodes)

    def contender(self, lock):
        ttl = int(self.lease * 1000)
        return self.factory.create_lock(f"harness:{lock}", retry_times=1, retry_delay=20, ttl=ttl)

    def attempt(self, contender):
        return contender.acquire()

    def grant(self, contender):
        return None, contender.lock_key


serve(RedlockLock)
