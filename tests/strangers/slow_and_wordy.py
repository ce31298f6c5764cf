"""A lock that takes a second for each call before it asks the server, as a program that has to be started does, and that says
in words of its own that a lock stayed taken.

--broken: it believes that it holds for a lease and a half (two owners).
"""

import time

from stranger import BROKEN, Fail, RedisLock, serve


class SlowAndWordy(RedisLock):
    contract = {
        "lease": True,
        "renews": False,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "keys": "slow:{lock}",
    }

    def acquire(self, lock, wait_ms):
        time.sleep(1)
        try:
            return super().acquire(lock, wait_ms)
        except Fail as why:
            raise Fail(f"LockUnavailableError: could not lock {lock} within {wait_ms} ms ({why})")

    def take(self, lock, name):
        return self.redis.call("SET", f"slow:{lock}", name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        return self.compare_and_delete(f"slow:{lock}", name)

    def count_down(self, lock, name, asked, over):
        if BROKEN:
            asked += self.lease * 0.65
        super().count_down(lock, name, asked, over)


serve(SlowAndWordy)
