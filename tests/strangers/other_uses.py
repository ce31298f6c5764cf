"""A lock that says what it does when an application asks again for what it holds, releases twice, and leaves alone what it lost.

--broken again: it gives what is held once more (not reentrant)
--broken twice: a second release deletes whatever is there (two owners)
--broken close: what is closed deletes the keys of all locks that it has ever used (two owners)
--broken loss: what is lost is renewed until it is released (no progress)
"""

import sys
import threading

from stranger import RedisLock, serve

BROKEN = sys.argv[-1] if "--broken" in sys.argv else None


class OtherUses(RedisLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "reentrant": False,
        "threads": True,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "keys": "uses:{lock}",
    }

    def open(self, endpoints, lease_ms):
        super().open(endpoints, lease_ms)
        self.used = set()

    def take(self, lock, name):
        return self.redis.call("SET", f"uses:{lock}", name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        return self.compare_and_delete(f"uses:{lock}", name)

    def acquire(self, lock, wait_ms):
        self.used.add(lock)
        if BROKEN == "again" and lock in self.held:
            return None, self.held[lock][0]
        return super().acquire(lock, wait_ms)

    def release(self, lock):
        if BROKEN == "twice" and lock not in self.held:
            return self.redis.call("DEL", f"uses:{lock}")
        return super().release(lock)

    def doubt(self, lock, cause):
        name, over = self.held[lock]
        super().doubt(lock, cause)
        if BROKEN == "loss":
            threading.Thread(target=self.go_on, args=(lock, over), daemon=True).start()

    def go_on(self, lock, over):
        while not over.wait(self.lease / 20):
            self.renewals.call("PEXPIRE", f"uses:{lock}", self.milliseconds())

    def close(self):
        for lock in self.used if BROKEN == "close" else ():
            self.redis.call("DEL", f"uses:{lock}")
        super().close()


serve(OtherUses)
