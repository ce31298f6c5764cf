# SET NX PX over a socket, released by a script, with threads that wait.
import random, socket, sys, threading, time, uuid
sys.path.insert(0, sys.argv[1])
from harness_client import Fail, Lock, serve

class Tiny(Lock):
    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.at, self.lease_ms, self.held, self.link = (host, int(port)), lease_ms, {}, None

    def ask(self, *words):
        if self.link is None:
            self.link = socket.create_connection(self.at, timeout=1)
            self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.read = self.link.makefile("rb")
        try:
            text = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            self.link.sendall(f"*{len(words)}\r\n{text}".encode())
            line = self.read.readline()
            if not line.endswith(b"\r\n"):
                raise OSError("the connection ended")
            if line[:1] == b"$" and line[1:2] != b"-":
                line = self.read.readline()
            return line.strip().decode()
        except OSError:
            self.link.close()
            self.link = None
            raise

    def acquire(self, lock, wait_ms):
        value, end = str(uuid.uuid1()), time.monotonic() + wait_ms / 1000
        while True:
            if self.ask("SET", f"harness:{lock}", value, "NX", "PX", str(self.lease_ms)) == "+OK":
                self.held[lock] = value
                return None, value
            if time.monotonic() >= end:
                raise Fail("timeout" if wait_ms else "busy")
            time.sleep(0.01 + random.random() / 50)

    def release(self, lock):
        value = self.held.pop(lock, None)
        script = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
        if value is None or self.ask("EVAL", script, "1", f"harness:{lock}", value) != ":1":
            raise Fail("not held")

serve(Tiny)
