"""PALs' `Locker.lock`: an advisory lock of a session of PostgreSQL.

https://github.com/level12/pals

The lock lasts as long as its connection, and nothing tells its holder that the connection ended.
"""

import os

import pals

from harness_client import serve
from serve_survey import SESSION, SurveyLock


class PalsLock(SurveyLock):
    contract = {**SESSION, "forks": True}

    def open(self, endpoints, lease_ms):
        user, password = os.environ.get("PGUSER", "postgres"), os.environ.get("PGPASSWORD")
        login = f"{user}:{password}" if password else user
        database = os.environ.get("PGDATABASE", "postgres")
        self.locker = pals.Locker(
            "harness",
            f"postgresql+psycopg2://{login}@{endpoints[0]}/{database}?connect_timeout={max(2, lease_ms // 1000)}",
        )
        self.locker.engine.connect().close()

    def take(self, lock, wait_ms):
        contender = self.locker.lock(lock, blocking=wait_ms > 0, acquire_timeout=max(1, wait_ms))
        return contender if contender.acquire() else None

    def give(self, contender):
        return bool(contender.release())


serve(PalsLock)
