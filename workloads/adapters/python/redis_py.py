"""redis-py's `Lock` under harness: `redis_py.py once`, `renewed`, `reacquired`, `extended` or `no-timeout`.

https://redis.readthedocs.io/en/stable/lock.html

The lock expires with its timeout, and redis-py does not tell its user: `once` raises no `lost`. `renewed` extends the lock
in a thread, as users of redis-py do, and raises `lost` when a renewal is refused or none is answered for two thirds of the
lease. `reacquired` and `extended` leave it to the application to extend the lock, by the methods `reacquire` and `extend`;
`no-timeout` is `reacquired` of a lock without a timeout (`timeout=0`). It polls, so nothing is `woken`, and it hands out no token; its random value is the owner. The client keeps the retries
of the library; it is only given socket timeouts, since a client must answer.
"""

import sys
import threading
import time

import redis
from redis.exceptions import LockError, RedisError

from harness_client import LibraryLock, serve


class RedisPyLock(LibraryLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "forks": True,
        "keys": "harness:{lock}",
    }
    not_held = LockError
    timeout = None  # the lease

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = lease_ms / 1000
        self.redis = redis.Redis(host=host, port=int(port), socket_timeout=self.lease, socket_connect_timeout=self.lease)
        self.redis.ping()

    def take(self, lock, wait_ms):
        # a lock that is extended by another thread keeps its value where that thread sees it
        timeout = self.lease if self.timeout is None else self.timeout
        contender = self.redis.lock(f"harness:{lock}", timeout=timeout, thread_local=False)
        return contender if contender.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 or None) else None

    def grant(self, contender):
        return None, contender.local.token.decode()

    def close(self):
        self.redis.close()


class RedisPyRenewedLock(RedisPyLock):
    contract = {**RedisPyLock.contract, "renews": True}

    def acquire(self, lock, wait_ms):
        grant = super().acquire(lock, wait_ms)
        contender = self.held[lock]
        threading.Thread(target=self.renew, args=(lock, contender), daemon=True).start()
        return grant

    def renew(self, lock, contender):
        """Renews until the lock is released; a timer doubts it where no renewal was answered for two thirds of the lease."""
        timer = None
        asked = time.monotonic()
        while self.held.get(lock) is contender:
            if timer:
                timer.cancel()
            left = max(0, asked + self.lease * 2 / 3 - time.monotonic())
            timer = threading.Timer(left, self.doubt, (lock, contender, "it was not renewed in time"))
            timer.daemon = True
            timer.start()
            time.sleep(self.lease / 6)
            try:
                before = time.monotonic()
                contender.reacquire()
                asked = before
            except LockError as error:
                self.doubt(lock, contender, str(error))
                break
            except RedisError:
                pass  # it is tried again, and the timer runs
        timer.cancel()

    def doubt(self, lock, contender, cause):
        if self.held.get(lock) is contender:
            self.lost(lock, cause)


class RedisPyReacquiredLock(RedisPyLock):
    contract = {**RedisPyLock.contract, "extends": True}

    def lengthen(self, contender):
        contender.reacquire()


class RedisPyExtendedLock(RedisPyReacquiredLock):
    def lengthen(self, contender):
        contender.extend(self.lease, replace_ttl=True)


class RedisPyLastingLock(RedisPyReacquiredLock):
    contract = {**RedisPyReacquiredLock.contract, "lease": False}
    timeout = 0


KINDS = {
    "once": RedisPyLock,
    "renewed": RedisPyRenewedLock,
    "reacquired": RedisPyReacquiredLock,
    "extended": RedisPyExtendedLock,
    "no-timeout": RedisPyLastingLock,
}
serve(KINDS[sys.argv[1]])
