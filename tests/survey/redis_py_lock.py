"""redis-py's `Lock` of 2.9 and of 2.10: `redis.StrictRedis.lock(name, timeout)`.

The lock is not renewed. Its value on the server is the time at which it expires in 2.9, and a random token in 2.10.
"""

import time

import redis

from harness_client import LibraryLock, serve
from serve_survey import LEASED


class RedisPyLock(LibraryLock):
    contract = {
        **LEASED,
        "renews": False,
        "owner": "server",
        "forks": True,
        "wall_clock": redis.VERSION < (2, 10),
        "keys": "harness:{lock}",
        "value": "string",
    }
    not_held = ValueError  # also the library's LockError of 2.10

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = lease_ms / 1000
        self.redis = redis.StrictRedis(host=host, port=int(port), socket_timeout=self.lease)
        self.redis.ping()

    def take(self, lock, wait_ms):
        # 2.9 has no wait with an end
        deadline = time.monotonic() + wait_ms / 1000
        contender = self.redis.lock(f"harness:{lock}", timeout=self.lease)
        while not contender.acquire(blocking=False):
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.02)
        return contender

    def grant(self, contender):
        token = contender.token if redis.VERSION >= (2, 10) else repr(contender.acquired_until)
        return None, token if isinstance(token, str) else token.decode()


serve(RedisPyLock)
