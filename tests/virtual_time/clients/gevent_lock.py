"""SET NX PX over a socket of gevent's, with a greenlet for each request."""
import json, random, sys, time, uuid

from gevent import monkey

monkey.patch_all()
import gevent
from gevent import socket
from gevent.fileobject import FileObject

RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


class Refused(Exception):
    pass


class Client:
    link = None

    def ask(self, *words):
        try:
            with gevent.Timeout(1, OSError("no answer")):
                if self.link is None:
                    self.link = socket.create_connection(self.at)
                    self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.read = self.link.makefile("rb")
                text = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
                self.link.sendall(f"*{len(words)}\r\n{text}".encode())
                line = self.read.readline()
                if not line.endswith(b"\r\n"):
                    raise OSError("the connection ended")
                return line.strip().decode()
        except OSError:
            if self.link is not None:
                self.link.close()
            self.link = None
            raise

    def perform(self, request):
        op, lock = request["op"], f"harness:{request.get('lock')}"
        if op == "open":
            host, port = request["endpoints"][0].rsplit(":", 1)
            self.at, self.lease, self.held = (host, int(port)), str(request["lease_ms"]), {}
        elif op == "acquire":
            value, ends = str(uuid.uuid4()), time.monotonic() + request["wait_ms"] / 1000
            while self.ask("SET", lock, value, "NX", "PX", self.lease) != "+OK":
                if time.monotonic() >= ends:
                    raise Refused("timeout")
                gevent.sleep(0.01 + random.random() / 50)
            self.held[lock] = value
            return {"owner": value}
        elif op == "release":
            if self.ask("EVAL", RELEASE, "1", lock, self.held.pop(lock, "")) != ":1":
                raise Refused("not held")
        return {}


clients = {}


def answer(request):
    try:
        told = {"type": "ok", **clients.setdefault(request["client"], Client()).perform(request)}
    except Refused as error:
        told = {"type": "fail", "error": str(error)}
    except OSError as error:
        told = {"type": "info", "error": str(error)}
    print(json.dumps({"id": request["id"], **told}), flush=True)


for line in FileObject(sys.stdin.buffer, "rb"):
    gevent.spawn(answer, json.loads(line))
