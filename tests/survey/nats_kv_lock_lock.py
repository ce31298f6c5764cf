"""nats-kv-lock's `NatsKvLock`: a key that holds the owner's name.

https://github.com/kevinhikaruevans/nats-kv-lock

The key has no time to live, so the lock of a client that died stays.
"""

from nats_kv_lock import NatsKvLock

from harness_client import serve
from on_nats import OnNats, bucket, connected
from serve_survey import SESSION, run


class KvLock(OnNats):
    contract = SESSION

    async def begin(self, endpoints):
        self.kv = await bucket((await connected(endpoints)).jetstream(timeout=2), "locks")

    def take(self, lock, wait_ms):
        contender = NatsKvLock(self.kv, lock)
        # its time limit is that of one event of the watch
        return contender if run(contender.acquire(timeout=max(0.05, wait_ms / 1000))) else None


serve(KvLock)
