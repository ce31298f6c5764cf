"""PyMySQLLock's `Locker.lock(name)`: `GET_LOCK` of a session of MariaDB or MySQL.

https://github.com/sanketplus/PyMySQLLock

Each hold has a connection, which a thread of the library pings: ten times in a lease here. Nothing tells its holder that the connection ended.
"""

import time

from PyMySQLLock import Locker

from harness_client import LibraryLock, serve
from serve_survey import SESSION, mariadb_at


class MySqlLock(LibraryLock):
    contract = {**SESSION, "forks": True}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.locker = Locker(**mariadb_at(endpoints[0], self.lease))

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        contender = self.locker.lock(lock)
        while True:
            wait = max(0, min(deadline - time.monotonic(), self.lease / 2))  # shorter than the time limit of a read
            if contender.acquire(timeout=wait, refresh_interval_secs=self.lease / 10):
                return contender
            contender.conn.close()  # the library leaves it open
            if time.monotonic() >= deadline:
                return None


serve(MySqlLock)
