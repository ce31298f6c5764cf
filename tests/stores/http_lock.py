"""A lock on the lock service over HTTP (lock_service.rs)."""

import http.client
import json

from leased import Leased, serve


class HttpLock(Leased):
    contract = {"lease": True, "renews": False, "tries": True, "wakes": "polls", "owner": "server", "token": "server"}

    def begin(self):
        self.request("GET", "/role")

    def request(self, method, target):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.endpoint, timeout=self.lease / 2)
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


serve(HttpLock)
