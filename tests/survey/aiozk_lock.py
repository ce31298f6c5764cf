"""aiozk's `Lock` (`client.recipes.Lock`).

https://github.com/micro-fan/aiozk

The lock is an ephemeral node of a queue. Nothing tells its holder that the session ended: the library logs it.
"""

import aiozk
from aiozk.exc import TimeoutError as NotTaken

from harness_client import Fail, LibraryLock, serve
from serve_survey import run


class AiozkLock(LibraryLock):
    contract = {
        "lease": True,
        "renews": True,
        "tries": False,
        "wakes": "unreported",
        "owner": "server",
        "token": "none",
        "keys": "/harness/{lock}",
    }

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        run(self.connect(endpoints), 5 * self.lease)

    async def connect(self, endpoints):
        self.zk = aiozk.ZKClient(",".join(endpoints), session_timeout=self.lease)
        await self.zk.start()

    def take(self, lock, wait_ms):
        contender = self.zk.recipes.Lock(f"/harness/{lock}")
        try:
            run(contender.acquire(timeout=max(0.05, wait_ms / 1000)), wait_ms / 1000 + 2 * self.lease)
        except NotTaken:
            return None
        return contender if contender.locked() else None

    def grant(self, contender):
        return None, f"0x{self.zk.session.session_id & 0xFFFFFFFFFFFFFFFF:x}"

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None:
            raise Fail("not held")
        run(contender.release(), 2 * self.lease)

    def close(self):
        run(self.zk.close(), self.lease)


serve(AiozkLock)
