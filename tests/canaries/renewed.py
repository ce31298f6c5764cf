"""A lock that is renewed every quarter of a lease, with the defects that are the same on each store."""

import threading
import time

from stranger import Fail, RedisLock


class RenewedLock(RedisLock):
    defect = None

    def attempt(self, lock, name):
        if self.defect in ("forgets-a-lost-reply", "believes-a-lost-reply"):
            try:
                return self.take(lock, name)
            except OSError:
                return 0 if self.defect == "believes-a-lost-reply" else None
        return super().attempt(lock, name)

    def hold(self, lock, name, asked, grant):
        if self.defect == "ignores-a-late-answer" and time.monotonic() >= asked + self.lease * 0.1:
            raise Fail("timeout")
        return super().hold(lock, name, asked, grant)

    def give_back(self, lock, name):
        if self.defect == "release-is-always-ok":
            try:
                self.give(lock, name)
            except OSError:
                pass
            return True
        return super().give_back(lock, name)

    def keep(self, lock, name, asked, over):
        if self.defect == "renewal-ends-by-an-error":
            return self.keep_until_an_error(lock, name, over)
        if self.defect == "renewal-never-ends":
            over = threading.Event()
        return super().keep(lock, name, asked, over)

    def keep_until_an_error(self, lock, name, over):
        try:
            while not over.wait(self.lease / 4) and self.extend(lock, name):
                pass
        except OSError:
            pass

    def doubt(self, lock, cause):
        if self.defect in ("no-doubt", "renewal-never-ends"):
            return
        if self.defect == "late-doubt":
            time.sleep(self.lease * 2 / 3)
        super().doubt(lock, cause)
