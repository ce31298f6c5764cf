"""A lock over HTTP: each client has a lock service beside it (http_lock_server.py), as a sidecar, and asks only that.

--broken: the time that a lock is held for is read in microseconds, so the client gives each lock up at once (early loss).
"""

import http.client
import json
import pathlib
import subprocess
import sys
import threading
import time
import urllib.parse

from stranger import BROKEN, EXPIRES, Fail, Lock, serve

SERVER = pathlib.Path(__file__).with_name("http_lock_server.py")


class OverHttp(Lock):
    contract = {**EXPIRES, "tries": True, "keys": "http:locks:{lock}"}
    grants = 0

    def open(self, endpoints, lease_ms):
        self.lease_ms = lease_ms
        self.held = {}  # lock -> (owner, timer of the lost signal)
        self.leftovers = []  # (lock, owner) of requests without an answer
        self.connection = None
        command = [sys.executable, str(SERVER), endpoints[0], str(lease_ms / 3000)]
        self.service = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.service.stdout.readline())
        try:
            self.request("DELETE", "l0", owner="nobody")  # is there a store behind it?
        except OSError:
            self.close()
            raise

    def request(self, method, lock, **query):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.lease_ms / 2000)
        try:
            self.connection.request(method, f"/locks/{lock}?{urllib.parse.urlencode(query)}")
            response = self.connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            self.connection = None
            raise ConnectionError(error)
        if response.status == 503:
            raise ConnectionError("the lock service has no answer")
        return response.status, json.loads(body or b"{}")

    def acquire(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        while self.leftovers:
            try:
                self.request("DELETE", self.leftovers[-1][0], owner=self.leftovers[-1][1])
            except OSError as error:
                raise Fail(f"cleaning up first: {error}")
            self.leftovers.pop()
        self.grants += 1
        owner = f"c{self.client}-{self.grants}-{time.monotonic_ns():x}"
        while True:
            asked = time.monotonic()
            try:
                status, answer = self.request("PUT", lock, owner=owner, ttl_ms=self.lease_ms)
            except OSError:
                self.leftovers.append((lock, owner))
                raise
            if status == 200:
                return self.hold(lock, owner, asked, answer["expires_in_ms"] / (1_000_000 if BROKEN else 1_000))
            if time.monotonic() >= deadline:
                raise Fail("timeout" if wait_ms else "busy")
            time.sleep(0.02)

    def hold(self, lock, owner, asked, seconds):
        left = asked + seconds * 0.85 - time.monotonic()
        if left <= 0 and not BROKEN:
            self.request("DELETE", lock, owner=owner)
            raise Fail("timeout")
        timer = threading.Timer(max(left, 0.001), self.lost, (lock, "the lease ends"))
        timer.daemon = True
        timer.start()
        self.held[lock] = owner, timer
        return None, owner

    def release(self, lock):
        owner, timer = self.held.pop(lock, (None, None))
        if owner is None:
            raise Fail("not held")
        timer.cancel()
        try:
            status, _ = self.request("DELETE", lock, owner=owner)
        except OSError:
            self.leftovers.append((lock, owner))
            raise
        if status != 204:
            raise Fail("not held: it expired")

    def close(self):
        self.service.stdin.close()
        self.service.wait()


serve(OverHttp)
