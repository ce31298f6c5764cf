"""python-redis-lock's `Lock`, not renewed.

https://python-redis-lock.readthedocs.io/

Waiters block on a list, which the release fills and the end of a lease does not: a wait is made of waits of a lease, which is the longest that the
library takes. It waits by itself and does not say when it asked, so the client counts 60 % of the lease from the answer.
"""

import math
import time

import redis
import redis_lock

from harness_client import serve
from serve_survey import TimedLock, redis_at


class RedisLockOnce(TimedLock):
    contract = {
        **TimedLock.contract,
        "wakes": "unreported",
        "owner": "server",
        "forks": True,
        "keys": "lock:{lock}",
        "value": "string",
    }
    not_held = redis_lock.NotAcquired

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.redis = redis.StrictRedis(**redis_at(endpoints[0], 2 * self.lease))  # longer than a wait on the list
        self.redis.ping()

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        contender = redis_lock.Lock(self.redis, lock, expire=self.lease)
        while True:
            left = math.ceil(deadline - time.monotonic())
            taken = contender.acquire(timeout=min(self.lease, left)) if left > 0 else contender.acquire(blocking=False)
            if taken:
                self.ends = time.monotonic() + 0.6 * self.lease
                return contender
            if time.monotonic() >= deadline:
                return None

    def grant(self, contender):
        return None, contender.id


serve(RedisLockOnce)
