"""huey's `lock_task(name, ttl)`, of `RedisExpireHuey`.

https://huey.readthedocs.io/en/latest/guide.html#locking-tasks

The lock is not renewed. Of the storages of Redis, `RedisExpireHuey` has a time to live on servers before 7.4.
"""

import math

from huey import RedisExpireHuey
from huey.exceptions import TaskLockedException

from harness_client import serve
from serve_survey import TimedLock, redis_at


class HueyLock(TimedLock):
    contract = {**TimedLock.contract, "forks": True}

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.huey = RedisExpireHuey("harness", **redis_at(endpoints[0], self.lease))
        self.huey.storage.conn.ping()

    def contender(self, lock):
        return self.huey.lock_task(lock, ttl=self.lease)

    def attempt(self, contender):
        try:
            return contender.acquire()
        except TaskLockedException:
            return False

    def give(self, contender):
        return bool(contender.release())


serve(HueyLock)
