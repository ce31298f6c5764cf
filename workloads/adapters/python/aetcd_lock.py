"""aetcd's `Lock` under harness, refreshed by a task.

https://aetcd.readthedocs.io/

The library does not refresh a lock by itself. The task does so every sixth of the time to live, and raises `lost` when the
lease is gone or was not proven for 85 % of it.
"""

import asyncio
import math
import threading
import time

import aetcd

from harness_client import Fail, Lock, serve


class AetcdLock(Lock):
    contract = {
        "lease": True,
        "renews": True,
        "tries": True,
        "owner": "server",
        "token": "server",
        "keys": "harness/{lock}/",
        "value": "revision",
    }

    def open(self, endpoints, lease_ms):
        self.ttl = math.ceil(lease_ms / 1000)  # whole seconds only
        self.patience = lease_ms / 1000
        self.held = {}
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        host, port = endpoints[0].rsplit(":", 1)
        self.etcd = self.call(self.connect(host, int(port)))

    async def connect(self, host, port):
        etcd = aetcd.Client(host=host, port=port, timeout=math.ceil(self.patience))
        await etcd.connect()
        # a channel connects at its first call
        await asyncio.wait_for(etcd.get(b"harness"), self.patience)
        return etcd

    def call(self, coroutine, timeout=None):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def acquire(self, lock, wait_ms):
        contender = self.etcd.lock(f"harness/{lock}/lock".encode(), self.ttl)
        if not self.call(contender.acquire(timeout=wait_ms / 1000), wait_ms / 1000 + self.patience):
            raise Fail("timeout" if wait_ms else "busy")
        self.held[lock] = contender
        # a waiter does not know when its lease began
        end = time.monotonic() + self.ttl * 0.6
        asyncio.run_coroutine_threadsafe(self.refresh(lock, contender, end), self.loop)
        return contender.revision, f"0x{contender.lease.id:x}"

    async def refresh(self, lock, contender, end):
        while self.held.get(lock) is contender:
            await asyncio.sleep(self.ttl / 6)
            asked, cause = time.monotonic(), "the lease was not refreshed in time"
            try:
                answer = await asyncio.wait_for(contender.refresh(), min(self.ttl / 3, end - asked))
                if answer.TTL > 0:
                    end = asked + self.ttl * 0.85
                else:
                    end, cause = 0, "the lease is gone"
            except Exception as error:
                cause = str(error) or type(error).__name__
            if time.monotonic() >= end:
                if self.held.get(lock) is contender:
                    self.lost(lock, cause)
                return

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None or not self.call(contender.release(), self.patience):
            raise Fail("not held")

    def close(self):
        self.call(self.etcd.close(), 1)


serve(AetcdLock)
