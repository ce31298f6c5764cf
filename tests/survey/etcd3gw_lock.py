"""etcd3gw's `Lock`: `Etcd3Client.lock(name, ttl)`, over the JSON gateway of etcd.

https://docs.openstack.org/etcd3gw/latest/

The library does not refresh a lock by itself, and the client does not either. It tries once, so the client asks again and again.
"""

import math

import etcd3gw

from harness_client import serve
from serve_survey import TimedLock


class Etcd3gwLock(TimedLock):
    contract = {**TimedLock.contract, "owner": "server", "forks": True, "keys": "/locks/{lock}", "value": "revision"}

    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.lease = math.ceil(lease_ms / 1000)  # whole seconds only
        self.etcd = etcd3gw.client(host=host, port=int(port), timeout=self.lease)
        self.etcd.status()

    def contender(self, lock):
        return self.etcd.lock(lock, self.lease)

    def attempt(self, contender):
        return contender.acquire()

    def grant(self, contender):
        return None, f"0x{int(contender.lease.id):x}"

    def give(self, contender):
        return bool(contender.release())


serve(Etcd3gwLock)
