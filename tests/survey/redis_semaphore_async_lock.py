"""redis-semaphore-async's `Semaphore`, with one permit.

https://github.com/kamalkraj/Redis-Semaphore-Async

A permit has no end: that of a client that died stays taken. The library waits without an end, so the client cancels the acquire when its wait is
over.
"""

import asyncio

import redis.asyncio
from redis_semaphore_async import Semaphore

from harness_client import serve
from serve_survey import SESSION, SurveyLock, redis_at, run


class OnePermit(SurveyLock):
    contract = {**SESSION, "tries": False}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        options = redis_at(endpoints[0], self.lease)
        options["socket_timeout"] = None  # a waiter reads from its channel for as long as it waits
        self.redis = redis.asyncio.Redis(**options, decode_responses=True)
        run(self.redis.ping(), self.lease)

    def take(self, lock, wait_ms):
        contender = Semaphore(self.redis, lock, value=1)
        try:
            run(contender.acquire(), max(0.05, wait_ms / 1000))
        except asyncio.TimeoutError:
            return None
        return contender

    def give(self, contender):
        run(contender.release(), 3 * self.lease)


serve(OnePermit)
