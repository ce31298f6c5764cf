"""A lock over HTTP: each client has a lock service beside it (http_lock_server.py), as a sidecar, and asks only that.

--broken: the time that a lock is held for is taken for microseconds, so the client gives each lock up at once (early loss).
"""

import http.client
import json
import pathlib
import subprocess
import sys
import time
import urllib.parse

from stranger import BROKEN, EXPIRES, LeasedLock, serve

SERVER = pathlib.Path(__file__).with_name("http_lock_server.py")


class OverHttp(LeasedLock):
    contract = {**EXPIRES, "tries": True, "keys": "http:locks:{lock}"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.held = {}  # lock -> (name, event that ends its thread)
        self.leftovers = []  # (lock, name) of requests without an answer
        self.connection = None
        command = [sys.executable, str(SERVER), endpoints[0], str(self.lease / 3)]
        self.service = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.service.stdout.readline())
        try:
            self.request("DELETE", "l0", owner="nobody")  # is there a store behind it?
        except OSError:
            self.close()
            raise

    def request(self, method, lock, **query):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.lease / 2)
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

    def take(self, lock, name):
        status, answer = self.request("PUT", lock, owner=name, ttl_ms=self.milliseconds())
        return answer["expires_in_ms"] if status == 200 else None

    def give(self, lock, name):
        return self.request("DELETE", lock, owner=name)[0] == 204

    def count_down(self, lock, name, asked, over):
        if BROKEN:
            asked = time.monotonic() - self.lease * 0.85 + 0.001
        super().count_down(lock, name, asked, over)

    def close(self):
        self.service.stdin.close()
        self.service.wait()


serve(OverHttp)
