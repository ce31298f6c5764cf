"""A lock in a bucket of NATS, a copy of the recipe `nats-key-revision`, in which one defect can be planted.

A write that expects no message by polling, the removal of the last own revision, renewal every quarter of a lease over that
revision; the token is the revision, and the age of the bucket the lease. `--defect NAME` plants a defect, `--list` lists them.
"""

from defects import planted

DEFECTS = {
    "put-after-a-read": "the key is read, and written without an expected revision if it was free",
    "refusal-is-a-grant": "a write that was refused for its expected revision counts as one that was taken",
    "purge-compares-nothing": "a release purges the key, whoever has it",
    "purge-in-two-steps": "a release reads the key and then purges it",
    "renewal-never-ends": "the renewal compares nothing and goes on after the release",
    "renewal-ends-by-an-error": "the renewal ends by its first error, and nothing is doubted",
    "no-doubt": "the holder is never told that its lock is lost",
    "late-doubt": "the holder is told a third of a lease too late",
    "forgets-a-lost-reply": "a write whose reply was lost counts as one that did not happen",
    "believes-a-lost-reply": "a write whose reply was lost counts as one that did happen",
    "release-is-always-ok": "a release without an answer is ok, and is not tried again",
    "release-is-said-to-fail": "a release that removed the key is answered `fail`",
    "half-a-lease": "the bucket's keys end after half of the lease",
    "no-age": "the bucket's keys never end",
    "ignores-a-late-answer": "a lock whose answer came when its lease was nearly over is neither held nor given back",
}
DEFECT = planted(DEFECTS)

# after the list, since it takes standard output for the protocol
from bucket import Bucket, OtherMessage, patiently  # noqa: E402
from renewed import RenewedLock  # noqa: E402
from stranger import EXPIRES, serve  # noqa: E402

# of the lease, where it is not all of it
AGES = {"half-a-lease": 0.5, "no-age": 0}


class Canary(RenewedLock):
    defect = DEFECT
    contract = {**EXPIRES, "renews": DEFECT != "half-a-lease", "tries": True, "token": "server", "keys": "canary/{lock}"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.bucket = Bucket(endpoints, self.lease / 3, "canary")
        self.renewals = Bucket(endpoints, self.lease / 3, "canary")  # so that a renewal does not wait for another call
        self.held = {}  # lock -> (name, event that ends its thread)
        self.leftovers = []  # (lock, name) of operations whose outcome is unknown
        patiently(lambda: self.bucket.make(int(lease_ms * AGES.get(DEFECT, 1))))

    def take(self, lock, name):
        """The revision of the write; 0 for one that was not seen."""
        if DEFECT == "put-after-a-read":
            return None if self.bucket.last(lock) else self.bucket.put(lock, name)
        try:
            return self.bucket.put(lock, name, 0)
        except OtherMessage:
            return 0 if DEFECT == "refusal-is-a-grant" else None

    def granted(self, lock, name, grant):
        return grant or None, name

    def give(self, lock, name):
        if DEFECT == "purge-compares-nothing":
            return self.bucket.purge(lock)
        if DEFECT == "purge-in-two-steps":
            return self.bucket.own(lock, name) is not None and self.bucket.purge(lock)
        removed = self.bucket.remove(lock, name)
        return removed and DEFECT != "release-is-said-to-fail"

    def extend(self, lock, name):
        if DEFECT == "renewal-never-ends":
            return self.renewals.put(lock, name) > 0
        return self.renewals.renew(lock, name)

    def close(self):
        self.bucket.close()
        self.renewals.close()


serve(Canary)
