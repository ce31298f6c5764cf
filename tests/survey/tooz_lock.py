"""tooz's `get_lock(name)` under harness: `tooz_lock.py redis`, `zookeeper` or `mysql`.

https://docs.openstack.org/tooz/latest/user/tutorial/lock.html

On Redis a thread of the library sends heartbeats, which renew the lock. The application asks `is_still_owner` where the driver has it, and takes a
lock for lost when a question is not answered for a third of the lease.
"""

import math
import secrets
import sys
import threading

import tenacity
from tooz import coordination

from harness_client import serve
from serve_survey import SESSION, WatchedLock, mariadb_at, redis_at

DRIVER = sys.argv[1]
NOT_TAKEN = tenacity.RetryError
if DRIVER == "redis":
    import redis
if DRIVER == "zookeeper":
    from kazoo.exceptions import LockTimeout as NOT_TAKEN
CONTRACTS = {
    "redis": {**WatchedLock.contract, "owner": "server", "keys": "_tooz_{lock}_lock", "value": "string"},
    "zookeeper": {
        **WatchedLock.contract,
        "wakes": "unreported",
        "owner": "server",
        "keys": "/tooz/locks/{lock}",
        "value": "sequential",
    },
    "mysql": SESSION,
}


class ToozLock(WatchedLock):
    contract = {**CONTRACTS[DRIVER], "forks": True}

    def open(self, endpoints, lease_ms):
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        if DRIVER == "redis":  # the library's own start asks for longer than an `open` may take
            redis.Redis(**redis_at(endpoints[0], self.lease)).ping()
        self.coordinator = coordination.get_coordinator(self.url(endpoints), secrets.token_hex(8).encode())
        self.coordinator.start(start_heart=DRIVER == "redis")

    def url(self, endpoints):
        if DRIVER == "redis":
            limits = f"socket_timeout={self.lease}&socket_connect_timeout={self.lease}"
            return f"redis://{endpoints[0]}?timeout={self.lease}&{limits}"
        if DRIVER == "zookeeper":
            return f"zookeeper://{','.join(endpoints)}?timeout={self.lease}"
        at = mariadb_at(endpoints[0], self.lease)
        return f"mysql://{at['user']}:{at['password']}@{endpoints[0]}/{at['database'] or ''}"

    def take(self, lock, wait_ms):
        contender = self.coordinator.get_lock(lock.encode())
        try:
            return contender if contender.acquire(blocking=wait_ms / 1000 or False) else None
        except NOT_TAKEN:
            return None

    def grant(self, contender):
        if DRIVER == "redis":
            return None, contender._lock.local.token.decode()
        if DRIVER == "zookeeper":
            return None, f"0x{self.coordinator._coord.client_id[0] & 0xFFFFFFFFFFFFFFFF:x}"
        return None, None

    def holds(self, contender):
        if DRIVER == "mysql":
            return contender.acquired
        answers = []
        asking = threading.Thread(target=lambda: answers.append(contender.is_still_owner()), daemon=True)
        asking.start()
        asking.join(self.lease / 3)
        return answers == [True]

    def give(self, contender):
        return bool(contender.release())

    def close(self):
        self.coordinator.stop()


serve(ToozLock)
