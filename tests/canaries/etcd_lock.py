"""A lock on etcd, a copy of the recipe `etcd-mutex`, over the JSON gateway, in which one defect can be planted.

A key under a lease of the client for each contender; the one with the smallest create revision holds the lock, and each other one
looks at the key before its own. `--defect NAME` plants a defect, `--list` lists them.

https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/
"""

import secrets
import threading
import time

from defects import planted
from gateway import Gateway, coded, decoded

DEFECTS = {
    "order-by-name": "the smallest key holds the lock and not the oldest",
    "no-second-look": "when the key before its own is gone the lock is held",
    "key-left-by-a-timeout": "a wait that ends leaves its key, which the lease keeps alive",
    "key-left-by-a-lost-reply": "a key whose creation was not answered is forgotten, and the lease keeps it alive",
    "renewal-ends-by-an-error": "the lease is not renewed after an error, and nothing is doubted",
    "no-doubt": "the holder is never told that its lock is lost",
    "late-doubt": "the holder is told a third of a lease too late",
    "release-is-always-ok": "a release without an answer is ok, and is not tried again",
    "deletes-the-queue": "a release deletes the keys of all contenders",
    "believes-without-looking": "a contender whose question is not answered takes the lock for its own",
    "uses-a-dead-lease": "the lease of a client is never taken anew, though it has ended",
}
DEFECT = planted(DEFECTS)

# after the list, since it takes standard output for the protocol
from stranger import Fail, Lock, serve  # noqa: E402


class Lease:
    """A lease that a thread keeps alive. `sure` is when it was surely alive last."""

    def __init__(self, owner):
        asked = time.monotonic()
        self.id = owner.gateway.call("lease/grant", owner.lease / 2, TTL=owner.lease)["ID"]
        self.ttl, self.sure, self.over = owner.lease, asked, threading.Event()
        self.gateway = Gateway(owner.endpoints)
        threading.Thread(target=self.keep, daemon=True).start()

    def keep(self):
        while not self.over.wait(self.ttl / 4):
            before = time.monotonic()
            try:
                if int(self.gateway.call("lease/keepalive", self.ttl / 3, ID=self.id).get("TTL", 0)) <= 0:
                    self.sure = 0
                    break
                self.sure = before
            except (OSError, Fail):
                if DEFECT == "renewal-ends-by-an-error":
                    break
        self.gateway.drop()

    def is_sure(self):
        if DEFECT == "renewal-ends-by-an-error":
            return True
        return time.monotonic() < self.sure + self.ttl * 2 / 3

    def end(self):
        self.over.set()


class Canary(Lock):
    contract = {
        "lease": True,
        "renews": True,
        "tries": True,
        "owner": "server",
        "token": "server",
        "keys": "canary/{lock}",
        "value": "revision",
    }

    def open(self, endpoints, lease_ms):
        self.endpoints = endpoints
        self.lease = -(-lease_ms // 1000)  # whole seconds only
        self.gateway = Gateway(endpoints)
        self.held = {}  # lock -> (key, lease, event that ends its thread)
        self.leftovers = []  # keys of unknown operations
        self.session = Lease(self)

    def leased(self):
        """The lease of this client, a new one when the last one may be over."""
        if (self.session.over.is_set() or not self.session.is_sure()) and DEFECT != "uses-a-dead-lease":
            self.session.end()
            self.session = Lease(self)
        return self.session

    def acquire(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        try:
            self.clean()
            lease = self.leased()
        except OSError as error:
            raise Fail(f"first of all: {error}")
        key = f"canary/{lock}/{secrets.token_hex(8)}"
        try:
            self.gateway.call("kv/put", self.lease / 2, key=coded(key), lease=lease.id)
            revision = self.wait(lock, key, deadline, "timeout" if wait_ms else "busy")
        except OSError:
            if DEFECT != "key-left-by-a-lost-reply":
                self.leftovers.append(key)
                # a put that is carried out later than the delete finds no lease, or ends with it
                self.session.end()
            raise
        except Fail:
            if DEFECT != "key-left-by-a-timeout":
                self.delete(key)
            raise
        if not lease.is_sure():
            self.delete(key)
            raise Fail("the lease ended meanwhile")
        over = threading.Event()
        self.held[lock] = key, lease, over
        threading.Thread(target=self.watch, args=(lock, lease, over), daemon=True).start()
        return revision, f"0x{int(lease.id):x}"

    def contenders(self, lock):
        """Keys and create revisions, the oldest first."""
        prefix = f"canary/{lock}/"
        answer = self.gateway.call(
            "kv/range", self.lease / 3, key=coded(prefix), range_end=coded(prefix[:-1] + "0"), keys_only=True
        )
        found = [(int(pair["create_revision"]), decoded(pair["key"])) for pair in answer.get("kvs", [])]
        return sorted(found, key=lambda pair: pair[1] if DEFECT == "order-by-name" else pair[0])

    def wait(self, lock, key, deadline, over):
        """Waits until the key is the first; returns its create revision."""
        before = None
        while True:
            try:
                queue = self.contenders(lock)
            except OSError:
                if DEFECT != "believes-without-looking":
                    raise
                return None
            place = next((place for place, (_, other) in enumerate(queue) if other == key), None)
            if place is None:
                raise Fail("the lease ended meanwhile")
            gone = before is not None and all(other != before for _, other in queue)
            if place == 0 or (gone and DEFECT == "no-second-look"):
                return queue[place][0]
            before = before or queue[place - 1][1]
            if all(other != before for _, other in queue):
                before = queue[place - 1][1]
            if time.monotonic() >= deadline:
                raise Fail(over)
            time.sleep(0.02)

    def watch(self, lock, lease, over):
        while not over.wait(0.05):
            if not lease.is_sure():
                if DEFECT == "no-doubt":
                    return
                if DEFECT == "late-doubt":
                    time.sleep(self.lease * 2 / 3)
                self.lost(lock, "not kept alive in time")
                return

    def delete(self, key):
        """Ends a place in the queue or a grant; returns whether there was one."""
        try:
            return int(self.gateway.call("kv/deleterange", self.lease / 2, key=coded(key)).get("deleted", 0)) > 0
        except OSError:
            self.leftovers.append(key)
            raise

    def clean(self):
        leftovers, self.leftovers = self.leftovers, []
        for place, key in enumerate(leftovers):
            try:
                self.delete(key)
            except OSError:
                self.leftovers = leftovers[place:]
                raise

    def release(self, lock):
        key, _, over = self.held.pop(lock, (None, None, None))
        if key is None:
            raise Fail("not held")
        over.set()
        if DEFECT == "deletes-the-queue":
            prefix = f"canary/{lock}/"
            self.gateway.call("kv/deleterange", self.lease / 2, key=coded(prefix), range_end=coded(prefix[:-1] + "0"))
        elif DEFECT == "release-is-always-ok":
            try:
                self.gateway.call("kv/deleterange", self.lease / 2, key=coded(key))
            except OSError:
                pass
        elif not self.delete(key):
            raise Fail("not held: the lease ended")

    def close(self):
        self.session.end()
        self.gateway.drop()


serve(Canary)
