"""The rules of the Kubernetes API that `harness kube-api serve` follows, each with its link, by the official Python client.

The first argument is the program, the second a folder for the file of the Leases.
"""

import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from kubernetes import client, watch

HARNESS, FOLDER = sys.argv[1:3]
CONCEPTS = "https://kubernetes.io/docs/reference/using-api/api-concepts/"
RULES = []


class Server:
    def __init__(self, *words):
        data = os.path.join(FOLDER, "leases")
        command = [HARNESS, "kube-api", "serve", "--listen", "127.0.0.1:0", "--data", data, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = re.search("http://.*", self.process.stdout.readline()).group(0)
        self.api = client.ApiClient(client.Configuration(host=self.url))
        self.leases = client.CoordinationV1Api(self.api)

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def create(self, name, holder="a"):
        spec = client.V1LeaseSpec(holder_identity=holder, lease_duration_seconds=15)
        lease = client.V1Lease(metadata=client.V1ObjectMeta(name=name), spec=spec)
        return self.leases.create_namespaced_lease("default", lease)

    def holder(self, name, **parameters):
        """The client has no parameters for a GET of one Lease."""
        url = f"{self.url}/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["spec"]["holderIdentity"]

    def events(self, name, **parameters):
        stream = watch.Watch().stream(
            self.leases.list_namespaced_lease, "default", field_selector=f"metadata.name={name}", timeout_seconds=1, **parameters
        )
        return [(event["type"], event["object"]) for event in stream]


def refused(code, reason, call, *words, **options):
    try:
        call(*words, **options)
    except client.ApiException as error:
        assert error.status == code and f'"reason":"{reason}"' in error.body, (error.status, error.body)
        return
    raise AssertionError(f"it was not refused with {code}")


def rule(link):
    def keep(function):
        RULES.append((link, function))
        return function

    return keep


@rule("https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api")
def the_api_says_which_resources_it_has(server):
    assert client.VersionApi(server.api).get_code().major == "1"
    assert "coordination.k8s.io" in [group.name for group in client.ApisApi(server.api).get_api_versions().groups]
    (resource,) = server.leases.get_api_resources().resources
    assert resource.kind == "Lease" and resource.namespaced and {"get", "list", "watch", "update"} <= set(resource.verbs)


@rule("https://kubernetes.io/docs/concepts/overview/working-with-objects/names/")
def only_one_lease_of_a_namespace_has_a_name(server):
    server.create("l1")
    refused(409, "AlreadyExists", server.create, "l1")
    refused(404, "NotFound", server.leases.read_namespaced_lease, "none", "default")


@rule(CONCEPTS + "#resource-versions")
def an_update_of_an_older_version_is_refused(server):
    first = server.create("l2")
    second = server.leases.replace_namespaced_lease("l2", "default", client.V1Lease(
        metadata=first.metadata, spec=client.V1LeaseSpec(holder_identity="b", lease_duration_seconds=15)
    ))  # fmt: skip
    assert second.metadata.resource_version != first.metadata.resource_version
    assert second.metadata.uid == first.metadata.uid
    refused(409, "Conflict", server.leases.replace_namespaced_lease, "l2", "default", first)
    assert server.holder("l2") == "b"


@rule("https://github.com/kubernetes/kubernetes/blob/master/pkg/registry/coordination/lease/strategy.go")
def an_update_names_a_version_and_may_create(server):
    lease = server.create("l3")
    lease.metadata.resource_version = None
    refused(422, "Invalid", server.leases.replace_namespaced_lease, "l3", "default", lease)
    new = client.V1Lease(metadata=client.V1ObjectMeta(name="l3b"), spec=lease.spec)
    assert server.leases.replace_namespaced_lease("l3b", "default", new).metadata.uid


@rule(CONCEPTS + "#patch-and-apply")
def a_merge_patch_changes_the_newest_version(server):
    server.create("l4")
    patched = server.leases.patch_namespaced_lease("l4", "default", {"spec": {"leaseTransitions": 3}})
    assert (patched.spec.lease_transitions, patched.spec.holder_identity) == (3, "a")
    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"leaseTransitions": 4}}
    refused(409, "Conflict", server.leases.patch_namespaced_lease, "l4", "default", stale)


@rule("https://kubernetes.io/docs/reference/using-api/server-side-apply/")
def an_apply_creates_and_is_refused_where_it_names_an_older_version(server):
    def apply(holder, version=None, **parameters):
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l4a", **({"resourceVersion": version} if version else {})},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        }
        url = f"{server.url}/apis/coordination.k8s.io/v1/namespaces/default/leases/l4a?{urllib.parse.urlencode(parameters)}"
        content = {"Content-Type": "application/apply-patch+yaml"}
        request = urllib.request.Request(url, json.dumps(lease).encode(), content, method="PATCH")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    as_forced = {"fieldManager": "m", "force": "true"}
    assert apply("a", version="1", **as_forced)[0] == 409
    assert apply("a", force="true")[0] == 400  # without a manager
    code, first = apply("a", **as_forced)
    assert code == 201
    code, second = apply("b", **as_forced)
    assert code == 200 and second["metadata"]["uid"] == first["metadata"]["uid"]
    code, refusal = apply("c", version=first["metadata"]["resourceVersion"], **as_forced)
    assert (code, refusal["reason"]) == (409, "Conflict")
    assert server.holder("l4a") == "b"


