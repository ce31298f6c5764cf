"""What clients of this folder share: contracts, where the servers are, a lock that ends by the holder's own clock, and the event loop of
libraries of asyncio."""

import asyncio
import contextlib
import os
import threading
import time

from harness_client import Fail, LibraryLock

# of a lock that lasts as long as its connection, and of which the observer sees nothing
SESSION = {
    "lease": False,
    "renews": True,
    "tries": True,
    "wakes": "unreported",
    "owner": "none",
    "token": "none",
    "value": "none",
}

# of a lock with a lease that its library renews, whose waiters ask again and again, and of which the observer sees nothing
LEASED = {**SESSION, "lease": True, "wakes": "polls"}


def redis_at(endpoint, limit):
    """The options of redis-py for a server that is waited for no longer than `limit` seconds."""
    host, port = endpoint.rsplit(":", 1)
    return {"host": host, "port": int(port), "socket_timeout": limit, "socket_connect_timeout": limit}


def redis_url(endpoint, limit):
    """The same as a URL."""
    return f"redis://{endpoint}/0?socket_timeout={limit}&socket_connect_timeout={limit}"


def postgres_at(endpoint, limit):
    """The options of libpq for a server to which a connection is made within `limit` seconds, at least 2."""
    host, port = endpoint.rsplit(":", 1)
    return {
        "host": host,
        "port": int(port),
        "user": os.environ.get("PGUSER", "postgres"),
        "password": os.environ.get("PGPASSWORD", ""),
        "dbname": os.environ.get("PGDATABASE", "postgres"),
        "connect_timeout": max(2, int(limit)),
    }


def mariadb_at(endpoint, limit):
    """The options of PyMySQL for a server that is waited for no longer than `limit` seconds."""
    host, port = endpoint.rsplit(":", 1)
    return {
        "host": host,
        "port": int(port),
        "user": os.environ.get("MYSQL_USER", "root"),
        "password": os.environ.get("MYSQL_PWD", ""),
        "database": os.environ.get("MYSQL_DATABASE"),
        "connect_timeout": limit,
        "read_timeout": limit,
        "write_timeout": limit,
    }


def django_on(server, endpoint, limit, apps=(), **settings):
    """Sets up Django with a default database of `postgres` or `mariadb`, whose connection stays open between two requests."""
    import django
    from django.conf import settings as django_settings

    if server == "mariadb":
        import pymysql

        pymysql.install_as_MySQLdb()
        options = mariadb_at(endpoint, limit)
        name, engine = options.pop("database") or "survey", "mysql"
        with pymysql.connect(**options) as connection:
            connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS {name}")
    else:
        options = postgres_at(endpoint, limit)
        name, engine = options.pop("dbname"), "postgresql"
    database = {"ENGINE": f"django.db.backends.{engine}", "NAME": name, "CONN_MAX_AGE": None}
    database.update({key.upper(): options.pop(key) for key in ("user", "password", "host", "port")}, OPTIONS=options)
    django_settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=list(apps),
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        **settings,
    )
    django.setup()


def make_table(model):
    """Makes the table of a model of Django, where no other client did."""
    from django.db import connection, utils

    with contextlib.suppress(utils.DatabaseError):  # another client made it
        with connection.schema_editor() as editor:
            editor.create_model(model)
    model.objects.exists()


class SurveyLock(LibraryLock):
    """A lock of a library that is given back in another way than by `contender.release()`, or that says whether it was held."""

    def give(self, contender):
        """Gives the lock back; returns False where the library says that it was not held (any more)."""
        contender.release()

    def release(self, lock):
        contender = self.held.pop(lock, None)
        try:
            if contender is None or self.give(contender) is False:
                raise Fail("not held")
        except self.not_held as error:
            raise Fail(f"not held: {error}")


class DjangoLock(SurveyLock):
    """A lock on Django's default database. Each turn is a request of Django, before and after which a connection that broke is closed."""

    def request(self):
        from django.db import close_old_connections

        close_old_connections()

    def acquire(self, lock, wait_ms):
        self.request()
        try:
            return super().acquire(lock, wait_ms)
        except BaseException:
            self.request()
            raise

    def release(self, lock):
        try:
            super().release(lock)
        finally:
            self.request()


class TimedLock(SurveyLock):
    """A lock that is not renewed, of a library that does not tell its end.

    The application looks at its clock: `lost` is raised when 85 % of the lease are over, counted from before the request.
    """

    contract = {**LEASED, "renews": False}

    def contender(self, lock):
        """A new object that asks for the lock."""

    def attempt(self, contender):
        """Asks once, and says whether the lock was taken."""
        return contender.acquire(blocking=False)

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        contender = self.contender(lock)
        while True:
            self.ends = time.monotonic() + self.lease * 0.85
            if self.attempt(contender):
                return contender
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.02)

    def acquire(self, lock, wait_ms):
        grant = super().acquire(lock, wait_ms)
        timer = threading.Timer(max(0, self.ends - time.monotonic()), self.ended, (lock, self.held[lock]))
        timer.daemon = True
        timer.start()
        return grant

    def ended(self, lock, contender):
        if self.held.get(lock) is contender:
            self.lost(lock, "the lease ends")


class WatchedLock(SurveyLock):
    """A lock that its library renews, and that tells whether it is held where it is asked: it is asked twenty times in a lease."""

    contract = LEASED

    def holds(self, contender):
        """Says whether the library believes that the lock is held."""

    def acquire(self, lock, wait_ms):
        grant = super().acquire(lock, wait_ms)
        threading.Thread(target=self.watch, args=(lock, self.held[lock]), daemon=True).start()
        return grant

    def watch(self, lock, contender):
        while self.held.get(lock) is contender:
            if not self.holds(contender):
                if self.held.get(lock) is contender:  # it was not released meanwhile
                    self.lost(lock, "the library says so")
                return
            time.sleep(self.lease / 20)


_loops = []
_begin = threading.Lock()


def _loop():
    """The loop of the process. It begins when it is first asked for, since a process with a second thread is not forked in virtual time."""
    with _begin:
        if not _loops:
            _loops.append(asyncio.new_event_loop())
            threading.Thread(target=_loops[0].run_forever, daemon=True).start()
        return _loops[0]


def run(coroutine, limit=None):
    """Runs a coroutine on the loop of the process, and cancels it where it takes longer than `limit` seconds."""
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, limit), _loop()).result()
