"""A lock that never waits: SET NX PX, and `busy` when the key is there.

--broken: a release compares with another value, and takes no removed key for done (the grant stays).
"""

from stranger import BROKEN, RedisLock, serve

COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


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
            self.script(COMPARE_AND_DELETE, [f"try/{lock}"], name.upper() + "?")
            return True
        return self.script(COMPARE_AND_DELETE, [f"try/{lock}"], name) == 1


serve(TryLock)
