"""One connection to etcd's JSON gateway, for the locks on etcd of this folder and of ../canaries.

https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/
"""

import base64
import http.client
import json


def coded(text):
    return base64.b64encode(text.encode()).decode()


def decoded(text):
    return base64.b64decode(text).decode()


class Gateway:
    """One connection, and the next server after a failure."""

    def __init__(self, endpoints):
        self.endpoints, self.connection = list(endpoints), None

    def call(self, path, timeout, **fields):
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection(self.endpoints[0], timeout=timeout)
                self.connection.connect()
            self.connection.sock.settimeout(timeout)
            self.connection.request("POST", f"/v3/{path}", json.dumps(fields))
            response = self.connection.getresponse()
            answer = json.loads(response.readline() if path == "lease/keepalive" else response.read())
            if path == "lease/keepalive":
                self.drop()  # its stream has no end
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.drop()
            self.endpoints.append(self.endpoints.pop(0))
            raise error if isinstance(error, TimeoutError) else ConnectionError(error)
        if response.status != 200:
            raise ConnectionError(answer.get("message"))
        return answer.get("result", answer)

    def drop(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
