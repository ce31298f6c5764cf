"""sqlalchemy-dlock's `create_sadlock`: an advisory lock of a session of PostgreSQL.

https://sqlalchemy-dlock.readthedocs.io/

The lock lasts as long as its connection, which is one for each hold here. Nothing tells its holder that the connection ended. A
connection whose call failed is thrown away, since the pool would keep a lock that it has.
"""

import os

import sqlalchemy
from sqlalchemy_dlock import create_sadlock

from harness_client import Fail, LibraryLock, serve


class SqlalchemyDlock(LibraryLock):
    contract = {
        "lease": False,
        "renews": True,
        "tries": True,
        "wakes": "polls",
        "owner": "none",
        "token": "none",
        "forks": True,
        "value": "none",
    }

    def open(self, endpoints, lease_ms):
        user, password = os.environ.get("PGUSER", "postgres"), os.environ.get("PGPASSWORD")
        login = f"{user}:{password}" if password else user
        database = os.environ.get("PGDATABASE", "postgres")
        url = f"postgresql+psycopg2://{login}@{endpoints[0]}/{database}?connect_timeout={max(2, lease_ms // 1000)}"
        self.engine = sqlalchemy.create_engine(url)
        self.engine.connect().close()

    def take(self, lock, wait_ms):
        connection = self.engine.connect()
        try:
            contender = create_sadlock(connection, lock)
            if contender.acquire(block=wait_ms > 0, timeout=wait_ms / 1000, interval=0.1):
                return contender
        except BaseException:
            connection.invalidate()
            raise
        connection.close()
        return None

    def release(self, lock):
        contender = self.held.pop(lock, None)
        if contender is None:
            raise Fail("not held")
        connection = contender.connection_or_session
        try:
            contender.release()
        except BaseException:
            connection.invalidate()
            raise
        connection.close()


serve(SqlalchemyDlock)
