"""rdlock-py's `DMutex`, from `RDLockFactory.get_mutex(name, owner, timeout)`.

https://github.com/czf0613/rdlock_py

The library renews the lock every second; its time to live is a constant of 10 seconds, in whose place the client puts the lease. A wait
is counted in rounds of 10 ms, and one of 0 asks nothing, so there are no tries. Nothing tells of a loss.
"""

import math
import secrets

import rdlock.mutex
from rdlock import LockTimeout, RDLockFactory

from harness_client import serve
from serve_survey import LEASED, SurveyLock, run


class RdLock(SurveyLock):
    contract = {**LEASED, "tries": False, "owner": "server", "forks": True, "keys": "{lock}", "value": "string"}

    def open(self, endpoints, lease_ms):
        rdlock.mutex.DEFAULT_LOCK_TIMEOUT = math.ceil(lease_ms / 1000)  # whole seconds only
        self.limit = 2 * lease_ms / 1000
        timeout = lease_ms / 1000
        self.factory = RDLockFactory(
            f"redis://{endpoints[0]}?socket_timeout={timeout}&socket_connect_timeout={timeout}"
        )
        run(self.connect(), self.limit)

    async def connect(self):
        """Asks for a lock of its own, so that `open` fails where no server answers."""
        async with self.factory.get_mutex(secrets.token_hex(8), None, 1):
            pass

    def take(self, lock, wait_ms):
        self.owner = secrets.token_hex(8)
        contender = self.factory.get_mutex(lock, self.owner, max(0.011, wait_ms / 1000))
        try:
            return run(contender.__aenter__(), wait_ms / 1000 + self.limit)
        except LockTimeout:
            return None

    def grant(self, contender):
        return None, self.owner

    def give(self, contender):
        run(contender.__aexit__(None, None, None), self.limit)


serve(RdLock)
