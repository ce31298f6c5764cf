"""A lock whose process kills itself 15 % of a lease before its lease ends, as some agents do: correct, and rude.

--heavy: it has 500 MB, which the kernel takes back before its parent hears of its end, and kills itself 20 ms before its lease
ends.
--broken: it does so half a lease after its lease ended (two owners).
"""

import os
import signal
import sys
import time

from stranger import BROKEN, EXPIRES, KeyLock, serve


HEAVY = "--heavy" in sys.argv
MEMORY = b"x" * (500 << 20 if HEAVY else 0)


class ExitsOnDoubt(KeyLock):
    contract = {**EXPIRES, "tries": True, "keys": "agent:{lock}"}

    def count_down(self, lock, name, asked, over):
        if HEAVY:
            asked += self.lease * 0.15 - 0.02
        if BROKEN:
            asked += self.lease * 0.65
        super().count_down(lock, name, asked, over)

    def doubt(self, lock, cause):
        os.kill(os.getpid(), signal.SIGKILL)


serve(ExitsOnDoubt)
