"""redis-distlock's `LockManager.acquire`, a context manager of asyncio.

https://pypi.org/project/redis-distlock/

The lock is redis-py's on a client of the application, and is not renewed. The library waits by itself, at least for a second here, and
does not say when it asked, so the client counts 60 % of the lease from the answer, for which it waits 30 % of it at most.
"""

import math
import time

import redis.asyncio
from redislock import LockManager

from harness_client import serve
from serve_survey import TimedLock, redis_at, run


class DistLock(TimedLock):
    contract = {
        **TimedLock.contract,
        "tries": False,
        "owner": "server",
        "keys": "lock:{lock}",
        "value": "string",
    }

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.redis = redis.asyncio.Redis(**redis_at(endpoints[0], 0.3 * self.lease))
        run(self.redis.ping(), self.lease)
        self.locks = LockManager(self.redis)

    def take(self, lock, wait_ms):
        contender = self.locks.acquire(lock, timeout=self.lease, blocking_timeout=math.ceil(wait_ms / 1000) or 1)
        try:
            self.owner = run(self.start(contender))
        except TimeoutError:  # the library's; those of connections are other errors
            return None
        self.ends = time.monotonic() + 0.6 * self.lease
        return contender

    async def start(self, contender):
        lock = await contender.__aenter__()
        return lock.local.token.decode()

    def grant(self, contender):
        return None, self.owner

    def give(self, contender):
        run(contender.__aexit__(None, None, None))  # answers nothing, also where the lock was gone


serve(DistLock)
