"""kazoo's locks and its election under harness: `kazoo_lock.py lock`, `semaphore`, `read-write` or `election`.

https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html and election.html

kazoo reports SUSPENDED and LOST to a listener, which its documentation recommends for a lock: that becomes `lost`. It does
not tell what wakes a waiter. The token of `lock` is the sequence number of its node, which is what users of kazoo take for
one.
"""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.protocol.states import KazooState

from harness_client import Fail, Lock, serve

PERMITS = 2
# several hold at once, of which the observer would show one
SHARED = {
    "lease": True,
    "renews": True,
    "tries": True,
    "owner": "none",
    "token": "none",
    "value": "none",
    "forks": True,
}


class KazooLock(Lock):
    contract = {
        "lease": True,
        "renews": True,
        "fifo": True,
        "tries": True,
        "owner": "server",
        "token": "own",
        "forks": True,
        "keys": "/harness/{lock}",
    }

    def open(self, endpoints, lease_ms):
        self.held = {}
        self.zk = KazooClient(hosts=",".join(endpoints), timeout=lease_ms / 1000)
        self.zk.add_listener(self.changed)
        self.zk.start(timeout=lease_ms / 1000)

    def changed(self, state):
        if state != KazooState.CONNECTED:
            for name in list(self.held):
                self.lost(name, state)

    def contender(self, lock):
        return self.zk.Lock(f"/harness/{lock}", str(self.client))

    def grant(self, contender):
        return int(contender.node[-10:]), f"0x{self.zk.client_id[0] & 0xFFFFFFFFFFFFFFFF:x}"

    def acquire(self, lock, wait_ms):
        contender = self.contender(lock)
        try:
            held = contender.acquire(timeout=wait_ms / 1000) if wait_ms else contender.acquire(blocking=False)
        except LockTimeout:
            raise Fail("timeout")
        if not held:
            raise Fail("timeout" if wait_ms else "busy")
        grant = self.grant(contender)
        self.held[lock] = contender
        if self.zk.state != KazooState.CONNECTED:
            self.lost(lock, self.zk.state)  # the listener was called before the lock was in `held`
        return grant

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None or not contender.release():
            raise Fail("not held")

    def close(self):
        self.zk.stop()
        self.zk.close()


class KazooSemaphore(KazooLock):
    contract = {**SHARED, "permits": PERMITS}

    def contender(self, lock):
        return self.zk.Semaphore(f"/harness/{lock}", str(self.client), max_leases=PERMITS)

    def grant(self, contender):
        return None, None


class KazooReadWrite(KazooLock):
    contract = {**SHARED, "read": True}

    def contender(self, lock):
        kind = self.zk.ReadLock if self.mode == "read" else self.zk.WriteLock
        return kind(f"/harness/{lock}", str(self.client))

    def grant(self, contender):
        return None, None


class Term:
    """A campaign, and the term that it leads to: `run` calls a function that leads until it returns."""

    def __init__(self, election):
        self.election = election
        self.leads = False
        self.error = None
        self.decided = threading.Event()
        self.resigned = threading.Event()
        self.thread = threading.Thread(target=self.campaign, daemon=True)
        self.thread.start()

    def campaign(self):
        try:
            self.election.run(self.lead)
        except Exception as error:
            self.error = error
        self.decided.set()

    def lead(self):
        self.leads = True
        self.decided.set()
        self.resigned.wait()

    def end(self):
        self.resigned.set()
        if not self.leads:
            self.election.cancel()
        self.thread.join()
        if self.error:
            raise self.error


class KazooElection(KazooLock):
    contract = {**KazooLock.contract, "fifo": False, "tries": False, "token": "none"}

    def acquire(self, lock, wait_ms):
        term = Term(self.zk.Election(f"/harness/{lock}", str(self.client)))
        term.decided.wait(wait_ms / 1000)
        if not term.leads:
            term.end()
            raise Fail("timeout")
        self.held[lock] = term
        if self.zk.state != KazooState.CONNECTED:
            self.lost(lock, self.zk.state)  # the listener was called before the lock was in `held`
        return None, f"0x{self.zk.client_id[0] & 0xFFFFFFFFFFFFFFFF:x}"

    def release(self, lock):
        term = self.held.pop(lock, None)
        if term is None:
            raise Fail("not held")
        term.end()


RECIPES = {"lock": KazooLock, "semaphore": KazooSemaphore, "read-write": KazooReadWrite, "election": KazooElection}
serve(RECIPES[sys.argv[1]])
