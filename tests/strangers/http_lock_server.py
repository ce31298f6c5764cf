"""A small lock service over HTTP: `http_lock_server.py HOST:PORT` keeps its locks in the Redis at that address.

    PUT    /locks/NAME?owner=NAME&ttl_ms=N   200 and how long it is held, 409 if it is taken
    DELETE /locks/NAME?owner=NAME            204, or 404 if this owner does not hold it

503 means that Redis did not answer, so that it is not known what happened. The first line of its output is its own port. It
ends with its standard input.
"""

import http.server
import json
import os
import sys
import threading
import urllib.parse

# where the port is said: the library of clients keeps standard output for its own messages
said = os.fdopen(os.dup(1), "w")

from stranger import COMPARE_AND_DELETE, Redis


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_PUT(self):
        key, asked = self.asked()
        taken = self.redis("SET", key, asked["owner"], "NX", "PX", asked["ttl_ms"])
        if taken is not False:
            self.answer(200 if taken else 409, {"expires_in_ms": int(asked["ttl_ms"])} if taken else {})

    def do_DELETE(self):
        key, asked = self.asked()
        deleted = self.redis("EVAL", COMPARE_AND_DELETE, 1, key, asked["owner"])
        if deleted is not False:
            self.answer(204 if deleted else 404, {})

    def asked(self):
        url = urllib.parse.urlsplit(self.path)
        return "http" + url.path.replace("/", ":"), dict(urllib.parse.parse_qsl(url.query))

    def redis(self, *words):
        """What Redis answers; False if it does not, which was then told to the client."""
        try:
            return self.server.redis.call(*words)
        except OSError as error:
            self.answer(503, {"error": str(error)})
            return False

    def answer(self, status, fields):
        body = b"" if status == 204 else json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *words):
        pass


def leave_with_the_client():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.redis = Redis(sys.argv[1], float(sys.argv[2]))
    threading.Thread(target=leave_with_the_client, daemon=True).start()
    print(service.server_port, file=said, flush=True)
    service.serve_forever()
