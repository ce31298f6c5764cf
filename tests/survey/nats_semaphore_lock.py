"""nats-semaphore's `NatsSemaphore`, with one slot.

https://pypi.org/project/nats-semaphore/

A task of the library renews the slot; the library has no public sign of its loss.
"""

import asyncio

from nats.errors import TimeoutError as NoAnswer
from nats.js.api import StorageType
from nats_semaphore import NatsSemaphoreContext, SemaphoreBucketConfig

from harness_client import serve
from on_nats import OnNats, bucket, connected
from serve_survey import LEASED, run


class OneSlot(OnNats):
    contract = {**LEASED, "wakes": "unreported"}

    async def begin(self, endpoints):
        jetstream = (await connected(endpoints)).jetstream(timeout=2)
        await bucket(jetstream, "SEMAPHORES", self.lease)
        config = SemaphoreBucketConfig(ttl=self.lease, storage=StorageType.FILE, replicas=3)
        self.context = NatsSemaphoreContext(jetstream, config)

    def take(self, lock, wait_ms):
        slots = self.context.semaphore(lock, 1)
        try:
            return run(slots.acquire(timeout=max(0.1, wait_ms / 1000), renew_interval=self.lease / 3))
        except NoAnswer:
            raise  # of the servers to a request
        except asyncio.TimeoutError:
            return None


serve(OneSlot)
