"""A read/write lock without tokens: a string for the writer, and a sorted set of readers with the ends of their leases.

--broken: a reader does not look for a writer (two owners).
"""

from stranger import BROKEN, EXPIRES, RedisLock, serve

TAKE = """
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('zremrangebyscore', KEYS[2], '-inf', now)
if ARGV[3] == 'read' then
    if ARGV[4] == 'see' and redis.call('exists', KEYS[1]) == 1 then return nil end
    redis.call('zadd', KEYS[2], now + ARGV[2], ARGV[1])
    return 1
end
if redis.call('zcard', KEYS[2]) > 0 then return nil end
return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1
"""
GIVE = """
if redis.call('zrem', KEYS[2], ARGV[1]) == 1 then return 1 end
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


class ReadWrite(RedisLock):
    contract = {**EXPIRES, "read": True, "keys": "rw:{lock}:writer"}

    def take(self, lock, name):
        see = "blind" if BROKEN else "see"
        return self.script(TAKE, self.keys(lock), name, self.milliseconds(), self.mode or "write", see)

    def give(self, lock, name):
        return self.script(GIVE, self.keys(lock), name) == 1

    def keys(self, lock):
        return [f"rw:{lock}:writer", f"rw:{lock}:readers"]


serve(ReadWrite)
