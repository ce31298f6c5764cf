"""mithril-locks's `Lock`, with its renewal.

https://pypi.org/project/mithril-locks/

A thread of the library renews the lock and keeps its `state`. The fencing token is a counter. An object is for one hold.
"""

import redis
from mithril import Lock, LockState, LockTimeoutError, NotAcquiredError
from mithril.backends import RedisBackend
from mithril.exceptions import LockExpiredError

from harness_client import serve
from serve_survey import WatchedLock, redis_at


class MithrilLock(WatchedLock):
    contract = {
        **WatchedLock.contract,
        "wakes": "unreported",
        "owner": "server",
        "token": "own",
        "forks": True,
        "keys": "lock:{lock}",
        "value": "string",
    }
    not_held = (LockExpiredError, NotAcquiredError)

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.redis = redis.Redis(**redis_at(endpoints[0], 2 * self.lease))  # longer than a wait on the server, of a lease at most
        self.redis.ping()
        self.backend = RedisBackend(self.redis)

    def take(self, lock, wait_ms):
        contender = Lock(
            lock, backend=self.backend, ttl=self.lease, timeout=wait_ms / 1000, auto_renewal=True
        )
        try:
            contender.acquire(blocking=wait_ms > 0)
        except LockTimeoutError:
            if contender.state == LockState.EXPIRED:
                raise  # it was granted too late, and its library does not say whether it gave it back
            return None
        return contender

    def grant(self, contender):
        return contender._token.fencing_token, contender.owner_id

    def holds(self, contender):
        return contender.state != LockState.EXPIRED


serve(MithrilLock)
