"""postgres-mutex's `Mutex`: a row with its owner and its last heartbeat.

https://pypi.org/project/postgres-mutex/

A thread of the library sends heartbeats and keeps `held`. `stale_threshold` is the lease.
"""

import psycopg
from postgres_mutex import LockAcquisitionTimeout, LockNotHeldError, Mutex

from harness_client import serve
from serve_survey import WatchedLock, postgres_at


class PostgresMutex(WatchedLock):
    contract = {**WatchedLock.contract, "forks": True}
    not_held = LockNotHeldError

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.dsn = psycopg.conninfo.make_conninfo(**postgres_at(endpoints[0], self.lease))
        self.mutexes = {}
        try:
            self.mutex("harness").create_schema()
        except psycopg.errors.UniqueViolation:
            pass  # another client made the table in this moment

    def mutex(self, lock):
        if lock not in self.mutexes:
            self.mutexes[lock] = Mutex(
                self.dsn,
                lock,
                heartbeat_interval=self.lease / 6,
                alert_threshold=self.lease / 2,
                stale_threshold=self.lease,
                poll_interval=0.05,
            )
        return self.mutexes[lock]

    def take(self, lock, wait_ms):
        mutex = self.mutex(lock)
        contender = mutex.acquire(blocking=wait_ms > 0, timeout=wait_ms / 1000)
        try:
            return (mutex, contender) if contender.__enter__() else None
        except LockAcquisitionTimeout:
            return None

    def holds(self, hold):
        return hold[0].held

    def give(self, hold):
        hold[1].__exit__(None, None, None)

    def close(self):
        for mutex in self.mutexes.values():
            mutex.close()


serve(PostgresMutex)
