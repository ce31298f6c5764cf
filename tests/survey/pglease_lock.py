"""pglease's `PGLease`: a row with an owner and an end.

https://github.com/rguiu/pglease

A thread of the library renews the lock, and calls `on_lease_lost`. It tries once, so the client asks again and again.
"""

import math
import os
import time

from pglease import PGLease
from pglease.backends.postgres import PostgresBackend

from harness_client import serve
from serve_survey import LEASED, SurveyLock


class PgLeaseLock(SurveyLock):
    contract = {**LEASED, "forks": True, "wall_clock": True}

    def open(self, endpoints, lease_ms):
        user, password = os.environ.get("PGUSER", "postgres"), os.environ.get("PGPASSWORD")
        login = f"{user}:{password}" if password else user
        database = os.environ.get("PGDATABASE", "postgres")
        self.ttl = math.ceil(lease_ms / 1000)  # whole seconds only
        self.leases = PGLease(
            PostgresBackend(f"postgresql://{login}@{endpoints[0]}/{database}", connect_timeout=2),
            heartbeat_interval=max(1, self.ttl // 3),
            on_lease_lost=self.ended,
        )

    def ended(self, lock):
        if lock in self.held:
            self.lost(lock, "on_lease_lost")

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        while not self.leases.try_acquire(lock, ttl=self.ttl):
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)
        return lock

    def give(self, lock):
        return bool(self.leases.release(lock))

    def close(self):
        self.leases.close()


serve(PgLeaseLock)
