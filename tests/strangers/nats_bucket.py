"""A lock in a bucket of NATS that has other keys, too, without a library: a key with the name of its holder and a number, `5eed 3`.

The bucket's age is the lease. <https://docs.nats.io/reference/reference-protocols/nats_api_reference>

--broken: half a second after a release the key is purged once more, to be sure, and whoever has it by then (late release).
"""

import base64
import json
import secrets
import socket
import threading
import time

from stranger import BROKEN, RedisLock, serve

# the last message of a key is another one; there is none; one that is to be deleted is gone
OTHER_MESSAGE = {10071, 10164, 10037, 10043, 10057}


class OtherMessage(Exception):
    """Nothing was done: the key has another message, or none."""


class Nats:
    """One connection, and the next server after a failure. A late answer is taken for no other, since each has an inbox of its own."""

    def __init__(self, endpoints, timeout):
        self.endpoints, self.timeout = list(endpoints), timeout
        self.stream = None
        self.turn = threading.Lock()
        self.inbox, self.asked = f"_INBOX.{secrets.token_hex(8)}", 0

    def ask(self, subject, payload="", **headers):
        """The answer of JetStream."""
        with self.turn:
            try:
                status, answer = self.exchange(subject, payload.encode(), headers)
            except (OSError, ValueError) as error:
                self.close()
                self.endpoints.append(self.endpoints.pop(0))
                raise ConnectionError(f"{type(error).__name__}: {error}")
        error = answer.get("error", {})
        if error.get("err_code") in OTHER_MESSAGE:
            raise OtherMessage(error.get("description"))
        if status or error:
            raise ConnectionError(status or error.get("description"))
        return answer

    def connect(self):
        host, port = self.endpoints[0].rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=self.timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")
        options = json.dumps({"verbose": False, "headers": True, "no_responders": True})
        self.socket.sendall(f"CONNECT {options}\r\nSUB {self.inbox}.* 1\r\n".encode())

    def exchange(self, subject, payload, headers):
        """The status in the headers of an answer, and what it says."""
        if self.stream is None:
            self.connect()
        self.asked += 1
        inbox = f"{self.inbox}.{self.asked}"
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""
        verb, lengths = ("HPUB", f"{len(head)} ") if head else ("PUB", "")
        line = f"{verb} {subject} {inbox} {lengths}{len(head) + len(payload)}\r\n"
        self.socket.sendall(line.encode() + head + payload + b"\r\n")
        while True:
            answered, status, body = self.message()
            if answered == inbox:
                return status, json.loads(body) if body else {}

    def message(self):
        """The next message: its subject, its headers, and what it says."""
        while True:
            line = self.stream.readline()
            if not line.endswith(b"\r\n"):
                raise ConnectionError("the server closed the connection")
            verb, *words = line.decode().split()
            if verb == "PING":
                self.socket.sendall(b"PONG\r\n")
            elif verb == "-ERR":
                raise ConnectionError(" ".join(words))
            elif verb in ("MSG", "HMSG"):
                headers, length = int(words[-2]) if verb == "HMSG" else 0, int(words[-1])
                body = self.stream.read(length + 2)[:length]
                return words[0], body[:headers].decode().strip(), body[headers:].decode()

    def close(self):
        if self.stream is not None:
            self.stream.close()
            self.socket.close()
            self.stream = None


class NatsBucket(RedisLock):
    contract = {
        "lease": True,
        "renews": True,
        "wakes": "polls",
        "tries": True,
        "owner": "server",
        "token": "server",
        "keys": "jobs/locks.{lock}",
    }

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.nats = Nats(endpoints, self.lease / 3)
        self.renewals = Nats(endpoints, self.lease / 3)  # so that a renewal does not wait for another call
        self.held = {}  # lock -> (name, event that ends its thread)
        self.leftovers = []  # (lock, name) of operations whose outcome is unknown
        config = {
            "name": "KV_jobs",
            "subjects": ["$KV.jobs.>"],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "max_msgs_per_subject": 1,
            "max_age": lease_ms * 1_000_000,
            "num_replicas": len(endpoints),
            "allow_rollup_hdrs": True,
        }
        deadline = time.monotonic() + 10
        while True:
            try:
                self.nats.ask("$JS.API.STREAM.CREATE.KV_jobs", json.dumps(config))
                self.nats.ask(f"$KV.jobs.clients.c{self.client}", "open")
                break
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)  # nobody leads it yet

    def value(self, name):
        return f"{name} {self.client}"

    def write(self, nats, lock, name, last):
        expected = {"Nats_Expected_Last_Subject_Sequence": last}
        return nats.ask(f"$KV.jobs.locks.{lock}", self.value(name), **expected)["seq"]

    def own(self, nats, lock, name):
        """The revision of the last message of a lock, if it has this name."""
        try:
            found = nats.ask("$JS.API.STREAM.MSG.GET.KV_jobs", json.dumps({"last_by_subj": f"$KV.jobs.locks.{lock}"}))
        except OtherMessage:
            return None
        message = found["message"]
        is_own = base64.b64decode(message.get("data", "")).decode() == self.value(name)
        return message["seq"] if is_own else None

    def take(self, lock, name):
        try:
            return self.write(self.nats, lock, name, 0)
        except OtherMessage:
            return None

    def granted(self, lock, name, grant):
        return grant, self.value(name)

    def extend(self, lock, name):
        while (last := self.own(self.renewals, lock, name)) is not None:
            try:
                self.write(self.renewals, lock, name, last)
                return True
            except OtherMessage:
                time.sleep(0.01)  # an earlier renewal was late
        return False

    def give(self, lock, name):
        if BROKEN:
            purge = "$JS.API.STREAM.PURGE.KV_jobs", json.dumps({"filter": f"$KV.jobs.locks.{lock}"})
            threading.Timer(0.5, self.nats.ask, purge).start()
        while (last := self.own(self.nats, lock, name)) is not None:
            try:
                self.nats.ask("$JS.API.STREAM.MSG.DELETE.KV_jobs", json.dumps({"seq": last, "no_erase": True}))
                return True
            except OtherMessage:
                time.sleep(0.01)  # it was renewed meanwhile
        return False

    def close(self):
        self.nats.close()
        self.renewals.close()


serve(NatsBucket)
