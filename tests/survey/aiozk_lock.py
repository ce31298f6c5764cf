"""aiozk's `Lock` (`client.recipes.Lock`).

https://github.com/micro-fan/aiozk

The lock is an ephemeral node of a queue. Nothing tells its holder that the session ended: the library logs it. Where an acquire does not
come back, or a release, the client ends its session, and its nodes with it.
"""

import asyncio
import contextlib

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
        self.lease, self.servers = lease_ms / 1000, ",".join(endpoints)
        self.zk = None
        self.connect()

    def connect(self):
        if self.zk is None:
            zk = aiozk.ZKClient(self.servers, session_timeout=self.lease)
            run(zk.start(), 3 * self.lease)
            self.zk = zk

    def disconnect(self):
        zk, self.zk = self.zk, None
        with contextlib.suppress(asyncio.TimeoutError):
            run(zk.close(), self.lease)

    def take(self, lock, wait_ms):
        try:
            self.connect()
        except asyncio.TimeoutError:
            raise Fail("no session")
        contender = self.zk.recipes.Lock(f"/harness/{lock}")
        try:
            run(contender.acquire(timeout=max(0.05, wait_ms / 1000)), wait_ms / 1000 + 2 * self.lease)
        except NotTaken as error:
            if error.args:
                raise  # the connection's: it is not known whether the node is there
            return None
        except asyncio.TimeoutError:
            self.disconnect()
            raise
        return contender if contender.locked() else None

    def grant(self, contender):
        return None, f"0x{self.zk.session.session_id & 0xFFFFFFFFFFFFFFFF:x}"

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None or self.zk is None:
            raise Fail("not held")
        try:
            run(contender.release(), 2 * self.lease)
        except asyncio.TimeoutError:
            self.disconnect()
            raise

    def close(self):
        if self.zk is not None:
            self.disconnect()


serve(AiozkLock)
