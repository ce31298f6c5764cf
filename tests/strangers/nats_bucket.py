"""A lock in a bucket of NATS that has other keys, too, without a library: a key with the name of its holder and a number, `5eed 3`.

The bucket's age is the lease.

--broken: half a second after a release the key is purged once more, to be sure, and whoever has it by then (late release).
"""

import threading

from bucket import Bucket, OtherMessage, patiently
from stranger import BROKEN, EXPIRES, LeasedLock, serve


class NatsBucket(LeasedLock):
    contract = {**EXPIRES, "renews": True, "tries": True, "token": "server", "keys": "jobs/locks.{lock}"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.bucket = Bucket(endpoints, self.lease / 3, "jobs")
        self.renewals = Bucket(endpoints, self.lease / 3, "jobs")  # so that a renewal does not wait for another call
        self.held = {}  # lock -> (name, event that ends its thread)
        self.leftovers = []  # (lock, name) of operations whose outcome is unknown
        patiently(lambda: self.bucket.make(lease_ms))
        patiently(lambda: self.bucket.put(f"clients.c{self.client}", "open"))

    def value(self, name):
        return f"{name} {self.client}"

    def take(self, lock, name):
        try:
            return self.bucket.put(f"locks.{lock}", self.value(name), 0)
        except OtherMessage:
            return None

    def granted(self, lock, name, grant):
        return grant, self.value(name)

    def extend(self, lock, name):
        return self.renewals.renew(f"locks.{lock}", self.value(name))

    def give(self, lock, name):
        if BROKEN:
            threading.Timer(0.5, self.bucket.purge, [f"locks.{lock}"]).start()
        return self.bucket.remove(f"locks.{lock}", self.value(name))

    def close(self):
        self.bucket.close()
        self.renewals.close()


serve(NatsBucket)
