"""A lock on ZooKeeper, a copy of the recipe `zk-predecessor-watch`, over kazoo's client without its recipes, in which one defect can be
planted.

An ephemeral sequential node for each contender, found again by a random name; the smallest number holds the lock, and each other
one watches the node before its own. `--defect NAME` plants a defect, `--list` lists them.

https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks
"""

import glob
import os
import pathlib
import secrets
import sys
import threading
import time

from defects import planted

DEFECTS = {
    "order-by-name": "the order is that of whole names, and the random part comes first",
    "no-second-look": "when the node before its own is gone the lock is held",
    "node-left-by-a-timeout": "a wait that ends leaves its node",
    "node-left-by-a-lost-reply": "a node whose creation was not answered is not looked for",
    "doubts-when-expired": "a holder without a connection is told when its session is over, not when it may be",
    "no-doubt": "the holder is never told that its lock is lost",
    "release-is-always-ok": "a release without an answer is ok, and is not tried again",
    "waits-for-what-is-gone": "a node that is gone before it is watched is waited for",
    "gives-up-for-the-first": "a wait that ends deletes the first node of the queue, and not its own",
    "uses-a-dead-session": "a grant from before the session ended is believed when the wait is over",
}
DEFECT = planted(DEFECTS)

# after the list, since it takes standard output for the protocol
from stranger import Fail, Lock, serve  # noqa: E402


def kazoo_of_the_adapters():
    """The folder with the kazoo that `harness adapters` installed."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    found = sorted(glob.glob(f"{cache}/harness/adapters/kazoo-lock-*/**/site-packages", recursive=True))
    if not found:
        sys.exit("kazoo is not installed: `harness adapters` installs it")
    return found[-1]


sys.path.append(kazoo_of_the_adapters())

from kazoo.client import KazooClient  # noqa: E402
from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, OperationTimeoutError, SessionExpiredError  # noqa: E402
from kazoo.handlers.threading import KazooTimeoutError  # noqa: E402
from kazoo.protocol.states import KazooState  # noqa: E402

UNKNOWN = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, KazooTimeoutError, TimeoutError)


class Canary(Lock):
    contract = {"lease": True, "renews": True, "fifo": True, "tries": True, "owner": "server", "token": "server", "keys": "/canary/{lock}"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.held = {}  # lock -> node
        self.leftovers = []  # (lock, name) of operations whose outcome is unknown
        self.sessions = 0
        self.zk = KazooClient(hosts=",".join(endpoints), timeout=self.lease)
        self.zk.add_listener(self.changed)
        self.zk.start(timeout=self.lease)

    def changed(self, state):
        if state == KazooState.LOST:
            self.sessions += 1
        doubt = state == KazooState.LOST if DEFECT == "doubts-when-expired" else state != KazooState.CONNECTED
        if doubt and DEFECT not in ("no-doubt", "uses-a-dead-session"):
            for lock in list(self.held):
                self.lost(lock, state)

    def call(self, verb, *arguments, **options):
        """A call that ends within half a lease."""
        return verb(*arguments, **options).get(timeout=self.lease / 2)

    def acquire(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        self.clean()
        name, session = secrets.token_hex(8), self.sessions
        try:
            path = self.create(lock, name)
            self.wait(lock, path, deadline, "timeout" if wait_ms else "busy")
        except UNKNOWN:
            self.left(lock, name)
            raise
        except Fail:
            if DEFECT == "gives-up-for-the-first":
                self.delete(next(iter(self.queue(lock))))
            elif DEFECT != "node-left-by-a-timeout":
                self.withdraw(lock, name)
            raise
        if DEFECT != "uses-a-dead-session" and (session != self.sessions or self.zk.state != KazooState.CONNECTED):
            self.withdraw(lock, name)
            raise Fail("the session ended meanwhile")
        self.held[lock] = path
        try:
            node = self.call(self.zk.exists_async, path)
            owner = self.owner()
        except UNKNOWN:
            del self.held[lock]
            self.left(lock, name)
            raise
        if node is None and DEFECT != "uses-a-dead-session":
            del self.held[lock]
            raise Fail("the session ended meanwhile")
        if self.zk.state != KazooState.CONNECTED and DEFECT not in ("no-doubt", "doubts-when-expired", "uses-a-dead-session"):
            self.lost(lock, self.zk.state)  # the listener was called before the lock was in `held`
        return node and node.czxid, owner

    def owner(self):
        """The session, as servers show it."""
        session = self.zk.client_id
        if session is None:  # without a connection kazoo does not tell
            raise TimeoutError("the connection is lost")
        return f"0x{session[0] & 0xFFFFFFFFFFFFFFFF:x}"

    def create(self, lock, name):
        return self.call(self.zk.create_async, f"/canary/{lock}/{name}-", b"", ephemeral=True, sequence=True, makepath=True)

    def queue(self, lock):
        """The paths of the contenders, the first in line first."""
        children = self.call(self.zk.get_children_async, f"/canary/{lock}")
        order = (lambda child: child) if DEFECT == "order-by-name" else (lambda child: child[-10:])
        return [f"/canary/{lock}/{child}" for child in sorted(children, key=order)]

    def wait(self, lock, path, deadline, over):
        while True:
            queue = self.queue(lock)
            if path not in queue:
                raise Fail("the session ended meanwhile")
            if queue[0] == path:
                return
            before, gone = queue[queue.index(path) - 1], threading.Event()
            there = self.call(self.zk.exists_async, before, watch=lambda event: gone.set())
            if there is None and DEFECT != "waits-for-what-is-gone":
                continue
            while not gone.wait(min(self.lease / 4, max(0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    raise Fail(over)
                if self.zk.state != KazooState.CONNECTED:
                    raise TimeoutError("the connection is lost")
            if DEFECT == "no-second-look":
                return

    def left(self, lock, name):
        if DEFECT != "node-left-by-a-lost-reply":
            self.leftovers.append((lock, name))

    def withdraw(self, lock, name):
        """Ends a place in the queue."""
        try:
            for path in self.queue(lock):
                if f"/{name}-" in path:
                    self.delete(path)
        except UNKNOWN:
            self.leftovers.append((lock, name))
            raise

    def delete(self, path):
        try:
            self.call(self.zk.delete_async, path)
            return True
        except NoNodeError:
            return False

    def clean(self):
        leftovers, self.leftovers = self.leftovers, []
        for place, (lock, name) in enumerate(leftovers):
            try:
                self.withdraw(lock, name)
            except NoNodeError:
                pass
            except (*UNKNOWN, KazooException) as error:
                self.leftovers += leftovers[place + 1 :]
                raise Fail(f"cleaning up first: {error!r}")

    def release(self, lock):
        path = self.held.pop(lock, None)
        if path is None:
            raise Fail("not held")
        try:
            deleted = self.delete(path)
        except UNKNOWN:
            if DEFECT == "release-is-always-ok":
                return
            self.leftovers.append((lock, path.rsplit("/", 1)[1].split("-")[0]))
            raise
        if not deleted:
            raise Fail("not held: the session ended")

    def close(self):
        self.zk.stop()
        self.zk.close()


serve(Canary)
