"""sqlalchemy-dlock's `create_sadlock`: an advisory lock of a session of PostgreSQL, or with `mariadb` `GET_LOCK` of one of MariaDB.

https://sqlalchemy-dlock.readthedocs.io/

The lock lasts as long as its connection, which is one for each hold here. Nothing tells its holder that the connection ended. A
connection whose call failed is thrown away, since the pool would keep a lock that it has.
"""

import sys
import time

import sqlalchemy
from sqlalchemy_dlock import create_sadlock

from harness_client import serve
from serve_survey import SESSION, SurveyLock, mariadb_at, postgres_at


class SqlalchemyDlock(SurveyLock):
    contract = {**SESSION, "wakes": "polls", "forks": True}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        if "mariadb" in sys.argv:
            self.engine = sqlalchemy.create_engine("mysql+pymysql://", connect_args=mariadb_at(endpoints[0], self.lease))
        else:
            self.engine = sqlalchemy.create_engine("postgresql+psycopg2://", connect_args=postgres_at(endpoints[0], self.lease))
        self.engine.connect().close()

    def wait(self, deadline):
        """What is left, on MariaDB no longer than half of the time limit of a read."""
        left = max(0, deadline - time.monotonic())
        return min(left, self.lease / 2) if "mariadb" in sys.argv else left

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        connection = self.engine.connect()
        try:
            contender = create_sadlock(connection, lock)
            while not contender.acquire(block=wait_ms > 0, timeout=self.wait(deadline), interval=0.1):
                if time.monotonic() >= deadline:
                    break
            else:
                return contender
        except BaseException:
            connection.invalidate()
            raise
        connection.close()
        return None

    def give(self, contender):
        connection = contender.connection_or_session
        try:
            contender.release()
        except BaseException:
            connection.invalidate()
            raise
        connection.close()


serve(SqlalchemyDlock)
