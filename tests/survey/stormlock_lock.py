"""stormlock's `StormLock`, of its backend `redis`.

https://tmccombs.github.io/stormlock/

The lock is renewed by the application alone, which this client does not do. It tries once, so the client asks again and again.
"""

import math
from datetime import timedelta

from stormlock import LockHeldException, StormLock
from stormlock.backend import get_backend

from harness_client import serve
from serve_survey import TimedLock, redis_url

class Storm(TimedLock):
    contract = {**TimedLock.contract, "forks": True}

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.backend = get_backend("redis", url=redis_url(endpoints[0], self.lease))
        self.backend.current("harness")

    def contender(self, lock):
        return StormLock(self.backend, lock, f"c{self.client}", timedelta(seconds=self.lease))

    def attempt(self, contender):
        try:
            contender.id = contender.acquire()
            return True
        except LockHeldException:
            return False

    def give(self, contender):
        contender.release(contender.id)  # answers nothing, also where the lock was gone


serve(Storm)
