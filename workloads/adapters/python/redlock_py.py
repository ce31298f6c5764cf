"""redlock-py's `Redlock` under harness, on one master or several (`--nodes 3`).

https://github.com/SPSCommerce/redlock-py

The library tells how long a lock is valid; a timer raises `lost` at the end of that time, as its documentation asks of an
application. It cannot renew.
"""

import threading
import time

import redis
from redlock import MultipleRedlockException, Redlock

from harness_client import Fail, Lock, ping_most, serve


class RedlockPy(Lock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "wakes": "polls",
        "owner": "server",
        "token": "none",
        "forks": True,
        "wall_clock": True,
        "keys": "harness:{lock}",
        "value": "string",
    }

    def open(self, endpoints, lease_ms):
        self.lease_ms = lease_ms
        self.held = {}
        timeout = lease_ms / 2000
        addresses = [endpoint.rsplit(":", 1) for endpoint in endpoints]
        servers = [
            redis.StrictRedis(host=host, port=int(port), socket_timeout=timeout, socket_connect_timeout=timeout)
            for host, port in addresses
        ]
        ping_most(servers)
        self.redlock = Redlock(servers, retry_count=1, retry_delay=0.02)

    def acquire(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        while not (grant := self.redlock.lock(f"harness:{lock}", self.lease_ms)):
            if time.monotonic() >= deadline:
                raise Fail("timeout" if wait_ms else "busy")
        timer = threading.Timer(grant.validity / 1000, self.lost, (lock, "its validity ended"))
        timer.daemon = True
        timer.start()
        self.held[lock] = grant, timer
        return None, grant.key.decode()

    def release(self, lock):
        grant, timer = self.held.pop(lock, (None, None))
        if grant is None:
            raise Fail("not held")
        timer.cancel()
        try:
            self.redlock.unlock(grant)  # answers nothing, also where the lock was gone
        except MultipleRedlockException as error:
            raise ConnectionError(error)

    def close(self):
        pass


serve(RedlockPy)
