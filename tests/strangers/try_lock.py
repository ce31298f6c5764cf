"""A lock that never waits: SET NX PX, and `busy` when the key is there.

--broken: a release compares with another value, and takes no removed key for done (the grant stays).
"""

from stranger import BROKEN, RedisLock, serve


class TryLock(RedisLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "owner": "server",
        "token": "none",
        "keys": "try/{lock}",
    }

    def take(self, lock, name):
        return self.redis.call("SET", f"try/{lock}", name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        if BROKEN:
            self.compare_and_delete(f"try/{lock}", name.upper() + "?")
            return True
        return self.compare_and_delete(f"try/{lock}", name)


serve(TryLock)
