"""coredis's `Lock` (`coredis.patterns.lock`).

https://coredis.readthedocs.io/en/stable/api/lock.html

The lock is not renewed. Its token is kept in a context variable, so a task takes the lock and gives it back.
"""

import asyncio

import coredis
from coredis.exceptions import LockReleaseError
from coredis.patterns.lock import Lock

from harness_client import serve
from serve_survey import TimedLock, run


class Holder:
    """A task that takes the lock, and gives it back when it is told to."""

    def __init__(self, lock):
        self.lock, self.told = lock, asyncio.Event()

    async def start(self):
        self.taken = asyncio.get_running_loop().create_future()
        self.task = asyncio.ensure_future(self.hold())
        return await self.taken

    async def hold(self):
        try:
            taken = await self.lock.acquire()
        except BaseException as error:
            self.taken.set_exception(error)
            return
        self.token = self.lock.local.get()
        self.taken.set_result(taken)
        if taken:
            await self.told.wait()
            await self.lock.release()

    async def end(self):
        self.told.set()
        await self.task


class CoredisLock(TimedLock):
    contract = {**TimedLock.contract, "owner": "server", "keys": "harness:{lock}", "value": "string"}
    not_held = LockReleaseError

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = lease_ms / 1000
        self.redis = coredis.Redis(
            host=host, port=int(port), stream_timeout=self.lease, connect_timeout=self.lease
        )
        run(self.redis.__aenter__(), self.lease)
        run(self.redis.ping(), self.lease)

    def contender(self, lock):
        return Holder(Lock(self.redis, f"harness:{lock}", timeout=self.lease, blocking=False))

    def attempt(self, holder):
        return run(holder.start(), self.lease)

    def grant(self, holder):
        return None, holder.token

    def give(self, holder):
        run(holder.end(), self.lease)


serve(CoredisLock)
