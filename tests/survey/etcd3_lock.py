"""etcd3's `Lock`: `Etcd3Client.lock(name, ttl)`.

https://python-etcd3.readthedocs.io/en/latest/usage.html

The library does not refresh a lock by itself, and the client does not either. It waits by itself and does not say when it asked, so the client
counts 60 % of the lease from the answer.
"""

import math
import time

import etcd3

from harness_client import serve
from serve_survey import TimedLock


class Etcd3Lock(TimedLock):
    contract = {
        **TimedLock.contract,
        "wakes": "unreported",
        "owner": "server",
        "keys": "/locks/{lock}",
        "value": "revision",
    }

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.etcd = etcd3.client(host=host, port=int(port), timeout=self.lease)
        self.etcd.status()

    def take(self, lock, wait_ms):
        contender = self.etcd.lock(lock, ttl=self.lease)
        if not contender.acquire(timeout=wait_ms / 1000):
            return None
        self.ends = time.monotonic() + 0.6 * self.lease
        return contender

    def grant(self, contender):
        return None, f"0x{contender.lease.id:x}"

    def give(self, contender):
        return bool(contender.release())


serve(Etcd3Lock)
