"""A lock whose every fifth grant is told a third of a lease after its lease ended, as if the process had stood still: by then it was
said that the lock is lost.

--broken: nothing is said (two owners).
"""

import time

from stranger import BROKEN, RedisLock, serve


class LateReply(RedisLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "keys": "late:{lock}",
    }
    grants = 0

    def take(self, lock, name):
        return self.redis.call("SET", f"late:{lock}", name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        return self.compare_and_delete(f"late:{lock}", name)

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
