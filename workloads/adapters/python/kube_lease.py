"""Leader election on a Lease of Kubernetes by the algorithm of client-go, with nothing but Python's standard library.

https://pkg.go.dev/k8s.io/client-go/tools/leaderelection

A candidate reads the Lease again and again. It takes one that nobody has, or that did not change for a lease duration of the
candidate's own clock: the times in the Lease are of other clocks and are not compared. The leader renews the Lease, and stops
when that failed for the renew deadline. The argument says how carefully:

- `careful` counts the renew deadline from before the last renewal that succeeded was sent
- `client-go` counts it as client-go does: from the first attempt after that, which begins a retry period after the reply, and at once
  after the Lease was taken
- `past-deadline` knows no deadline: it leads until it reads that another candidate has the Lease
- `own-clock` counts as `careful` does, but compares the time in the Lease with its own time of day
- `cached` counts as `careful` does, but reads with resourceVersion=0, which an API server may answer from an old cache, and patches
  the Lease without the version that it read
"""

import datetime
import http.client
import json
import random
import secrets
import sys
import threading
import time

from harness_client import Fail, Lock, serve

NAMESPACE = "default"
# client-go's defaults are 15, 10 and 2 seconds
RENEW_DEADLINE = 2 / 3
RETRY_PERIOD = 2 / 15
MODE = sys.argv[1] if len(sys.argv) > 1 else "careful"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def age(text):
    """How many seconds ago a time of RFC 3339 was, by this process's time of day."""
    then = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
    return time.time() - then.timestamp()


class ApiServer:
    """Calls that take no longer than their time, each on a connection of its own if the last one failed."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.connection = None

    def call(self, method, path, body=None, timeout=1.0):
        """The code and the object of the answer; an OSError where it is not known whether the call happened."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.endpoint)
        self.connection.timeout = max(timeout, 0.01)
        if self.connection.sock is not None:
            self.connection.sock.settimeout(self.connection.timeout)
        try:
            body = None if body is None else json.dumps(body)
            content = "application/merge-patch+json" if method == "PATCH" else "application/json"
            self.connection.request(method, path, body, {"Content-Type": content})
            response = self.connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.connection.close()
            self.connection = None
            raise ConnectionError(f"{type(error).__name__}: {error}")


