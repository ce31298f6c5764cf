"""portalocker's `RedisLock`: an election among the subscribers of a channel.

https://portalocker.readthedocs.io/en/latest/redis.html

The lock lasts as long as its subscription. A subscriber that does not answer for `unavailable_timeout`, the lease here, may be disconnected by
another. A holder checks its own subscription ten times in a lease, and `on_lost` is called. The fencing token is a counter.
"""

import redis
from portalocker import AlreadyLocked, RedisLock

from harness_client import Fail, serve
from serve_survey import LEASED, SurveyLock, redis_at


class PortalockerLock(SurveyLock):
    contract = {**LEASED, "token": "own", "forks": True}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.redis = redis.Redis(
            **redis_at(endpoints[0], self.lease), decode_responses=True, health_check_interval=self.lease / 10
        )
        self.redis.ping()

    def take(self, lock, wait_ms):
        contender = RedisLock(
            lock,
            connection=self.redis,
            timeout=wait_ms / 1000,
            check_interval=0.05,
            thread_sleep_time=0.02,
            fail_when_locked=wait_ms == 0,
            unavailable_timeout=self.lease,
            on_lost=lambda contender: self.ended(lock, contender),
            interrupt_on_lost=False,
            self_check_interval=self.lease / 10,
            fencing=True,
        )
        try:
            return contender.acquire()
        except AlreadyLocked:
            return None

    def grant(self, contender):
        if contender.lost:
            self.lost(contender.channel, "on_lost")  # before the lock was in `held`
        return contender.fence_token, None

    def ended(self, lock, contender):
        if self.held.get(lock) is contender:
            self.lost(lock, "on_lost")

    def give(self, contender):
        lost = contender.lost
        contender.release()
        if lost:
            raise Fail("not held: it was lost")

    def close(self):
        self.redis.close()


serve(PortalockerLock)
