"""xtr-lock's `LockFactory.create_lock(resource, ttl)` of a `RedisStore`.

https://pypi.org/project/xtr-lock/

The lock is renewed by the application alone, which this client does not do. A wait is ended by `asyncio.timeout`, as the documentation says.
"""

import asyncio
import time

import redis.asyncio
from xtr_lock import LockExpiredError, LockFactory, RedisStore

from harness_client import serve
from serve_survey import TimedLock, redis_at, run


class XtrLock(TimedLock):
    contract = TimedLock.contract

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.redis = redis.asyncio.Redis(**redis_at(endpoints[0], self.lease))
        run(self.redis.ping(), self.lease)
        self.factory = LockFactory(RedisStore(self.redis, initial_ttl=self.lease))

    def take(self, lock, wait_ms):
        contender = self.factory.create_lock(lock, ttl=self.lease)
        try:
            taken = run(self.ask(contender, wait_ms / 1000))
        except (asyncio.TimeoutError, LockExpiredError):
            return None
        self.ends = time.monotonic() + contender.get_remaining_lifetime() - 0.15 * self.lease
        return contender if taken else None

    async def ask(self, contender, wait):
        if not wait:
            return await contender.acquire()
        async with asyncio.timeout(wait):
            return await contender.acquire(blocking=True)

    def give(self, contender):
        run(contender.release())


serve(XtrLock)
