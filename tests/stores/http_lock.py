"""A lock on the lock service over HTTP (lock_service.rs).

--broken: the holder goes on after its lease has run out.
"""

import http.client
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "strangers"))

from stranger import BROKEN, RedisLock, serve  # noqa: E402


class HttpLock(RedisLock):
    contract = {"lease": True, "renews": False, "tries": True, "wakes": "polls", "owner": "server", "token": "server"}

    def open(self, endpoints, lease_ms):
        self.address, self.lease = endpoints[0], lease_ms / 1000
        self.connection = None
        self.held, self.leftovers = {}, []
        self.request("GET", "/role")

    def request(self, method, target):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.address, timeout=self.lease / 2)
        try:
            self.connection.request(method, target)
            response = self.connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionError(str(error))

    def take(self, lock, name):
        status, body = self.request("PUT", f"/locks/{lock}?owner={name}&ttl_ms={self.milliseconds()}")
        return json.loads(body)["token"] if status == 200 else None

    def give(self, lock, name):
        return self.request("DELETE", f"/locks/{lock}?owner={name}")[0] == 204

    def granted(self, lock, name, grant):
        return grant, name

    def doubt(self, lock, cause):
        if not BROKEN:
            self.lost(lock, cause)

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


serve(HttpLock)
