"""py-redis-semaphore's `Mutex`, its semaphore with one slot.

https://github.com/azhig/py-redis-semaphore

A thread of the library renews the lock and calls `on_lock_lost`. The library asks for a `socket_timeout` that is shorter than
`lock_timeout`. Its fencing token is a counter.
"""

import redis
from redis_semaphore import AcquireTimeoutError, LockLostError, Mutex, NotAcquiredError

from harness_client import serve
from serve_survey import LEASED, SurveyLock, redis_at


class PyRedisSemaphore(SurveyLock):
    contract = {**LEASED, "wakes": "unreported", "token": "own", "forks": True}
    not_held = (NotAcquiredError, LockLostError)

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.redis = redis.Redis(**redis_at(endpoints[0], self.lease / 3))
        self.redis.ping()

    def take(self, lock, wait_ms):
        contender = Mutex(
            self.redis,
            lock,
            lock_timeout=self.lease,
            acquire_timeout=wait_ms / 1000 or None,
            on_lock_lost=lambda *_: self.ended(lock, contender),
        )
        try:
            return contender if contender.acquire(blocking=wait_ms > 0).success else None
        except AcquireTimeoutError:
            return None

    def grant(self, contender):
        return contender.fencing_token, None

    def ended(self, lock, contender):
        if self.held.get(lock) is contender:
            self.lost(lock, "on_lock_lost")

    def give(self, contender):
        return bool(contender.release())

    def close(self):
        self.redis.close()


serve(PyRedisSemaphore)