class Candidate:
    """One term: from the first try to take a Lease to the end of leading."""

    def __init__(self, endpoint, lock, lease, mine):
        self.server, self.lease = ApiServer(endpoint), lease
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        self.name = lock
        # a name of its own for each term: leaseTransitions then grows from term to term, and is a fencing token
        self.identity = secrets.token_hex(8)
        self.mine = mine  # names of earlier terms whose end is not known
        self.mine.add(self.identity)
        self.seen = None  # version of the Lease, and when it was read first
        self.object = None
        self.unsure = None  # the version that a write without an answer was to replace

    def spec(self, transitions, acquired=None):
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, -int(-self.lease // 1)),
            "acquireTime": acquired or now(),
            "renewTime": now(),
            "leaseTransitions": transitions,
        }

    def attempt(self, timeout):
        """Tries to take or renew the Lease; returns when the request was sent that did it, or None."""
        cached = "?resourceVersion=0" if MODE == "cached" else ""
        code, lease = self.server.call("GET", f"{self.path}/{self.name}{cached}", timeout=timeout)
        if code == 404:
            body = {"metadata": {"name": self.name}, "spec": self.spec(0)}
            return self.write("POST", self.path, body, "", timeout)
        if code != 200:
            return None
        spec = lease.get("spec", {})
        version = lease["metadata"]["resourceVersion"]
        if self.seen is None or self.seen[0] != version:
            self.seen = version, time.monotonic()
        holder = spec.get("holderIdentity")
        if self.unsure not in (None, version) and holder != self.identity:
            self.unsure = None  # the Lease has changed since, so what was sent has had no effect, and will have none
        if holder and holder not in self.mine and not self.is_over(spec):
            return None
        transitions = spec.get("leaseTransitions", 0)
        if holder == self.identity:
            spec = self.spec(transitions, spec.get("acquireTime"))
        else:
            spec = self.spec(transitions + 1)
        # the server refuses it with 409 where the Lease has changed since it was read
        if MODE == "cached":
            return self.write("PATCH", f"{self.path}/{self.name}", {"spec": spec}, version, timeout)
        return self.write("PUT", f"{self.path}/{self.name}", {**lease, "spec": spec}, version, timeout)

    def is_over(self, spec):
        if MODE == "own-clock":
            return age(spec["renewTime"]) > spec["leaseDurationSeconds"]
        return time.monotonic() - self.seen[1] >= spec.get("leaseDurationSeconds", self.lease)

    def write(self, method, path, lease, replaced, timeout):
        self.unsure, sent = replaced, time.monotonic()
        code, lease = self.server.call(method, path, lease, timeout)
        self.unsure = None
        if code not in (200, 201):
            return None
        self.object = lease
        self.seen = lease["metadata"]["resourceVersion"], time.monotonic()
        return sent

    def is_taken(self, timeout):
        """Whether another candidate has the Lease."""
        code, lease = self.server.call("GET", f"{self.path}/{self.name}", timeout=timeout)
        return code == 200 and lease["spec"].get("holderIdentity") != self.identity

    def resign(self, timeout):
        """Leaves the Lease to the others, as ReleaseOnCancel does. False where it was no longer this candidate's."""
        spec = {**self.object["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now()}
        code, _ = self.server.call("PUT", f"{self.path}/{self.name}", {**self.object, "spec": spec}, timeout)
        return code == 200


class Term:
    """A leader's renewals, in a thread, and its end."""

    def __init__(self, client, lock, candidate, sent):
        self.client, self.lock, self.candidate = client, lock, candidate
        self.deadline = client.lease * RENEW_DEADLINE
        self.retry = client.lease * RETRY_PERIOD
        self.until = (time.monotonic() if MODE == "client-go" else sent) + self.deadline
        self.over = threading.Event()
        self.guard = threading.Lock()
        self.renewing = threading.Thread(target=self.renew, daemon=True)
        self.renewing.start()
        if MODE != "past-deadline":
            threading.Thread(target=self.watch_deadline, daemon=True).start()

    def end(self, cause=None):
        """Ends it once; tells of it where the application did not ask."""
        with self.guard:
            if self.over.is_set():
                return False
            self.over.set()
            if cause:
                self.client.lost(self.lock, cause)
            return True

    def watch_deadline(self):
        """Ends it at the deadline, whatever a call is waiting for."""
        while not self.over.wait(max(0.0, self.until - time.monotonic())):
            if time.monotonic() >= self.until:
                self.end("the renew deadline")

    def renew(self):
        pause = 0 if MODE == "client-go" else self.retry
        while not self.over.wait(pause):
            pause = self.retry
            if MODE == "client-go":
                self.until = time.monotonic() + self.deadline
            self.renew_once()

    def renew_once(self):
        while not self.over.is_set():
            left = self.deadline if MODE == "past-deadline" else self.until - time.monotonic()
            if left <= 0:
                return
            try:
                sent = self.candidate.attempt(min(left, self.deadline))
                if sent is not None:
                    self.until = time.monotonic() + self.deadline + self.retry if MODE == "client-go" else sent + self.deadline
                    return
                if MODE == "past-deadline" and self.candidate.is_taken(left):
                    self.end("another candidate leads")
            except OSError:
                pass
            self.over.wait(self.retry)


class KubeLease(Lock):
    contract = {"lease": True, "renews": True, "fifo": False, "tries": True, "wakes": "polls", "owner": "server",
                "token": "server", "wall_clock": MODE == "own-clock"}  # fmt: skip

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.endpoint = endpoints[0]
        self.mine = set()
        self.held = {}  # lock -> its term
        code, _ = ApiServer(self.endpoint).call("GET", "/version", timeout=5)
        if code != 200:
            raise Fail(f"the API server answers {code}")

    def acquire(self, lock, wait_ms):
        over = time.monotonic() + wait_ms / 1000
        deadline = self.lease * RENEW_DEADLINE
        candidate = Candidate(self.endpoint, lock, self.lease, self.mine)
        while True:
            try:
                sent = candidate.attempt(min(deadline, max(0.2, over - time.monotonic())))
                # a Lease of which half of the deadline is over is renewed before it is used
                if sent is not None and (MODE == "client-go" or time.monotonic() - sent < deadline / 2):
                    self.mine &= {candidate.identity}
                    self.held[lock] = Term(self, lock, candidate, sent)
                    return candidate.object["spec"].get("leaseTransitions", 0), candidate.identity
            except OSError:
                pass  # the server is asked again
            left = over - time.monotonic()
            if left <= 0:
                return self.give_up(candidate, wait_ms)
            time.sleep(min(self.lease * RETRY_PERIOD * random.uniform(1, 2.2), left))

    def give_up(self, candidate, wait_ms):
        if candidate.unsure is not None:
            raise ConnectionError("a write was not answered")
        if candidate.object is not None and not candidate.resign(self.lease):
            raise ConnectionError("it is not known whether the Lease was left")
        raise Fail("timeout" if wait_ms else "busy")

    def release(self, lock):
        term = self.held.pop(lock, None)
        if term is None or not term.end():
            raise Fail("not held")
        # a renewal that is under way ends first: it would write the Lease anew
        term.renewing.join()
        if not term.candidate.resign(self.lease):
            raise Fail("not held: another candidate leads")


serve(KubeLease)
