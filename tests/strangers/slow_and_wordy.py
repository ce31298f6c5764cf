"""A lock that takes a second for each call before it asks the server, as a program that has to be started does, and that says
in words of its own that a lock stayed taken.

--broken: it believes that it holds for a lease and a half (two owners).
"""

import time

from stranger import BROKEN, EXPIRES, Fail, KeyLock, serve


class SlowAndWordy(KeyLock):
    contract = {**EXPIRES, "keys": "slow:{lock}"}

    def acquire(self, lock, wait_ms):
        time.sleep(1)
        try:
            return super().acquire(lock, wait_ms)
        except Fail as why:
            raise Fail(f"LockUnavailableError: could not lock {lock} within {wait_ms} ms ({why})")

    def count_down(self, lock, name, asked, over):
        if BROKEN:
            asked += self.lease * 0.65
        super().count_down(lock, name, asked, over)


serve(SlowAndWordy)
