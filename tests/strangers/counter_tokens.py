"""A lock with fencing tokens from a counter beside it: INCR in the script that takes the lock.

--broken: the token is drawn before the wait, so that a client that waited longer has a smaller token than the one before it.
"""

from stranger import BROKEN, EXPIRES, KeyLock, serve

TAKE = """
if not redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return nil end
return redis.call('incr', KEYS[2])
"""


class CounterTokens(KeyLock):
    contract = {**EXPIRES, "tries": True, "token": "own", "keys": "jobs:{lock}", "value": "string"}

    def acquire(self, lock, wait_ms):
        self.drawn = self.redis.call("INCR", f"jobs:{lock}:token") if BROKEN else None
        return super().acquire(lock, wait_ms)

    def take(self, lock, name):
        return self.script(TAKE, [self.key(lock), f"jobs:{lock}:token"], name, self.milliseconds())

    def granted(self, lock, name, grant):
        return self.drawn or grant, name


serve(CounterTokens)
