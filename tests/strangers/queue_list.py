"""A lock that is a queue: a list of contenders, of whom the first is the holder, each with a key that expires unless it is renewed.

--broken: the client c0 leaves its place and queues again each time that it asks (starvation).
"""

from stranger import BROKEN, EXPIRES, RedisLock, serve

TAKE = """
redis.call('set', KEYS[1] .. ':' .. ARGV[1], 1, 'PX', ARGV[2])
if ARGV[3] == 'again' then redis.call('lrem', KEYS[1], 0, ARGV[1]) end
if not redis.call('lpos', KEYS[1], ARGV[1]) then redis.call('rpush', KEYS[1], ARGV[1]) end
local first = redis.call('lindex', KEYS[1], 0)
while redis.call('exists', KEYS[1] .. ':' .. first) == 0 do
    redis.call('lpop', KEYS[1])
    first = redis.call('lindex', KEYS[1], 0)
end
return first == ARGV[1] and 1
"""
GIVE = """
redis.call('del', KEYS[1] .. ':' .. ARGV[1])
return redis.call('lrem', KEYS[1], 0, ARGV[1])
"""
EXTEND = """
if redis.call('lindex', KEYS[1], 0) ~= ARGV[1] then return 0 end
return redis.call('pexpire', KEYS[1] .. ':' .. ARGV[1], ARGV[2])
"""


class QueueList(RedisLock):
    contract = {**EXPIRES, "renews": True, "keys": "line:{lock}", "value": "list"}

    def take(self, lock, name):
        place = "again" if BROKEN and self.client == 0 else "stay"
        return self.script(TAKE, [f"line:{lock}"], name, self.milliseconds(), place)

    def give(self, lock, name):
        return self.script(GIVE, [f"line:{lock}"], name) == 1

    def extend(self, lock, name):
        return self.script(EXTEND, [f"line:{lock}"], name, self.milliseconds(), redis=self.renewals) == 1

    def gave_up(self, lock, name):
        self.give_back(lock, name)


serve(QueueList)
