"""A lock that is renewed by writing another value: `name/0`, `name/1`, … with the number of the renewal.

--broken: nothing is renewed, and nothing is doubted (no renewal).
"""

from stranger import BROKEN, EXPIRES, RedisLock, serve

EXTEND = """
local value = redis.call('get', KEYS[1])
if not value or string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
local number = tonumber(string.sub(value, #ARGV[1] + 2)) + 1
redis.call('set', KEYS[1], ARGV[1] .. '/' .. number, 'PX', ARGV[2])
return 1
"""
GIVE = """
local value = redis.call('get', KEYS[1])
if not value or string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])
"""


class RewrittenValue(RedisLock):
    contract = {**EXPIRES, "renews": True, "tries": True, "keys": "lease/{lock}", "rewrites": True}

    def take(self, lock, name):
        return self.redis.call("SET", f"lease/{lock}", f"{name}/0", "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        return self.script(GIVE, [f"lease/{lock}"], name) == 1

    def extend(self, lock, name):
        return BROKEN or self.script(EXTEND, [f"lease/{lock}"], name, self.milliseconds(), redis=self.renewals) == 1

    def granted(self, lock, name, grant):
        return None, f"{name}/0"


serve(RewrittenValue)
