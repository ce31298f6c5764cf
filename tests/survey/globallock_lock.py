"""globallock's `GlobalLockManager.lock` on Redis, with its renewal.

https://pypi.org/project/globallock/

A thread of the library renews the lock, and keeps `is_locked`.
"""

import secrets

from globallock import GlobalLockManager

from harness_client import serve
from serve_survey import WatchedLock, redis_at


class GlobalLock(WatchedLock):
    contract = {**WatchedLock.contract, "owner": "server", "forks": True, "keys": "_glocks:{lock}", "value": "string"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.manager = GlobalLockManager(
            {
                "global_lock_engine_options": redis_at(endpoints[0], self.lease / 3),  # a renewal is to fail in time
                "lock_ttl": self.lease,
                "renew_interval": self.lease / 6,
            }
        )
        # a lock of its own, so that `open` fails where no server answers
        self.manager.lock(secrets.token_hex(8)).__enter__().release()

    def take(self, lock, wait_ms):
        contender = self.manager.lock(lock, blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 or None)
        return contender if contender.acquire() else None

    def grant(self, contender):
        return None, contender.lock.local.token.decode()

    def holds(self, contender):
        return contender.is_locked

    def close(self):
        self.manager.close()


serve(GlobalLock)
