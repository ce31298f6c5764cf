"""What the locks of this folder share: a lease that is not renewed, a token of the server, and the switch that breaks the lock.

--broken: the holder goes on after its lease has run out.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "strangers"))

from stranger import BROKEN, Fail, RedisLock, serve  # noqa: E402, F401


class Leased(RedisLock):
    """`begin` asks the server something, so that `open` fails without one; `take` and `give` are the lock."""

    trusted = 0.7  # tests run it in real time: on a machine that is five times too slow, timers come 0.4 s late

    def open(self, endpoints, lease_ms):
        self.endpoint, self.lease = endpoints[0], lease_ms / 1000
        self.connection = None
        self.held, self.leftovers = {}, []
        self.begin()

    def granted(self, lock, name, grant):
        return grant, name

    def doubt(self, lock, cause):
        if not BROKEN:
            self.lost(lock, cause)

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
