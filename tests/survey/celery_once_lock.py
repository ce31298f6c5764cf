"""celery_once's `Redis` backend: `raise_or_lock(key, timeout)` and `clear_lock(key)`, without Celery around them.

https://github.com/cameronmaske/celery-once

The lock is not renewed.
"""

import math

from celery_once import AlreadyQueued
from celery_once.backends.redis import Redis

from harness_client import serve
from serve_survey import TimedLock, redis_url


class CeleryOnceLock(TimedLock):
    contract = {**TimedLock.contract, "forks": True}

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.backend = Redis({"url": redis_url(endpoints[0], self.lease).partition("&")[0]})
        self.backend.redis.ping()

    def contender(self, lock):
        return lock

    def attempt(self, lock):
        try:
            self.backend.raise_or_lock(lock, self.lease)
            return True
        except AlreadyQueued:
            return False

    def give(self, lock):
        return bool(self.backend.clear_lock(lock))


serve(CeleryOnceLock)
