"""etcd's lock service over its JSON gateway, without a library: a lease for each acquire, kept alive by a thread.

https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/

--broken: from a client's second grant on, a wait that ends leaves its request with the server, and its lease is kept alive (stall).
"""

import queue
import threading
import time

from gateway import Gateway, coded
from stranger import BROKEN, Fail, LeasedLock, serve


class EtcdGateway(LeasedLock):
    contract = {
        "lease": True,
        "renews": True,
        "owner": "server",
        "token": "server",
        "keys": "gateway/{lock}",
        "value": "revision",
    }
    grants = 0

    def open(self, endpoints, lease_ms):
        self.endpoints = endpoints
        self.lease = -(-lease_ms // 1000)  # whole seconds only
        self.gateway = Gateway(endpoints)
        self.held = {}  # lock -> (lease, event that ends its threads)
        self.leftovers = []  # (lock, lease) of unknown operations
        self.gateway.call("kv/range", self.lease, key=coded("gateway"))

    def acquire(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        self.clean()
        try:
            lease = self.gateway.call("lease/grant", self.lease / 2, TTL=self.lease)["ID"]
        except OSError as error:
            raise Fail(f"no lease: {error}")
        over, sure = threading.Event(), [time.monotonic()]
        threading.Thread(target=self.keep_alive, args=(lease, sure, over), daemon=True).start()
        try:
            key = self.wait(lock, lease, deadline)
            token = self.position(key)
        except TimeoutError:
            if not (BROKEN and self.grants > 1):
                over.set()
                self.give_back(lock, lease)
            raise Fail("timeout" if wait_ms else "busy")
        except OSError:
            over.set()
            self.leftovers.append((lock, lease))
            raise
        if token is None or time.monotonic() >= sure[0] + self.lease * 2 / 3:
            over.set()
            self.give_back(lock, lease)
            raise Fail("the lease ended meanwhile")
        self.held[lock] = lease, over
        self.grants += 1
        threading.Thread(target=self.watch, args=(lock, sure, over), daemon=True).start()
        return token, f"0x{int(lease):x}"

    def wait(self, lock, lease, deadline):
        """Waits for the lock on a connection of its own; closing it where the wait ends takes the request back."""
        gateway = Gateway(self.endpoints)
        left = max(0.2, deadline - time.monotonic())
        fields = {"name": coded(f"gateway/{lock}"), "lease": lease}
        if BROKEN and self.grants > 1:
            answers = queue.Queue()
            threading.Thread(target=lambda: answers.put(gateway.call("lock/lock", 600, **fields)), daemon=True).start()
            try:
                return answers.get(timeout=left)["key"]
            except queue.Empty:
                raise TimeoutError
        try:
            return gateway.call("lock/lock", left, **fields)["key"]
        finally:
            gateway.drop()

    def position(self, key):
        """The create revision of a contender's key, if it is still there."""
        found = self.gateway.call("kv/range", self.lease / 2, key=key).get("kvs")
        return int(found[0]["create_revision"]) if found else None

    def keep_alive(self, lease, sure, over):
        gateway = Gateway(self.endpoints)
        while not over.wait(self.lease / 4):
            before = time.monotonic()
            try:
                if int(gateway.call("lease/keepalive", self.lease / 3, ID=lease).get("TTL", 0)) <= 0:
                    sure[0] = 0
                    break
                sure[0] = before
            except OSError:
                pass  # the next server is tried
        gateway.drop()

    def give(self, lock, lease):
        """Ends a lease, and with it the place in the queue or the grant; returns whether there was one."""
        try:
            self.gateway.call("lease/revoke", self.lease / 2, ID=lease)
            return True
        except OSError as error:
            if "not found" in str(error):
                return False
            raise

    def close(self):
        self.gateway.drop()


serve(EtcdGateway)
