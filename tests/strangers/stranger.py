"""What the locks of this folder share: a lock that expires without its rules, one on Redis and one that is a key there, the fields of
contracts in which most of them agree, and the switch that breaks a lock.

The client protocol itself is the library for adapters, `workloads/adapters/python/harness_client.py`. A file has one lock,
as its maintainer would write it, and one defect that `--broken` switches on.
"""

import pathlib
import secrets
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workloads/adapters/python"))

from harness_client import Fail, Lock, serve  # noqa: E402, F401

BROKEN = "--broken" in sys.argv
# of a lock with a lease that is not renewed, whose owners the server shows by their names
EXPIRES = {"lease": True, "renews": False, "wakes": "polls", "owner": "server", "token": "none"}
COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class Refused(Fail):
    """The server answered with an error."""


class Redis:
    """One connection. A call that fails or takes too long closes it, so that no answer is taken for another call's."""

    def __init__(self, endpoint, timeout):
        host, port = endpoint.rsplit(":", 1)
        self.address, self.timeout = (host, int(port)), timeout
        self.stream = None
        self.turn = threading.Lock()

    def call(self, *words):
        with self.turn:
            try:
                return self.exchange([str(word).encode() for word in words])
            except OSError:
                self.close()
                raise

    def exchange(self, words):
        if self.stream is None:
            self.socket = socket.create_connection(self.address, timeout=self.timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.stream = self.socket.makefile("rb")
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self.reply()

    def reply(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"$":
            return None if text == b"-1" else self.stream.read(int(text) + 2)[:-2].decode()
        if kind == b"*":
            return [self.reply() for _ in range(int(text))]
        if kind == b"-":
            raise Refused(text.decode())
        if kind not in b":+":
            raise ConnectionError(f"no Redis answers with {line!r}")
        return int(text) if kind == b":" else text.decode()

    def close(self):
        if self.stream is not None:
            self.stream.close()
            self.socket.close()
            self.stream = None


class LeasedLock(Lock):
    """A lock that expires. `take`, `give` and `extend` are the lock; each is one request. `open` sets `lease`, in seconds, `held` and
    `leftovers`.

    A lock that promises `renews` is extended in a thread; any other one ends at the share `trusted` of its lease. Either way `doubt` is
    called when the holder can no longer be sure.
    """

    trusted = 0.85

    def take(self, lock, name):
        """Returns what `granted` needs, or None if the lock is taken."""
        raise NotImplementedError

    def give(self, lock, name):
        """Returns whether the lock was held and no longer is."""
        raise NotImplementedError

    def extend(self, lock, name):
        """Returns whether the lock was still held, and is for another lease."""
        raise NotImplementedError

    def granted(self, lock, name, grant):
        """The token and the owner of a grant."""
        return None, name

    def doubt(self, lock, cause):
        self.lost(lock, cause)

    def gave_up(self, lock, name):
        """A wait came to its end."""

    def acquire(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        self.clean()
        name = secrets.token_hex(8)
        while True:
            asked = time.monotonic()
            grant = self.attempt(lock, name)
            if grant is not None:
                return self.hold(lock, name, asked, grant)
            if time.monotonic() >= deadline:
                break
            time.sleep(min(0.02, max(0, deadline - time.monotonic())))
        self.gave_up(lock, name)
        raise Fail("timeout" if wait_ms else "busy")

    def attempt(self, lock, name):
        try:
            return self.take(lock, name)
        except OSError:
            self.leftovers.append((lock, name))  # it may have happened or not: the answer is `info`
            raise

    def clean(self):
        while self.leftovers:
            try:
                self.give(*self.leftovers[-1])
            except OSError as error:
                raise Fail(f"cleaning up first: {error}")  # the lock was not asked for yet
            self.leftovers.pop()

    def hold(self, lock, name, asked, grant):
        if time.monotonic() >= asked + self.lease * 0.6:  # the answer came late: there is not enough left
            self.give_back(lock, name)
            raise Fail("timeout")
        over = threading.Event()
        self.held[lock] = name, over
        keep = self.keep if self.contract.get("renews") else self.count_down
        threading.Thread(target=keep, args=(lock, name, asked, over), daemon=True).start()
        return self.granted(lock, name, grant)

    def count_down(self, lock, name, asked, over):
        if not over.wait(asked + self.lease * self.trusted - time.monotonic()):
            self.doubt(lock, "the lease ends")

    def keep(self, lock, name, asked, over):
        """Extends the lock every quarter of a lease, and doubts it two thirds of a lease after the last answer."""
        sure = [asked]
        threading.Thread(target=self.watch, args=(lock, sure, over), daemon=True).start()
        while not over.wait(self.lease / 4):
            before = time.monotonic()
            try:
                if not self.extend(lock, name):
                    sure[0] = 0
                    return
                sure[0] = before
            except (OSError, Fail):
                pass  # it is tried again

    def watch(self, lock, sure, over):
        while not over.wait(min(0.05, self.lease / 20)):
            if time.monotonic() >= sure[0] + self.lease * 2 / 3:
                self.doubt(lock, "not renewed in time")
                return

    def release(self, lock):
        name, over = self.held.pop(lock, (None, None))
        if name is None:
            raise Fail("not held")
        over.set()
        if not self.give_back(lock, name):
            raise Fail("not held: it expired")

    def give_back(self, lock, name):
        try:
            return self.give(lock, name)
        except OSError:
            self.leftovers.append((lock, name))
            raise

    def milliseconds(self):
        return int(self.lease * 1000)


class RedisLock(LeasedLock):
    """A lock that expires, on one Redis server."""

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.redis = Redis(endpoints[0], self.lease / 3)
        self.renewals = Redis(endpoints[0], self.lease / 3)  # so that a renewal does not wait for another call
        self.held = {}  # lock -> (name, event that ends its thread)
        self.leftovers = []  # (lock, name) of operations whose outcome is unknown
        self.redis.call("PING")

    def close(self):
        self.redis.close()
        self.renewals.close()

    def script(self, text, keys, *arguments, redis=None):
        return (redis or self.redis).call("EVAL", text, len(keys), *keys, *arguments)

    def compare_and_delete(self, key, name, redis=None):
        """Deletes a key that has this name in it; returns whether it had."""
        return self.script(COMPARE_AND_DELETE, [key], name, redis=redis) == 1


class KeyLock(RedisLock):
    """A lock that is a key with the name of its holder: SET NX PX makes it, and a script that compares deletes it."""

    def key(self, lock):
        return self.contract["keys"].format(lock=lock)

    def take(self, lock, name):
        return self.redis.call("SET", self.key(lock), name, "NX", "PX", self.milliseconds())

    def give(self, lock, name):
        return self.compare_and_delete(self.key(lock), name)
