"""What clients of NATS share: a connection to three servers that is made again, and a bucket on all of them."""

import asyncio
import contextlib

import nats
from nats.js.api import KeyValueConfig, StorageType

from serve_survey import SurveyLock, run


async def _nothing(_error):
    pass


async def connected(endpoints):
    """A connection to these servers, which is made again for as long as the process lives."""
    return await nats.connect(
        [f"nats://{endpoint}" for endpoint in endpoints],
        connect_timeout=1,
        reconnect_time_wait=0.1,
        max_reconnect_attempts=-1,
        ping_interval=1,
        max_outstanding_pings=2,
        dont_randomize=True,
        error_cb=_nothing,
    )


async def bucket(jetstream, name, ttl=None):
    """The bucket of this name, with a copy on each of three servers. It is made where it is missing, once the servers have a leader."""
    config = KeyValueConfig(name, replicas=3, ttl=ttl, storage=StorageType.FILE, max_bytes=1 << 20)
    while True:
        with contextlib.suppress(Exception):
            return await jetstream.key_value(name)
        with contextlib.suppress(Exception):  # another client makes it, or nobody leads yet
            return await jetstream.create_key_value(config)
        await asyncio.sleep(0.2)


class OnNats(SurveyLock):
    """Opens and releases on the loop of the process; `begin` is the coroutine that connects."""

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        run(self.begin(endpoints), 10)

    def give(self, contender):
        run(contender.release())
