"""asyncpg-lock's `AdvisoryLockGuard`: an advisory lock of a session of PostgreSQL, under which it runs a coroutine.

https://github.com/Pliner/asyncpg-lock

The guard asks until it has the lock, waits for `after_acquire_delay`, and runs the coroutine; it cancels that when its connection might be
lost, which becomes `lost`. The client cancels the guard to give up or to release.
"""

import asyncio
import contextlib
import hashlib
import os

import asyncpg
from asyncpg_lock import AdvisoryLockGuard, connect_func

from harness_client import serve
from serve_survey import SESSION, SurveyLock, run


class Hold:
    def __init__(self, guard, key, ended):
        self.guard, self.key, self.ended = guard, key, ended
        self.taken, self.over = asyncio.Event(), False

    async def start(self, wait):
        self.task = asyncio.ensure_future(self.guard.run(self.key, self.work))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.taken.wait(), wait)
        if not self.taken.is_set():
            await self.end()
        return self.taken.is_set()

    async def work(self):
        self.taken.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.over = True
            self.ended(self)

    async def end(self):
        self.task.cancel()
        await asyncio.wait([self.task])


class AsyncpgLock(SurveyLock):
    contract = {**SESSION, "tries": False, "wakes": "polls"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        host, port = endpoints[0].rsplit(":", 1)
        where = {
            "host": host,
            "port": int(port),
            "user": os.environ.get("PGUSER", "postgres"),
            "password": os.environ.get("PGPASSWORD"),
            "database": os.environ.get("PGDATABASE", "postgres"),
            "timeout": self.lease,
            "ssl": False,
        }
        run(self.ask(where), 2 * self.lease)
        self.guard = AdvisoryLockGuard(
            connect=connect_func(**where),
            reconnect_delay=self.lease / 10,
            reacquire_delay=0.02,
            after_acquire_delay=self.lease / 10,
        )

    async def ask(self, where):
        connection = await asyncpg.connect(**where)
        await connection.close()

    def take(self, lock, wait_ms):
        key = int.from_bytes(hashlib.sha256(lock.encode()).digest()[:8], "big", signed=True)
        hold = Hold(self.guard, key, lambda hold: self.ended(lock, hold))
        hold.lock = lock
        return hold if run(hold.start(wait_ms / 1000)) else None

    def grant(self, hold):
        if hold.over:
            self.lost(hold.lock, "cancelled by the guard")  # before the lock was in `held`
        return None, None

    def ended(self, lock, hold):
        if self.held.get(lock) is hold:
            self.lost(lock, "cancelled by the guard")

    def give(self, hold):
        run(hold.end(), 2 * self.lease)


serve(AsyncpgLock)
