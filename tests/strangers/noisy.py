"""A lock whose library prints to standard output: through `print`, a logger, and a program that it starts.

--broken: a release deletes whatever is there (two owners).
"""

import logging
import subprocess
import sys

from stranger import BROKEN, RedisLock, serve

logging.basicConfig(stream=sys.stdout, level=logging.INFO)


class Noisy(RedisLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "keys": "noisy:{lock}",
    }

    def open(self, endpoints, lease_ms):
        subprocess.run(["echo", f"connecting to {endpoints[0]}"], check=True)
        super().open(endpoints, lease_ms)

    def take(self, lock, name):
        print(f"[lock] SET {lock}")
        return self.redis.call("SET", f"noisy:{lock}", name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        logging.info("release %s", lock)
        if BROKEN:
            return self.redis.call("DEL", f"noisy:{lock}") == 1
        return self.compare_and_delete(f"noisy:{lock}", name)

    def count_down(self, lock, name, asked, over):
        if not BROKEN:
            super().count_down(lock, name, asked, over)


serve(Noisy)
