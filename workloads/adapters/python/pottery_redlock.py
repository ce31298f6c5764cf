"""pottery's `Redlock` under harness, on one master or several (`--nodes 3`).

https://github.com/brainix/pottery

The lock is not renewed: users call `extend`, which this client does not. `locked()` says what is left, and nothing tells the
holder that it ended, so no `lost` is raised.
"""

import redis
from pottery import ReleaseUnlockedLock, Redlock

from harness_client import LibraryLock, ping_most, serve


class PotteryRedlock(LibraryLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "wakes": "polls",
        "owner": "none",
        "token": "none",
        "forks": True,
        "keys": "redlock:{lock}",
        "value": "string",
    }
    not_held = ReleaseUnlockedLock

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.masters = set()
        for endpoint in endpoints:
            host, port = endpoint.rsplit(":", 1)
            self.masters.add(
                redis.Redis(host=host, port=int(port), socket_timeout=self.lease / 2, socket_connect_timeout=self.lease / 2)
            )
        ping_most(self.masters)

    def take(self, lock, wait_ms):
        contender = Redlock(key=lock, masters=self.masters, auto_release_time=self.lease, raise_on_redis_errors=False)
        held = contender.acquire(timeout=wait_ms / 1000) if wait_ms else contender.acquire(blocking=False)
        return contender if held else None

    def close(self):
        for master in self.masters:
            master.close()


serve(PotteryRedlock)
