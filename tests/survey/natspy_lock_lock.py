"""natspy-lock's `NatsLock`: a key that the server removes when its time to live is over.

https://github.com/HHongSeungWoo/natspy-lock

The library does not renew it, and tells no end: the application looks at its clock.
"""

from natspy_lock import NatsLock

from harness_client import serve
from on_nats import OnNats, connected
from serve_survey import TimedLock, run

# how long the library waits before it is asked again, in seconds: the lease counts from before that
ATTEMPT = 0.2


class NatsPyLock(OnNats, TimedLock):
    # without a wait it waits without an end
    contract = {**TimedLock.contract, "tries": False, "wakes": "unreported"}

    async def begin(self, endpoints):
        # the bucket is the library's own: one copy, on one of the servers
        await NatsLock.init(await connected(endpoints), "locks", self.lease)

    def contender(self, lock):
        return NatsLock.get_lock(lock, ATTEMPT)

    def attempt(self, contender):
        run(contender.acquire())
        return contender.locked()


serve(NatsPyLock)
