"""A lock whose process kills itself 15 % of a lease before its lease ends, as some agents do: correct, and rude.

--broken: it does so half a lease after its lease ended (two owners).
"""

import os
import signal
import time

from stranger import BROKEN, RedisLock, serve


class ExitsOnDoubt(RedisLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "keys": "agent:{lock}",
    }

    def take(self, lock, name):
        return self.redis.call("SET", f"agent:{lock}", name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        return self.compare_and_delete(f"agent:{lock}", name)

    def count_down(self, lock, name, asked, over):
        if BROKEN:
            asked += self.lease * 0.65
        super().count_down(lock, name, asked, over)

    def doubt(self, lock, cause):
        os.kill(os.getpid(), signal.SIGKILL)


serve(ExitsOnDoubt)
