"""pottery's `Redlock`, on one master or several (`nodes=3`).

https://github.com/brainix/pottery

The lock is not renewed: its users call `extend`, which this client does not. The library does not say when it asked, so the client asks
again and again by itself.
"""

import redis
from pottery import Redlock, ReleaseUnlockedLock

from harness_client import ping_most, serve
from serve_survey import TimedLock, redis_at


class PotteryLock(TimedLock):
    contract = {**TimedLock.contract, "forks": True, "keys": "redlock:{lock}", "value": "string"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.masters = {redis.Redis(**redis_at(endpoint, self.lease / 2)) for endpoint in endpoints}
        ping_most(self.masters)

    def contender(self, lock):
        return Redlock(key=lock, masters=self.masters, auto_release_time=self.lease)

    def attempt(self, contender):
        return contender.acquire(blocking=False)

    def give(self, contender):
        try:
            contender.release()
        except ReleaseUnlockedLock as error:
            if error.redis_errors:
                raise  # a master did not answer, and may have released it
            return False

    def close(self):
        for master in self.masters:
            master.close()


serve(PotteryLock)
