"""A semaphore with three permits: a sorted set of holders with the ends of their leases, by the server's clock.

--broken: it counts the holders before it and gives one permit too many.
"""

from stranger import BROKEN, EXPIRES, RedisLock, serve

PERMITS = 3
TAKE = """
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('zremrangebyscore', KEYS[1], '-inf', now)
if redis.call('zcard', KEYS[1]) >= tonumber(ARGV[3]) then return nil end
return redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1])
"""


class Permits(RedisLock):
    contract = {**EXPIRES, "permits": PERMITS, "owner": "own", "value": "none"}

    def take(self, lock, name):
        return self.script(TAKE, [f"permits:{lock}"], name, self.milliseconds(), PERMITS + BROKEN)

    def give(self, lock, name):
        return self.redis.call("ZREM", f"permits:{lock}", name) == 1


serve(Permits)
