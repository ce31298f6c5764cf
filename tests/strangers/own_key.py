"""A lock at a key of its own name: SET NX PX, deleted by a script that compares.

--broken: a wait that ends is answered as if the lock had been got (phantom grant).
"""

from stranger import BROKEN, RedisLock, serve


class OwnKey(RedisLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "keys": "app/{lock}/leader",
    }

    def take(self, lock, name):
        return self.redis.call("SET", f"app/{lock}/leader", name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        return self.compare_and_delete(f"app/{lock}/leader", name)

    def acquire(self, lock, wait_ms):
        try:
            return super().acquire(lock, wait_ms)
        except Exception as error:
            if BROKEN and str(error) == "timeout":
                return None, "never-granted"
            raise


serve(OwnKey)
