"""A bucket of NATS over one connection, without a library, for the locks on NATS of this folder and of ../canaries.

<https://docs.nats.io/reference/reference-protocols/nats_api_reference>
"""

import base64
import json
import secrets
import socket
import threading
import time

# the last message of a key is another one; there is none; one that is to be deleted is gone
OTHER_MESSAGE = {10071, 10164, 10037, 10043, 10057}


class OtherMessage(Exception):
    """Nothing was done: the key has another message, or none."""


class Bucket:
    """One connection, and the next server after a failure. A late answer is taken for no other, since each has an inbox of its own."""

    def __init__(self, endpoints, timeout, name):
        self.endpoints, self.timeout, self.name = list(endpoints), timeout, name
        self.stream = None
        self.turn = threading.Lock()
        self.inbox, self.asked = f"_INBOX.{secrets.token_hex(8)}", 0

    def make(self, age_ms):
        """Makes the bucket on all servers; its keys end at this age, or never at 0. It may be there already."""
        config = {
            "name": f"KV_{self.name}",
            "subjects": [f"$KV.{self.name}.>"],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "max_msgs_per_subject": 1,
            "max_age": age_ms * 1_000_000,
            "num_replicas": len(self.endpoints),
            "allow_rollup_hdrs": True,
        }
        self.ask(f"$JS.API.STREAM.CREATE.KV_{self.name}", json.dumps(config))

    def put(self, key, value, last=None):
        """Writes a key over its message of this revision, 0 for none, or over any; the new revision."""
        expected = {} if last is None else {"Nats_Expected_Last_Subject_Sequence": last}
        return self.ask(f"$KV.{self.name}.{key}", value, **expected)["seq"]

    def last(self, key):
        """The revision and the value of a key; None where it has none."""
        subject = json.dumps({"last_by_subj": f"$KV.{self.name}.{key}"})
        try:
            message = self.ask(f"$JS.API.STREAM.MSG.GET.KV_{self.name}", subject)["message"]
        except OtherMessage:
            return None
        return message["seq"], base64.b64decode(message.get("data", "")).decode()

    def own(self, key, value):
        """The revision of a key that has this value."""
        last = self.last(key)
        return last[0] if last and last[1] == value else None

    def renew(self, key, value):
        """Writes a key again that has this value; returns whether it had."""
        return self.with_own(key, value, lambda last: self.put(key, value, last))

    def remove(self, key, value):
        """Removes a key that has this value; returns whether it had."""
        return self.with_own(key, value, self.delete)

    def delete(self, revision):
        self.ask(f"$JS.API.STREAM.MSG.DELETE.KV_{self.name}", json.dumps({"seq": revision, "no_erase": True}))

    def with_own(self, key, value, change):
        while (last := self.own(key, value)) is not None:
            try:
                change(last)
                return True
            except OtherMessage:
                time.sleep(0.01)  # it was renewed meanwhile
        return False

    def purge(self, key):
        """Removes a key, whatever it has; returns whether it was there."""
        which = json.dumps({"filter": f"$KV.{self.name}.{key}"})
        return self.ask(f"$JS.API.STREAM.PURGE.KV_{self.name}", which)["purged"] > 0

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


def patiently(call, within=10):
    """Calls until it succeeds: at first nobody leads the servers, or the bucket."""
    deadline = time.monotonic() + within
    while True:
        try:
            return call()
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
