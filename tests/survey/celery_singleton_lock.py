"""celery-singleton's `RedisBackend`: `lock(lock, task_id, expiry)` and `unlock(lock)`, without Celery around them.

https://github.com/steinitzu/celery-singleton

The lock is not renewed.
"""

import math
import uuid

from celery_singleton.backends.redis import RedisBackend

from harness_client import serve
from serve_survey import TimedLock, redis_at


class CelerySingletonLock(TimedLock):
    contract = {**TimedLock.contract, "owner": "server", "forks": True, "keys": "{lock}", "value": "string"}

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        options = redis_at(endpoints[0], self.lease)
        self.backend = RedisBackend(f"redis://{endpoints[0]}", **options)
        self.backend.redis.ping()

    def contender(self, lock):
        return lock, str(uuid.uuid4())

    def attempt(self, contender):
        return self.backend.lock(*contender, expiry=self.lease)

    def grant(self, contender):
        return None, contender[1]

    def give(self, contender):
        self.backend.unlock(contender[0])  # answers nothing


serve(CelerySingletonLock)
