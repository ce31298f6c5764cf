#!/usr/bin/env python3
import os
import secrets
import socket
import ssl
import threading
import time

from harness_client import Fail, Lock, serve

COMPARE_AND_DELETE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
COMPARE_AND_EXTEND = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"


class Redis:
    """One connection; a call that fails or times out closes it, so that no answer is taken for another's."""

    def __init__(self, endpoint, timeout):
        host, port = endpoint.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.settimeout(timeout)
        if "HARNESS_TLS_CA" in os.environ:  # the servers speak TLS
            tls = ssl.create_default_context(cafile=os.environ["HARNESS_TLS_CA"])
            tls.load_cert_chain(os.environ["HARNESS_TLS_CERT"], os.environ["HARNESS_TLS_KEY"])
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.stream = self.socket.makefile("rb")
        if "REDISCLI_AUTH" in os.environ:  # the servers want a login
            self.call("AUTH", os.environ.get("REDIS_USER", "default"), os.environ["REDISCLI_AUTH"])

    def call(self, *words):
        words = [str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"$":
            return None if text == b"-1" else self.stream.read(int(text) + 2)[:-2].decode()
        if kind == b"-":
            raise Fail(text.decode())
        return int(text) if kind == b":" else text.decode()


class MyLock(Lock):
    contract = {"lease": True, "renews": False, "extends": True, "fifo": False, "tries": True, "wakes": "polls",
                "owner": "server", "token": "none", "keys": "harness:{lock}", "value": "string"}  # fmt: skip

    def open(self, endpoints, lease_ms):
        self.endpoint, self.lease = endpoints[0], lease_ms / 1000
        self.redis = None
        self.held = {}  # lock -> (value, timer of the lost signal)
        self.leftovers = []  # (lock, value) of unknown operations
        self.connection()  # `open` fails if there is none

    def connection(self):
        if self.redis is None:
            self.redis = Redis(self.endpoint, self.lease / 3)
        return self.redis

    def call(self, *words):
        try:
            return self.connection().call(*words)
        except OSError:
            self.redis = None
            raise

    def delete(self, lock, value):
        try:
            return self.call("EVAL", COMPARE_AND_DELETE, 1, f"harness:{lock}", value) == 1
        except OSError:
            self.leftovers.append((lock, value))  # it may have happened or not: the answer is `info`
            raise

    def acquire(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        while self.leftovers:
            try:
                self.delete(*self.leftovers.pop())
            except OSError as error:
                raise Fail(f"cleaning up first: {error}")  # the lock was not asked for yet
        value = secrets.token_hex(16)
        while True:
            asked = time.monotonic()
            try:
                taken = self.call("SET", f"harness:{lock}", value, "NX", "PX", int(self.lease * 1000)) == "OK"
            except OSError:
                self.leftovers.append((lock, value))  # the SET may have happened or not: the answer is `info`
                raise
            if taken:
                return self.hold(lock, value, asked)
            if time.monotonic() >= deadline:
                raise Fail("timeout" if wait_ms else "busy")
            time.sleep(0.02)

    def hold(self, lock, value, asked):
        if not self.believe(lock, value, asked):
            self.delete(lock, value)
            raise Fail("timeout")
        return None, value  # the token and the owner

    def believe(self, lock, value, asked):
        # counted from before the request was sent, so that it ends earlier here than on the server
        left = asked + self.lease * 0.85 - time.monotonic()
        if left > 0:
            timer = threading.Timer(left, self.lost, (lock, "lease ends"))
            timer.daemon = True
            timer.start()
            self.held[lock] = value, timer
        return left > 0

    def extend(self, lock):
        value, timer = self.held.get(lock, (None, None))
        if value is None:
            raise Fail("not held")
        asked = time.monotonic()
        if self.call("EVAL", COMPARE_AND_EXTEND, 1, f"harness:{lock}", value, int(self.lease * 1000)) != 1:
            raise Fail("not held: it expired")
        timer.cancel()
        self.believe(lock, value, asked)

    def release(self, lock):
        value, timer = self.held.pop(lock, (None, None))
        if value is None:
            raise Fail("not held")
        timer.cancel()
        if not self.delete(lock, value):
            raise Fail("not held: it expired")


serve(MyLock)
