"""redlock-py's `Redlock` of 1.0.2 and 1.0.3 on several masters.

Both were written for Python 2: the client gives them `basestring`, and the quorum that `/` between integers had there. The lock is
not renewed, and a timer raises `lost` before it expires.
"""

import builtins
import threading
import time

builtins.basestring = str

from redlock import Redlock  # noqa: E402

from harness_client import Fail, Lock, ping_most, serve  # noqa: E402
from serve_survey import LEASED, redis_at  # noqa: E402


class RedlockPy(Lock):
    contract = {
        **LEASED,
        "renews": False,
        "owner": "server",
        "forks": True,
        "wall_clock": True,
        "keys": "harness:{lock}",
        "value": "string",
    }

    def open(self, endpoints, lease_ms):
        self.lease_ms = lease_ms
        self.held = {}
        masters = [redis_at(endpoint, lease_ms / 2000) for endpoint in endpoints]
        self.redlock = Redlock(masters, retry_count=1, retry_delay=0.02)
        self.redlock.quorum = len(masters) // 2 + 1
        ping_most(self.redlock.servers)

    def acquire(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            asked = time.monotonic()
            grant = self.redlock.lock(f"harness:{lock}", self.lease_ms)
            left = asked + self.lease_ms / 1000 * 0.8 - time.monotonic()
            if grant and left > 0:
                break
            if grant:
                self.redlock.unlock(grant)  # the answers came too late
            if time.monotonic() >= deadline:
                raise Fail("timeout" if wait_ms else "busy")
        timer = threading.Timer(left, self.lost, (lock, "it expires"))
        timer.daemon = True
        timer.start()
        self.held[lock] = grant, timer
        return None, grant.key

    def release(self, lock):
        grant, timer = self.held.pop(lock, (None, None))
        if grant is None:
            raise Fail("not held")
        timer.cancel()
        self.redlock.unlock(grant)  # answers nothing


serve(RedlockPy)
