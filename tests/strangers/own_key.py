"""A lock at a key of its own name: SET NX PX, deleted by a script that compares.

--broken: a wait that ends is answered as if the lock had been got (phantom grant).
"""

from stranger import BROKEN, EXPIRES, KeyLock, serve


class OwnKey(KeyLock):
    contract = {**EXPIRES, "tries": True, "keys": "app/{lock}/leader"}

    def acquire(self, lock, wait_ms):
        try:
            return super().acquire(lock, wait_ms)
        except Exception as error:
            if BROKEN and str(error) == "timeout":
                return None, "never-granted"
            raise


serve(OwnKey)
