"""A correct lock whose process answers no acquire any more when it is two seconds old."""

import time

from stranger import EXPIRES, KeyLock, serve

BEGAN = time.monotonic()


class StopsAnswering(KeyLock):
    contract = {**EXPIRES, "tries": True, "keys": "silent:{lock}"}

    def take(self, lock, name):
        if time.monotonic() - BEGAN > 2:
            time.sleep(600)
        return super().take(lock, name)


serve(StopsAnswering)
