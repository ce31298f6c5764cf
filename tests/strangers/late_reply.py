"""A lock whose every fifth grant is told a third of a lease after its lease ended, as if the process had stood still: by then it was
said that the lock is lost.

--broken: nothing is said (two owners).
"""

import time

from stranger import BROKEN, EXPIRES, KeyLock, serve


class LateReply(KeyLock):
    contract = {**EXPIRES, "tries": True, "keys": "late:{lock}"}
    grants = 0

    def acquire(self, lock, wait_ms):
        grant = super().acquire(lock, wait_ms)
        self.grants += 1
        if self.grants % 5 == 0:
            time.sleep(self.lease * 4 / 3)
        return grant

    def doubt(self, lock, cause):
        if not BROKEN:
            super().doubt(lock, cause)


serve(LateReply)
