"""kazoo's `Lock` under harness: `harness run --backend zk --client "python3 kazoo_lock.py"`.

Tried with kazoo 2.11.0 (`pip install kazoo`), ZooKeeper 3.8.0.

kazoo reports SUSPENDED and LOST to a listener, which its documentation recommends for a lock: that becomes `lost`. It does not tell what wakes a waiter, and hands out no token.
"""

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.protocol.states import KazooState

from harness_client import Fail, Lock, serve


class KazooLock(Lock):
    def open(self, endpoints, lease_ms):
        self.held = {}
        self.zk = KazooClient(hosts=",".join(endpoints), timeout=lease_ms / 1000)
        self.zk.add_listener(self.changed)
        self.zk.start(timeout=lease_ms / 1000)
        return self.owner()

    def owner(self):
        return f"0x{self.zk.client_id[0] & 0xFFFFFFFFFFFFFFFF:x}"

    def changed(self, state):
        if state != KazooState.CONNECTED:
            for name in list(self.held):
                self.lost(name, state)

    def acquire(self, lock, wait_ms):
        contender = self.zk.Lock(f"/harness/{lock}", str(self.client))
        try:
            held = contender.acquire(timeout=wait_ms / 1000) if wait_ms else contender.acquire(blocking=False)
        except LockTimeout:
            raise Fail("timeout")
        if not held:
            raise Fail("busy")
        self.held[lock] = contender
        return None, self.owner()

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None or not contender.release():
            raise Fail("not held")

    def close(self):
        self.zk.stop()
        self.zk.close()


serve(KazooLock)
