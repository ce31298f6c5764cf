"""Leader election of the Python clients of Kubernetes, on a Lease: https://github.com/kubernetes-client/python and
https://github.com/tomplus/kubernetes_asyncio

`kubernetes` is its election as its documentation shows it, `kubernetes-timeout` the same with a time limit for each request, and
`asyncio` that of kubernetes_asyncio. An acquire campaigns until this candidate leads or its time is over. A release ends the
election, and waits for the Lease to run out: the library leaves its name there. `lost` is told when the election ends by
itself, be it by its callback or by an exception of its `run`.
"""

import asyncio
import secrets
import sys
import threading
import time

from harness_client import Fail, Lock, serve

MODE = sys.argv[1] if len(sys.argv) > 1 else "kubernetes"
NAMESPACE = "default"


def times(lease):
    """The lease duration, a whole number of seconds, the renew deadline and the retry period, of a second at least.

    A leader stops a retry period and a renew deadline after its last renewal at the latest, so both together are shorter than a lease.
    """
    duration = max(3, -int(-lease // 1))
    retry = max(1.0, duration * 2 / 15)
    return duration, min(duration * 2 / 3, duration - retry - 0.5), retry


class Stopped(Exception):
    """The application has no more use for the election."""


class Campaign:
    """One campaign, and the term that it leads to. `identity` is new for each, as that of an operator that starts again."""

    def __init__(self, client, lock):
        self.client, self.lock = client, lock
        self.identity = secrets.token_hex(8)
        self.leads = threading.Event()
        self.ended = threading.Event()
        self.stopping = self.won = False
        self.refused = threading.Event()  # it ended before it asked again, so no request of it is open

    def started(self):
        if not self.ended.is_set():
            self.leads.set()

    def stop(self):
        """The application asks for the end."""
        self.stopping = True
        self.ended.set()

    def refuse(self, election):
        record = election.observed_record
        self.won = record is not None and record.holder_identity == self.identity
        self.refused.set()

    def stopped(self, cause):
        """The library ended it, or was told to."""
        if not self.ended.is_set():
            self.ended.set()
            if self.leads.is_set() and not self.stopping:
                self.client.lost(self.lock, cause)


class ThreadCampaign(Campaign):
    """An election of the package kubernetes. It knows no end on demand: its Lease is asked for once more, and refuses."""

    def __init__(self, client, lock):
        super().__init__(client, lock)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        from kubernetes import client
        from kubernetes.leaderelection import electionconfig, leaderelection
        from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

        campaign = self

        class OwnLease(LeaseLock):
            def get(self, name, namespace):
                if campaign.stopping:
                    raise Stopped
                return super().get(name, namespace)

        duration, deadline, retry = times(self.client.lease)
        lease = OwnLease(self.lock, NAMESPACE, self.identity)
        lease.api_instance = client.CoordinationV1Api(self.client.api)
        if MODE == "kubernetes-timeout":
            for name in ("read_namespaced_lease", "create_namespaced_lease", "replace_namespaced_lease"):
                limited(lease.api_instance, name, deadline / 2)
        config = electionconfig.Config(lease, duration, deadline, retry, self.started, self.on_stopped)
        election = leaderelection.LeaderElection(config)
        try:
            election.run()
            self.stopped("the election has ended")
        except Stopped:
            self.refuse(election)
        except Exception as error:
            self.stopped(f"{type(error).__name__}: {error}")

    def on_stopped(self):
        self.stopped("onstopped_leading")


def limited(api, name, seconds):
    call = getattr(api, name)
    setattr(api, name, lambda *args, **kwargs: call(*args, _request_timeout=seconds, **kwargs))


class TaskCampaign(Campaign):
    """An election of kubernetes_asyncio, a task."""

    def __init__(self, client, lock):
        super().__init__(client, lock)
        asyncio.run_coroutine_threadsafe(self.run(), client.loop)

    async def run(self):
        from kubernetes_asyncio import client
        from kubernetes_asyncio.leaderelection import electionconfig, leaderelection
        from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock

        campaign = self

        class OwnLease(LeaseLock):
            async def get(self, name, namespace):
                if campaign.stopping:
                    raise Stopped
                return await super().get(name, namespace)

        async def started():
            self.started()

        async def on_stopped():
            self.stopped("onstopped_leading")

        duration, deadline, retry = times(self.client.lease)
        election = None
        try:
            async with client.ApiClient(client.Configuration(host=self.client.host)) as api:
                lease = OwnLease(self.lock, NAMESPACE, self.identity, api)
                config = electionconfig.Config(lease, duration, deadline, retry, started, on_stopped)
                election = leaderelection.LeaderElection(config)
                await election.run()
            self.stopped("the election has ended")
        except Stopped:
            self.refuse(election)
        except Exception as error:
            self.stopped(f"{type(error).__name__}: {error}")


class Election(Lock):
    # the library measures by the time of day, and writes no leaseTransitions
    contract = {"lease": True, "renews": True, "fifo": False, "tries": False, "wakes": "polls", "owner": "server",
                "token": "none", "wall_clock": True}  # fmt: skip

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        self.host = f"http://{endpoints[0]}"
        self.held = {}  # lock -> its campaign
        if MODE == "asyncio":
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()
            asyncio.run_coroutine_threadsafe(self.ask(), self.loop).result(15)
        else:
            from kubernetes import client

            configuration = client.Configuration(host=self.host)
            if MODE == "kubernetes-timeout":
                configuration.retries = 0  # urllib3 would ask four times, each with its time limit
            self.api = client.ApiClient(configuration)
            client.VersionApi(self.api).get_code(_request_timeout=5)

    async def ask(self):
        from kubernetes_asyncio import client

        async with client.ApiClient(client.Configuration(host=self.host)) as api:
            await client.VersionApi(api).get_code(_request_timeout=5)

    def acquire(self, lock, wait_ms):
        campaign = TaskCampaign(self, lock) if MODE == "asyncio" else ThreadCampaign(self, lock)
        if campaign.leads.wait(wait_ms / 1000):
            self.held[lock] = campaign
            return None, campaign.identity
        campaign.stop()
        # a request that is under way may make this candidate the leader; its name in the Lease then runs out
        _, _, retry = times(self.lease)
        if campaign.refused.wait(retry + 0.5) and not campaign.won:
            raise Fail("timeout")
        raise TimeoutError("the campaign was ended while it asked")

    def release(self, lock):
        campaign = self.held.pop(lock, None)
        if campaign is None or campaign.ended.is_set():
            raise Fail("not held")
        campaign.stop()
        duration, _, retry = times(self.lease)
        campaign.refused.wait(retry + 0.5)  # a renewal may be under way
        time.sleep(duration + 0.2)


serve(Election)
