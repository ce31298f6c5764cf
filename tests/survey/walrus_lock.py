"""walrus's `Lock`: `Database.lock(name, ttl)`.

https://walrus.readthedocs.io/en/latest/containers.html#walrus.Lock

The lock is not renewed. The library can wait without an end or not at all, so the client asks again and again.
"""

import secrets

import walrus

from harness_client import serve
from serve_survey import TimedLock, redis_at


class WalrusLock(TimedLock):
    contract = {**TimedLock.contract, "owner": "server", "forks": True, "keys": "lock:{lock}", "value": "string"}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.database = walrus.Database(**redis_at(endpoints[0], self.lease))
        self.database.ping()

    def contender(self, lock):
        return self.database.lock(lock, ttl=int(self.lease * 1000), lock_id=secrets.token_hex(16))

    def attempt(self, contender):
        return contender.acquire(block=False)

    def grant(self, contender):
        return None, contender._lock_id

    def give(self, contender):
        return bool(contender.release())


serve(WalrusLock)
