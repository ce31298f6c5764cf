"""A lock whose holders have names that the server does not show: the key has a random value, and a grant is told as `c3/17`.

--broken: half a second after a release the key is deleted once more, to be sure, and whoever has it by then (late release).
"""

import threading

from stranger import BROKEN, EXPIRES, KeyLock, serve


class OwnOwner(KeyLock):
    contract = {**EXPIRES, "tries": True, "owner": "own", "keys": "mutex:{lock}"}
    grants = 0

    def give(self, lock, name):
        if BROKEN:
            threading.Timer(0.5, self.redis.call, ("DEL", self.key(lock))).start()
        return super().give(lock, name)

    def granted(self, lock, name, grant):
        self.grants += 1
        return None, f"c{self.client}/{self.grants}"


serve(OwnOwner)
