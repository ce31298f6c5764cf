"""A reentrant lock in a hash, as Redisson's: one field, the holder's name, with the number of times that it took the lock.

--broken: the first release of several gives the lock up (two owners).
"""

from stranger import BROKEN, EXPIRES, Fail, RedisLock, serve

TAKE = """
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
redis.call('hincrby', KEYS[1], ARGV[1], 1)
return redis.call('pexpire', KEYS[1], ARGV[2])
"""
GIVE = """
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return -1 end
local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if left == 0 or ARGV[2] == 'all' then redis.call('del', KEYS[1]) end
return left
"""
EXTEND = "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end return redis.call('pexpire', KEYS[1], ARGV[2])"


class HashField(RedisLock):
    contract = {**EXPIRES, "renews": True, "reentrant": True, "keys": "{lock}", "value": "hash"}

    def open(self, endpoints, lease_ms):
        super().open(endpoints, lease_ms)
        self.times = {}  # lock -> how often it is held

    def take(self, lock, name):
        return self.script(TAKE, [lock], name, self.milliseconds())

    def give(self, lock, name):
        return self.script(GIVE, [lock], name, "all") >= 0

    def extend(self, lock, name):
        return self.script(EXTEND, [lock], name, self.milliseconds(), redis=self.renewals) == 1

    def acquire(self, lock, wait_ms):
        if lock not in self.held:
            grant = super().acquire(lock, wait_ms)
            self.times[lock] = 1
            return grant
        name, _ = self.held[lock]
        if self.attempt(lock, name) is None:
            raise Fail("not held: it expired")
        self.times[lock] += 1
        return None, name

    def release(self, lock):
        if self.times.get(lock, 0) < 2:
            self.times.pop(lock, None)
            return super().release(lock)
        self.times[lock] -= 1
        name, _ = self.held[lock]
        if self.script(GIVE, [lock], name, "all" if BROKEN else "one") < 0:
            raise Fail("not held: it expired")


serve(HashField)
