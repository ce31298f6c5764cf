"""A lock that says what it does when an application asks again for what it holds, releases twice, and leaves alone what it lost.

--broken again: it gives what is held once more (not reentrant)
--broken twice: a second release deletes whatever is there (two owners)
--broken close: what is closed deletes the keys of all locks that it has ever used (two owners)
--broken loss: what is lost is renewed until it is released (no progress)
"""

import sys
import threading

from stranger import EXPIRES, KeyLock, serve

BROKEN = sys.argv[-1] if "--broken" in sys.argv else None


class OtherUses(KeyLock):
    contract = {**EXPIRES, "tries": True, "reentrant": False, "threads": True, "keys": "uses:{lock}"}

    def open(self, endpoints, lease_ms):
        super().open(endpoints, lease_ms)
        self.used = set()

    def acquire(self, lock, wait_ms):
        self.used.add(lock)
        if BROKEN == "again" and lock in self.held:
            return None, self.held[lock][0]
        return super().acquire(lock, wait_ms)

    def release(self, lock):
        if BROKEN == "twice" and lock not in self.held:
            return self.redis.call("DEL", self.key(lock))
        return super().release(lock)

    def doubt(self, lock, cause):
        name, over = self.held[lock]
        super().doubt(lock, cause)
        if BROKEN == "loss":
            threading.Thread(target=self.go_on, args=(lock, over), daemon=True).start()

    def go_on(self, lock, over):
        while not over.wait(self.lease / 20):
            self.renewals.call("PEXPIRE", self.key(lock), self.milliseconds())

    def close(self):
        for lock in self.used if BROKEN == "close" else ():
            self.redis.call("DEL", self.key(lock))
        super().close()


serve(OtherUses)
