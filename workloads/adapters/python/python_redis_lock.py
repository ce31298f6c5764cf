"""python-redis-lock's `Lock` under harness, with its automatic renewal.

https://python-redis-lock.readthedocs.io/

The lock is renewed by a thread of the library, which ends silently when it finds the lock gone: no `lost` is raised. Waiters
block on a list, which the release fills and the end of a lease does not: a wait is made of waits of a lease, which is the
longest that the library takes from an application that does not renew.
"""

import math
import secrets
import time

import redis
import redis_lock

from harness_client import LibraryLock, serve


class PythonRedisLock(LibraryLock):
    contract = {
        "lease": True,
        "renews": True,
        "tries": True,
        "owner": "server",
        "token": "none",
        "forks": True,
        "keys": "lock:{lock}",
        "value": "string",
    }
    not_held = redis_lock.NotAcquired

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.redis = redis.StrictRedis(host=host, port=int(port), socket_connect_timeout=self.lease)
        self.redis.ping()

    def take(self, lock, wait_ms):
        owner = secrets.token_hex(8)
        contender = redis_lock.Lock(self.redis, lock, expire=self.lease, id=owner, auto_renewal=True)
        if not wait_ms:
            return contender if contender.acquire(blocking=False) else None
        until = time.monotonic() + wait_ms / 1000
        while (left := until - time.monotonic()) > 0:
            if contender.acquire(timeout=min(self.lease, math.ceil(left))):
                return contender
        return None

    def grant(self, contender):
        return None, contender.id

    def close(self):
        self.redis.close()


serve(PythonRedisLock)
