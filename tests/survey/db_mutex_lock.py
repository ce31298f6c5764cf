"""django-db-mutex's `db_mutex(lock_id)` under harness: `db_mutex_lock.py postgres` or `mariadb`.

https://django-db-mutex.readthedocs.io/

The lock is a row with the time at which it was made, and is not renewed. Times are those of the clients. The library tries once, so the client
asks again and again.
"""

import sys

from harness_client import serve
from serve_survey import DjangoLock, TimedLock, django_on, make_table


class DbMutex(DjangoLock, TimedLock):
    contract = {**TimedLock.contract, "wall_clock": True, "forks": True}

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        django_on(sys.argv[1], endpoints[0], self.lease, ["db_mutex"], DB_MUTEX_TTL_SECONDS=self.lease)
        from db_mutex import exceptions
        from db_mutex.db_mutex import db_mutex
        from db_mutex.models import DBMutex

        self.mutex, self.errors, self.not_held = db_mutex, exceptions, exceptions.DBMutexTimeoutError
        make_table(DBMutex)

    def contender(self, lock):
        return self.mutex(lock)

    def attempt(self, contender):
        try:
            contender.start()
            return True
        except self.errors.DBMutexError:
            return False

    def give(self, contender):
        contender.stop()


serve(DbMutex)
