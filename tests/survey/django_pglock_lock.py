"""django-pglock's `advisory`: an advisory lock of a session of PostgreSQL.

https://django-pglock.readthedocs.io/

The lock lasts as long as Django's connection, and nothing tells its holder that the connection ended.
"""

from harness_client import serve
from serve_survey import SESSION, DjangoLock, django_on


class PgLock(DjangoLock):
    contract = {**SESSION, "forks": True}

    def open(self, endpoints, lease_ms):
        django_on("postgres", endpoints[0], lease_ms / 1000, ["pgactivity", "pglock"])
        import pglock
        from django.db import connection

        self.advisory = pglock.advisory
        connection.ensure_connection()

    def take(self, lock, wait_ms):
        contender = self.advisory(lock, timeout=wait_ms / 1000)
        return contender if contender.acquire() else None


serve(PgLock)
