"""redis-fifo-lock's `FifoLock`.

https://github.com/gaussian/redis-fifo-lock

A task of the library renews the lock, and sets the event `lost` of a lease that is over. The fence is a counter. Grants are promised in
the order in which the server saw the waiters. `poll_ms` is half of the lease, as by default.
"""

import asyncio

import redis.asyncio
from redis_fifo_lock import FifoLock, LeaseLost

from harness_client import serve
from serve_survey import LEASED, SurveyLock, redis_at, run


class RedisFifoLock(SurveyLock):
    contract = {
        **LEASED,
        "fifo": True,
        "wakes": "unreported",
        "owner": "server",
        "token": "own",
        "keys": "{{lock}}:h",
        "value": "string",
    }
    not_held = LeaseLost

    def open(self, endpoints, lease_ms):
        self.lease_ms, self.lease = lease_ms, lease_ms / 1000
        self.redis = redis.asyncio.Redis(**redis_at(endpoints[0], self.lease))
        run(self.redis.ping(), self.lease)

    def take(self, lock, wait_ms):
        contender = FifoLock(self.redis, lock, lease_ms=self.lease_ms, poll_ms=self.lease_ms // 2)
        try:
            lease = run(contender.acquire(timeout=wait_ms / 1000), wait_ms / 1000 + 3 * self.lease)
        except asyncio.TimeoutError as error:
            if not error.args:
                raise  # not the library's: no answer
            return None
        return contender, lease

    def grant(self, hold):
        _, lease = hold
        run(self.watch(hold))
        return lease.fence, f"{lease.owner}:{lease.fence}"

    async def watch(self, hold):
        self.watcher = asyncio.ensure_future(self.look(*hold))

    async def look(self, contender, lease):
        await lease.lost.wait()
        if self.held.get(contender.name, (None, None))[1] is lease:
            self.lost(contender.name, "the event `lost`")

    def give(self, hold):
        contender, lease = hold
        run(contender.release(lease), 3 * self.lease)

    def close(self):
        run(self.redis.aclose(), self.lease)


serve(RedisFifoLock)
