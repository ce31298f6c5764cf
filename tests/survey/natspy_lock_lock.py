"""natspy-lock's `NatsLock`: a key that the server removes when its time to live is over.

https://github.com/HHongSeungWoo/natspy-lock

The library does not renew it, and tells no end: the application looks at its clock.
"""

from natspy_lock import NatsLock

from harness_client import Fail, serve
from on_nats import connected
from serve_survey import TimedLock, run

# how long the library waits before it is asked again, in seconds: the lease counts from before that
ATTEMPT = 0.2


class NatsPyLock(TimedLock):
    # without a wait it waits without an end
    contract = {**TimedLock.contract, "tries": False, "wakes": "unreported"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        run(self.begin(endpoints), 10)

    async def begin(self, endpoints):
        # the bucket is the library's own: one copy, on one of the servers
        await NatsLock.init(await connected(endpoints), "locks", self.lease)

    def contender(self, lock):
        return NatsLock.get_lock(lock, ATTEMPT)

    def attempt(self, contender):
        run(contender.acquire())
        return contender.locked()

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None:
            raise Fail("not held")
        run(contender.release())


serve(NatsPyLock)
