"""A lock on a majority of Redis servers that know nothing of each other, after the Redlock algorithm: a minority may be away.
https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#the-redlock-algorithm

--broken: an error of any server is an error of the acquire, as in redlock-py 1.0.8 (no progress while one is away).
"""

import random
import time

from stranger import BROKEN, EXPIRES, Redis, RedisLock, serve


class Quorum(RedisLock):
    contract = {**EXPIRES, "tries": False, "keys": "quorum:{lock}"}

    def open(self, endpoints, lease_ms):
        super().open(endpoints, lease_ms)
        self.masters = [Redis(endpoint, self.lease / 20) for endpoint in endpoints]

    def on_each(self, act):
        """What `act` answers for each server that answers."""
        answers = []
        for master in self.masters:
            try:
                answers.append(act(master))
            except OSError:
                if BROKEN:
                    raise
        return answers

    def is_most(self, count):
        return 2 * count > len(self.masters)

    def take(self, lock, name):
        words = ("SET", f"quorum:{lock}", name, "NX", "PX", self.milliseconds())
        if self.is_most(self.on_each(lambda master: master.call(*words)).count("OK")):
            return name
        self.give(lock, name)
        time.sleep(random.uniform(0, 0.05))  # so that not everyone begins again at once
        return None

    def give(self, lock, name):
        deleted = self.on_each(lambda master: self.compare_and_delete(f"quorum:{lock}", name, master))
        unknown = len(self.masters) - len(deleted)
        if not self.is_most(deleted.count(True)) and self.is_most(deleted.count(True) + unknown):
            raise ConnectionError("too few servers answer")
        return self.is_most(deleted.count(True))

    def close(self):
        super().close()
        for master in self.masters:
            master.close()


serve(Quorum)
