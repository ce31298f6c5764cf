"""redis-lock-py's `RedisLock`, whose waiters subscribe to a channel.

https://github.com/miintto/redis-lock-py

The lock is not renewed. The library waits by itself and does not say when it asked, so the client counts 60 % of the lease from the
answer, for which it waits 30 % of it at most. It can not try without a wait.
"""

import math
import time

import redis
from redis_lock import RedisLock
from redis_lock.exceptions import LockNotOwnedError

from harness_client import serve
from serve_survey import TimedLock, redis_at


class RedisLockPy(TimedLock):
    contract = {
        **TimedLock.contract,
        "tries": False,
        "wakes": "unreported",
        "owner": "server",
        "forks": True,
        "keys": "{lock}",
        "value": "string",
    }
    not_held = LockNotOwnedError

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.redis = redis.Redis(**redis_at(endpoints[0], 0.3 * self.lease))
        self.redis.ping()

    def take(self, lock, wait_ms):
        contender = RedisLock(
            self.redis, lock, blocking_timeout=max(0.001, wait_ms / 1000), expire_timeout=self.lease
        )
        if not contender.acquire():
            return None
        self.ends = time.monotonic() + 0.6 * self.lease
        return contender

    def grant(self, contender):
        return None, contender.token.decode()

    def close(self):
        self.redis.close()


serve(RedisLockPy)
