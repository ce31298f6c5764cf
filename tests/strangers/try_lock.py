"""A lock that never waits: SET NX PX, and `busy` when the key is there.

--broken: a release compares with another value, and takes no removed key for done (the grant stays).
"""

from stranger import BROKEN, KeyLock, serve


class TryLock(KeyLock):
    contract = {
        "lease": True,
        "renews": False,
        "tries": True,
        "owner": "server",
        "token": "none",
        "keys": "try/{lock}",
    }

    def give(self, lock, name):
        if BROKEN:
            self.compare_and_delete(self.key(lock), name.upper() + "?")
            return True
        return super().give(lock, name)


serve(TryLock)
