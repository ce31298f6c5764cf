"""What redis-py sends in ordinary use, in both versions of the protocol: pipelines, transactions, scripts, its lock, and
subscriptions on a connection that goes back to its pool. The argument is the server's port. Prints how many messages were
published to it."""

import sys

import redis
from redis.maint_notifications import MaintNotificationsConfig


def use(client):
    client.set("one", "1")
    client.mset({"two": "2", "three": "x" * 200_000})
    assert client.mget("one", "two") == [b"1", b"2"]
    with client.pipeline(transaction=False) as pipeline:
        for number in range(500):
            pipeline.rpush("list", f"message {number}")
        pipeline.execute()
    assert len(client.lrange("list", 0, -1)) == 500
    with client.pipeline(transaction=True) as pipeline:
        pipeline.watch("one")
        pipeline.multi()
        pipeline.incr("one")
        pipeline.incr("one")
        assert pipeline.execute() == [2, 3]
    assert client.register_script("return ARGV[1]")(args=["said"]) == b"said"
    try:
        client.incr("three")
        raise AssertionError("it is no number")
    except redis.ResponseError:
        pass
    client.unlink("one", "two", "three", "list")


def subscribe(client):
    received = 0
    with client.pubsub() as news:
        news.subscribe("a", "b")
        news.psubscribe("pattern:*")
        for channel in ("a", "b", "pattern:c", "message"):
            received += client.publish(channel, "text")
        news.unsubscribe("a")
        news.unsubscribe()
        news.punsubscribe()
        while news.subscribed:
            news.get_message(timeout=10)
    return received


def main():
    received = 0
    for protocol in (2, 3):
        # without the two commands of a new connection that Redis 7.0 refuses and therefore does not count
        client = redis.Redis(
            port=int(sys.argv[1]),
            protocol=protocol,
            driver_info=None,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        for _ in range(2):
            use(client)
            received += subscribe(client)
        with client.lock("lock", timeout=10):
            assert not client.lock("lock", timeout=10, blocking=False).acquire()
        client.close()
    print(received)


main()