@rule("https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/")
def a_deletion_may_name_a_version(server):
    lease = server.create("l5")
    options = client.V1DeleteOptions(preconditions=client.V1Preconditions(resource_version="1"))
    refused(409, "Conflict", server.leases.delete_namespaced_lease, "l5", "default", body=options)
    options.preconditions.resource_version = lease.metadata.resource_version
    server.leases.delete_namespaced_lease("l5", "default", body=options)
    refused(404, "NotFound", server.leases.delete_namespaced_lease, "l5", "default")


@rule(CONCEPTS + "#efficient-detection-of-changes")
def a_watch_tells_every_change_after_its_version_in_order(server):
    version = server.create("l6").metadata.resource_version
    for holder in ("b", "c"):
        server.leases.patch_namespaced_lease("l6", "default", {"spec": {"holderIdentity": holder}})
    server.leases.delete_namespaced_lease("l6", "default")
    events = server.events("l6", resource_version=version)
    assert [kind for kind, _ in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert [lease.spec.holder_identity for _, lease in events] == ["b", "c", "c"]
    versions = [int(lease.metadata.resource_version) for _, lease in events]
    assert versions == sorted(set(versions))


@rule(CONCEPTS + "#semantics-for-watch")
def a_watch_without_a_version_begins_with_what_there_is(server):
    server.create("l7")
    assert [kind for kind, _ in server.events("l7")] == ["ADDED"]


@rule(CONCEPTS + "#watch-bookmarks")
def a_watch_that_allows_them_gets_bookmarks(server):
    version = server.create("l8").metadata.resource_version
    kinds = {kind for kind, _ in server.events("l8", resource_version=version, allow_watch_bookmarks=True)}
    assert kinds == {"BOOKMARK"}


@rule(CONCEPTS + "#410-gone-responses")
def a_version_that_is_not_kept_is_gone(server):
    server.end()
    again = Server()
    again.create("l9")
    list(again.leases.list_namespaced_lease("default").items)
    refused(410, "Expired", again.leases.list_namespaced_lease, "default", resource_version="1", resource_version_match="Exact")
    refused(410, "Expired", again.events, "l9", resource_version="1")
    # what was answered before the kill is there
    assert again.holder("l2") == "b"
    server.__dict__.update(again.__dict__)


@rule(CONCEPTS + "#unavailable-resource-versions")
def a_version_that_does_not_exist_yet_is_not_served(server):
    refused(504, "Timeout", server.leases.list_namespaced_lease, "default", resource_version="999999")


@rule(CONCEPTS + "#resource-version-parameter")
def a_match_belongs_to_a_version_and_a_watch_has_initial_events_only_where_they_are_served(server):
    leases = server.leases.list_namespaced_lease
    refused(422, "Invalid", leases, "default", resource_version_match="NotOlderThan")
    refused(422, "Invalid", leases, "default", resource_version="0", resource_version_match="Exact")
    matched = {"resource_version": "0", "resource_version_match": "NotOlderThan"}
    assert leases("default", **matched).kind == "LeaseList"
    refused(422, "Invalid", leases, "default", watch=True, send_initial_events=True, **matched)


@rule(CONCEPTS + "#semantics-for-get-and-list")
def a_read_of_any_version_may_be_old_and_another_is_not(server):
    server.end()
    stale = Server("--stale", "600ms")
    server.__dict__.update(stale.__dict__)
    time.sleep(0.7)
    server.leases.patch_namespaced_lease("l1", "default", {"spec": {"holderIdentity": "new"}})
    assert (server.holder("l1"), server.holder("l1", resourceVersion="0")) == ("new", "a")
    time.sleep(0.7)
    assert server.holder("l1", resourceVersion="0") == "new"


@rule("https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/")
def times_have_microseconds_and_numbers_are_checked(server):
    now = datetime.datetime(2026, 8, 29, 1, 2, 3, 456789, tzinfo=datetime.timezone.utc)
    spec = client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=15, renew_time=now)
    lease = client.V1Lease(metadata=client.V1ObjectMeta(name="l10"), spec=spec)
    assert server.leases.create_namespaced_lease("default", lease).spec.renew_time == now
    lease.metadata.name, spec.lease_duration_seconds = "l11", 0
    refused(422, "Invalid", server.leases.create_namespaced_lease, "default", lease)


started = Server()
for link, function in RULES:
    try:
        function(started)
    except BaseException:
        print(f"broken: {function.__name__.replace('_', ' ')}: {link}", file=sys.stderr)
        started.end()
        raise
started.end()
print(f"{len(RULES)} rules hold")
