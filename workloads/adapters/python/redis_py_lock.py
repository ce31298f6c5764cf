"""redis-py's `Lock` under harness: `harness run --backend redis --client "python3 redis_py_lock.py"`.

Tried with redis 8.1.0 (`pip install redis`), Redis 7.0.15.

The lock expires with its timeout, and redis-py does not tell its user: no `lost` is raised. It polls, so nothing is
`woken`, and it hands out no token; its random value is the owner. The client keeps its own
retries; it is only given socket timeouts, since a client must answer.
"""

import redis
from redis.exceptions import LockError

from harness_client import Fail, Lock, serve


class RedisPyLock(Lock):
    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = lease_ms / 1000
        self.held = {}
        self.redis = redis.Redis(host=host, port=int(port), socket_timeout=self.lease, socket_connect_timeout=self.lease)
        self.redis.ping()

    def acquire(self, lock, wait_ms):
        contender = self.redis.lock(f"harness:{lock}", timeout=self.lease)
        if not contender.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 or None):
            raise Fail("timeout" if wait_ms else "busy")
        self.held[lock] = contender
        return None, contender.local.token.decode()

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None:
            raise Fail("not held")
        try:
            contender.release()
        except LockError as error:
            raise Fail(f"not held: {error}")

    def close(self):
        self.redis.close()


serve(RedisPyLock)
