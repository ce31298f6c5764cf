"""What kazoo sends in ordinary use: reads and writes, transactions, many requests at once, watches, and its lock with two
clients that contend. The argument is the server's port."""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError


def connected():
    client = KazooClient(hosts=f"127.0.0.1:{sys.argv[1]}", timeout=60)
    client.start(timeout=30)
    return client


def use(client):
    client.add_auth("digest", "user:secret")
    client.ensure_path("/one/two")
    client.set("/one/two", b"x" * 200_000)
    assert len(client.get("/one/two")[0]) == 200_000
    pending = [client.create_async("/one/many-", b"", sequence=True) for _ in range(300)]
    assert len({one.get(timeout=30) for one in pending}) == 300
    transaction = client.transaction()
    transaction.check("/one/two", 1)
    transaction.create("/one/three", b"3")
    transaction.set_data("/one/two", b"2")
    assert not [failed for failed in transaction.commit() if isinstance(failed, Exception)]
    client.sync("/one")
    try:
        client.get("/nowhere")
        raise AssertionError("it does not exist")
    except NoNodeError:
        pass


def watch(client, other):
    """Three watches that strike."""
    struck = [threading.Event() for _ in range(3)]
    strike = [lambda event, one=one: one.set() for one in struck]
    client.get("/one/three", watch=strike[0])
    client.exists("/one/four", watch=strike[1])
    client.get_children("/one/two", watch=strike[2])
    other.set("/one/three", b"other")
    other.create("/one/four")
    other.create("/one/two/child")
    assert all(one.wait(30) for one in struck)


def contend(client, other):
    held = client.Lock("/lock", "first")
    waiting = other.Lock("/lock", "second")
    held.acquire(timeout=30)
    acquired = threading.Event()

    def wait():
        with waiting:
            acquired.set()

    thread = threading.Thread(target=wait)
    thread.start()
    # the release strikes the waiter's watch only where that is there before it
    while not other._data_watchers:
        held.contenders()
    held.release()
    assert acquired.wait(30)
    thread.join()


def main():
    client, other = connected(), connected()
    use(client)
    watch(client, other)
    contend(client, other)
    for one in (client, other):
        one.stop()
        one.close()


main()
