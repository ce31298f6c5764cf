"""A lock whose library prints to standard output: through `print`, a logger, and a program that it starts.

--broken: a release deletes whatever is there (two owners).
"""

import logging
import subprocess
import sys

from stranger import BROKEN, EXPIRES, KeyLock, serve

logging.basicConfig(stream=sys.stdout, level=logging.INFO)


class Noisy(KeyLock):
    contract = {**EXPIRES, "tries": True, "keys": "noisy:{lock}"}

    def open(self, endpoints, lease_ms):
        subprocess.run(["echo", f"connecting to {endpoints[0]}"], check=True)
        super().open(endpoints, lease_ms)

    def take(self, lock, name):
        print(f"[lock] SET {lock}")
        return super().take(lock, name)

    def give(self, lock, name):
        logging.info("release %s", lock)
        if BROKEN:
            return self.redis.call("DEL", self.key(lock)) == 1
        return super().give(lock, name)

    def count_down(self, lock, name, asked, over):
        if not BROKEN:
            super().count_down(lock, name, asked, over)


serve(Noisy)
