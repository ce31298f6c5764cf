"""aioredlock's `Aioredlock`, with the renewal of the library, on one master.

https://github.com/joanvila/aioredlock

A lock that is taken without `lock_timeout` is extended by a task of the library. The application looks at `lock.valid` ten times in a
lease, since nothing else tells that it was lost.
"""

import asyncio
import secrets
import time

from aioredlock import Aioredlock, LockAcquiringError

from harness_client import serve
from serve_survey import LEASED, SurveyLock, run


class AioredlockLock(SurveyLock):
    contract = {**LEASED, "owner": "server", "keys": "{lock}", "value": "string"}
    not_held = LockAcquiringError

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = lease_ms / 1000
        self.manager = Aioredlock(
            [{"host": host, "port": int(port)}], retry_count=1, internal_lock_timeout=self.lease
        )
        run(self.connect(), self.lease)

    async def connect(self):
        """Takes a lock of its own, so that `open` fails where no server answers."""
        await self.manager.unlock(await self.manager.lock(secrets.token_hex(8)))

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            try:
                return run(self.manager.lock(lock), self.lease)
            except LockAcquiringError:
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.02)

    def grant(self, contender):
        run(self.watch(contender))
        return None, contender.id

    async def watch(self, contender):
        self.watcher = asyncio.ensure_future(self.look(contender))

    async def look(self, contender):
        while contender.valid:
            await asyncio.sleep(self.lease / 10)
        if self.held.get(contender.resource) is contender:
            self.lost(contender.resource, "valid is false")

    def give(self, contender):
        run(self.manager.unlock(contender), self.lease)

    def close(self):
        run(self.manager.destroy(), self.lease)


serve(AioredlockLock)
