"""django-pglocks's `advisory_lock`, which is django-pgware's: an advisory lock of a session of PostgreSQL.

https://github.com/Xof/django-pglocks

The lock lasts as long as Django's connection, and nothing tells its holder that the connection ended. The library can wait without an end
or not at all, so the client asks again and again.
"""

import time

from django_pglocks import advisory_lock

from harness_client import serve
from serve_survey import SESSION, DjangoLock, django_on


class Hold:
    def __init__(self, lock):
        self.context = advisory_lock(lock, wait=False)
        self.taken = self.context.__enter__()

    def release(self):
        self.context.__exit__(None, None, None)


class PgLocks(DjangoLock):
    contract = {**SESSION, "wakes": "polls", "forks": True}

    def open(self, endpoints, lease_ms):
        django_on("postgres", endpoints[0], lease_ms / 1000)
        from django.db import connection

        connection.ensure_connection()

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            hold = Hold(lock)
            if hold.taken:
                return hold
            hold.release()
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)


serve(PgLocks)
