"""The client protocol of harness (docs/client-protocol.md) for locks written in Python: JSON lines over stdin and stdout.

Write a class with `open`, `acquire`, `release` and `close` like those of `Lock` below, and `extend` where the contract has `extends`,
and call `serve(YourLock)`.
Raise `Fail` for what surely did not happen; any other exception means that it is not known whether it happened, and
becomes `info`.
Each client of several in one process runs in a separate thread, so a library that ties a lock to its thread works. A client that is alone
there (HARNESS_CLIENTS=1) runs in the main thread.
What a library prints goes to standard error: the protocol alone has standard output.
"""

import atexit
import contextlib
import gc
import json
import os
import queue
import random
import sys
import threading
import time

_protocol = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class Fail(Exception):
    """It surely did not happen: busy, timeout, not held."""


class Lock:
    """One client. `self.lost(lock, cause)` and `self.woken(lock, cause)` raise the signals."""

    # The promises of the lock, for the answer to `open`; "Contract" in docs/client-protocol.md has the fields.
    contract = {}

    def open(self, endpoints, lease_ms):
        """Connects; may return the owner's name."""

    def acquire(self, lock, wait_ms):
        """Returns (token, owner), either of which may be None. `self.mode` is "read", "write" or None."""

    def release(self, lock):
        pass

    def extend(self, lock):
        """Gives a held lock its whole lease again; `Fail("not held")` where it is not held (any more)."""
        raise Fail("its user cannot extend its lease")

    def close(self):
        pass

    def lost(self, lock, cause):
        self._signal("lost", lock, cause)

    def woken(self, lock, cause):
        self._signal("woken", lock, cause)

    def _signal(self, f, lock, cause):
        at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        _say({"type": "signal", "client": self.client, "f": f, "lock": lock, "at": at, "cause": cause})


def ping_most(servers):
    """Fails where half of the servers, or more, do not answer: no lock on a majority can be had there."""
    errors = []
    for server in servers:
        try:
            server.ping()
        except Exception as error:
            errors.append(error)
    if 2 * len(errors) >= len(servers):
        raise errors[-1]


class LibraryLock(Lock):
    """A lock of a library that has an object for each contender. `take` makes one and asks it for the lock."""

    # The library's errors for a release, or an extension, of a lock that is not held (any more).
    not_held = ()

    def __init__(self):
        self.held = {}  # lock -> its contender

    def take(self, lock, wait_ms):
        """Returns the contender that holds the lock now, or None if the lock stayed taken."""

    def grant(self, contender):
        """The token and the owner of a hold, as `acquire` returns them."""
        return None, None

    def acquire(self, lock, wait_ms):
        contender = self.take(lock, wait_ms)
        if contender is None:
            raise Fail("timeout" if wait_ms else "busy")
        self.held[lock] = contender
        return self.grant(contender)

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None:
            raise Fail("not held")
        try:
            contender.release()
        except self.not_held as error:
            raise Fail(f"not held: {error}")

    def lengthen(self, contender):
        """Extends the lease of a contender that holds the lock, where the contract has `extends`."""
        raise Fail("its user cannot extend its lease")

    def extend(self, lock):
        contender = self.held.get(lock)
        if contender is None:
            raise Fail("not held")
        try:
            self.lengthen(contender)
        except self.not_held as error:
            raise Fail(f"not held: {error}")


_out = threading.Lock()


def _say(message):
    line = json.dumps(message)
    with _out:
        _protocol.write(line + "\n")
        _protocol.flush()


def _close(client):
    """Releases what the client says it holds, since a library's own close may leave it to the lease."""
    for lock in list(getattr(client, "held", ())):
        with contextlib.suppress(Exception):
            client.release(lock)
    client.close()


def _perform(client, request):
    op = request["op"]
    token = owner = contract = None
    if op == "open":
        owner = client.open(request["endpoints"], request["lease_ms"])
        contract = client.contract or None
    elif op == "acquire":
        client.mode = request.get("mode")
        token, owner = client.acquire(request["lock"], request["wait_ms"])
    elif op == "release":
        client.release(request["lock"])
    elif op == "extend":
        client.extend(request["lock"])
    elif op == "close":
        _close(client)
    else:
        raise Fail(f"no such operation: {op}")
    reply = {"type": "ok", "token": token, "owner": owner, "contract": contract}
    return {key: value for key, value in reply.items() if value is not None}


def _answer(client, request):
    """Answers a request, and says whether the client goes on."""
    try:
        reply = _perform(client, request)
    except Fail as error:
        reply = {"type": "fail", "error": str(error)}
    except Exception as error:  # it is not known whether it happened
        reply = {"type": "info", "error": f"{type(error).__name__}: {error}"}
    _say({"id": request["id"], **reply})
    return request["op"] != "close"


class _Alone:
    """A client that answers in the thread that reads its requests."""

    def __init__(self, client):
        self.client, self.goes_on = client, True

    def put(self, request):
        self.goes_on = _answer(self.client, request)

    def end(self):
        if self.goes_on:
            _close(self.client)


class _Threaded:
    """A client with a thread of its own."""

    def __init__(self, client):
        self.client, self.requests = client, queue.Queue()
        self.put = self.requests.put
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (request := self.requests.get()) is not None:
            if not _answer(self.client, request):
                return
        _close(self.client)

    def end(self):
        self.put(None)
        self.thread.join(5)


def _request(line):
    """Returns the request of a line; None where it is none, which has no number to answer with."""
    try:
        request = json.loads(line)
        return request if {"id", "client", "op"} <= request.keys() else None
    except (ValueError, AttributeError):
        return None


def serve(make):
    """Serves until stdin ends, and then ends the process."""
    # the libraries' objects stay: the collector leaves them alone, and forks of this process, in virtual time, share its pages
    gc.collect()
    gc.freeze()
    _serve(make)
    # all that the interpreter does at its end but freeing each object, which takes longer than most runs of a client in virtual time
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _serve(make):
    served = {}
    serving = _Alone if os.environ.get("HARNESS_CLIENTS") == "1" else _Threaded
    for line in filter(str.strip, sys.stdin):
        request = _request(line)
        if request is None:
            print(f"no request: {line.strip()}", file=sys.stderr)
            continue
        number = request["client"]
        if request["op"] == "open":
            # in virtual time this process may be a fork, which would draw the same numbers as the others
            random.seed()
            client = make()
            client.client = number
            served[number] = serving(client)
        if number in served:
            served[number].put(request)
        else:
            _say({"id": request["id"], "type": "fail", "error": f"client {number} is not open"})
    for client in served.values():
        client.end()
