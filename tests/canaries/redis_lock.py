"""A lock on one Redis server, a copy of the recipes `redis-set-px-lua` and `redis-watchdog`, in which one defect can be planted.

SET NX PX with a random value by polling, a script that compares and deletes, renewal every quarter of a lease, tokens of a
counter. `--defect NAME` plants a defect, `--list` lists them.
"""

import threading
import time

from defects import planted

DEFECTS = {
    "delete-compares-nothing": "a release deletes the key, whoever has it",
    "delete-in-two-steps": "a release reads the key and then deletes it",
    "renewal-never-ends": "the renewal compares nothing and goes on after the release",
    "renewal-ends-by-an-error": "the renewal ends by its first error, and nothing is doubted",
    "validity-from-the-reply": "the time that is left is counted from the reply and not from the request",
    "no-doubt": "the holder is never told that its lock is lost",
    "late-doubt": "the holder is told a third of a lease too late",
    "forgets-a-lost-reply": "a SET whose reply was lost counts as one that did not happen",
    "believes-a-lost-reply": "a SET whose reply was lost counts as one that did happen",
    "release-is-always-ok": "a release without an answer is ok, and is not tried again",
    "release-is-said-to-fail": "a release that deleted the key is answered `fail`",
    "expiry-in-two-steps": "SETNX, and then PEXPIRE",
    "half-a-lease": "the key expires after half of the lease",
    "token-before-the-lock": "the token is read before the lock is asked for",
    "token-in-two-steps": "the token is read, and the counter raised later",
    "stale-reply": "a connection goes on after a time-out, and takes the late reply for the next one",
    "one-key": "all locks are under one key",
    "ignores-a-late-answer": "a lock whose answer came when its lease was nearly over is neither held nor given back",
}
DEFECT = planted(DEFECTS)

# after the list, since it takes standard output for the protocol
from renewed import RenewedLock  # noqa: E402
from stranger import COMPARE_AND_DELETE, EXPIRES, serve  # noqa: E402

EXTEND = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"


class Canary(RenewedLock):
    defect = DEFECT
    contract = {**EXPIRES, "renews": DEFECT != "half-a-lease", "tries": True, "token": "own", "keys": "canary/{lock}"}

    def key(self, lock):
        return "canary/lock" if DEFECT == "one-key" else f"canary/{lock}"

    def open(self, endpoints, lease_ms):
        super().open(endpoints, lease_ms)
        if DEFECT == "validity-from-the-reply":
            self.redis.timeout = self.renewals.timeout = self.lease
        if DEFECT == "stale-reply":
            self.redis.close = lambda: None

    def take(self, lock, name):
        if DEFECT == "token-before-the-lock":
            self.token = self.redis.call("INCR", f"token/{lock}")
        if DEFECT == "expiry-in-two-steps":
            taken = self.redis.call("SETNX", self.key(lock), name) == 1
            return (taken and self.redis.call("PEXPIRE", self.key(lock), self.milliseconds())) or None
        time_to_live = self.milliseconds() // (2 if DEFECT == "half-a-lease" else 1)
        return self.redis.call("SET", self.key(lock), name, "NX", "PX", time_to_live) or None

    def granted(self, lock, name, grant):
        if DEFECT == "token-before-the-lock":
            return self.token, name
        if DEFECT == "token-in-two-steps":
            token = int(self.redis.call("GET", f"token/{lock}") or 0) + 1
            threading.Timer(0.05, self.raise_token, (lock, token)).start()
            return token, name
        try:
            return self.redis.call("INCR", f"token/{lock}"), name
        except OSError:
            self.held.pop(lock)[1].set()
            self.leftovers.append((lock, name))
            raise

    def raise_token(self, lock, token):
        try:
            self.redis.call("SET", f"token/{lock}", token)
        except OSError:
            pass

    def give(self, lock, name):
        if DEFECT == "delete-compares-nothing":
            return self.redis.call("DEL", self.key(lock)) == 1
        if DEFECT == "delete-in-two-steps":
            return self.redis.call("GET", self.key(lock)) == name and self.redis.call("DEL", self.key(lock)) == 1
        deleted = self.script(COMPARE_AND_DELETE, [self.key(lock)], name) == 1
        return deleted and DEFECT != "release-is-said-to-fail"

    def extend(self, lock, name):
        if DEFECT == "renewal-never-ends":
            return self.renewals.call("PEXPIRE", self.key(lock), self.milliseconds()) == 1
        return self.script(EXTEND, [self.key(lock)], name, self.milliseconds(), redis=self.renewals) == 1

    def keep(self, lock, name, asked, over):
        if DEFECT == "validity-from-the-reply":
            return self.keep_from_the_reply(lock, name, over)
        return super().keep(lock, name, asked, over)

    def keep_from_the_reply(self, lock, name, over):
        valid_until = time.monotonic() + self.lease
        while not over.wait(self.lease / 4):
            try:
                if not self.extend(lock, name):
                    break
                valid_until = time.monotonic() + self.lease
            except OSError:
                if time.monotonic() > valid_until - self.lease / 10:
                    break
        if not over.is_set():
            self.doubt(lock, "not renewed in time")


serve(Canary)
