"""sherlock's `RedisLock`.

https://sher-lock.readthedocs.io/

The lock is not renewed.
"""

import math

import redis
from sherlock import LockException, RedisLock

from harness_client import serve
from serve_survey import TimedLock, redis_at


class SherlockLock(TimedLock):
    contract = {**TimedLock.contract, "owner": "server", "forks": True, "keys": "{lock}", "value": "string"}
    not_held = LockException

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.redis = redis.StrictRedis(**redis_at(endpoints[0], self.lease))
        self.redis.ping()

    def contender(self, lock):
        return RedisLock(lock, client=self.redis, expire=self.lease)

    def grant(self, contender):
        return None, contender._owner


serve(SherlockLock)
