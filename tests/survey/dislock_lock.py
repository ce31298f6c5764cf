"""dislock's `LeaseLock`: a row with its owner and its end.

https://pypi.org/project/dislock/

A thread of the library renews the lock, and sets the event `lease_lost`. It tries once, so the client asks again and again. Each hold has an
owner of its own.
"""

import secrets
import time

import psycopg
from dislock import LeaseLock, LeaseLostError, LockContext, LockNotAcquiredError

from harness_client import serve
from serve_survey import WatchedLock, postgres_at

TABLE = "CREATE TABLE IF NOT EXISTS key_value (key text PRIMARY KEY, value text NOT NULL, expire_at timestamptz NOT NULL)"


class DisLock(WatchedLock):
    contract = {**WatchedLock.contract, "forks": True}
    not_held = LeaseLostError

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.url = psycopg.conninfo.make_conninfo(**postgres_at(endpoints[0], self.lease))
        try:
            with psycopg.connect(self.url) as connection:
                connection.execute(TABLE)
        except psycopg.errors.UniqueViolation:
            pass  # another client made the table in this moment

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            contender = LeaseLock(
                LockContext(
                    url=self.url,
                    table_parts=["key_value"],
                    lock_key=lock,
                    owner=secrets.token_hex(8),
                    run_ttl_seconds=self.lease,
                    lease_interval_seconds=self.lease * 0.3,
                )
            )
            try:
                return contender.__enter__()
            except LockNotAcquiredError:
                if time.monotonic() >= deadline:
                    return None
            time.sleep(0.05)

    def holds(self, contender):
        return not contender.lease_lost.is_set()

    def give(self, contender):
        contender.__exit__(None, None, None)


serve(DisLock)
