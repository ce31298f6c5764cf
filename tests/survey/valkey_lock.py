"""valkey-py's `Lock`: `Valkey.lock(name, timeout)`.

https://valkey-py.readthedocs.io/en/latest/lock.html

The lock is not renewed.
"""

import valkey
from valkey.exceptions import LockError

from harness_client import serve
from serve_survey import TimedLock, redis_at


class ValkeyLock(TimedLock):
    contract = {**TimedLock.contract, "owner": "server", "forks": True, "keys": "harness:{lock}", "value": "string"}
    not_held = LockError

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.valkey = valkey.Valkey(**redis_at(endpoints[0], self.lease))
        self.valkey.ping()

    def contender(self, lock):
        return self.valkey.lock(f"harness:{lock}", timeout=self.lease)

    def grant(self, contender):
        return None, contender.local.token.decode()

    def close(self):
        self.valkey.close()


serve(ValkeyLock)
