"""A correct lock whose process answers no acquire any more when it is two seconds old."""

import time

from stranger import RedisLock, serve

BEGAN = time.monotonic()


class StopsAnswering(RedisLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "keys": "silent:{lock}",
    }

    def take(self, lock, name):
        if time.monotonic() - BEGAN > 2:
            time.sleep(600)
        return self.redis.call("SET", f"silent:{lock}", name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        return self.compare_and_delete(f"silent:{lock}", name)


serve(StopsAnswering)
