"""django-redis's `cache.lock(key, timeout)`.

https://github.com/jazzband/django-redis#locks

The lock is redis-py's `Lock` on a connection of the cache, and is not renewed.
"""

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import LockError

from harness_client import serve
from serve_survey import TimedLock, redis_at


class DjangoRedisLock(TimedLock):
    contract = {**TimedLock.contract, "owner": "server", "forks": True, "keys": ":1:{lock}", "value": "string"}
    not_held = LockError

    def open(self, endpoints, lease_ms):
        self.lease = lease_ms / 1000
        options = redis_at(endpoints[0], self.lease)
        settings.configure(
            CACHES={
                "default": {
                    "BACKEND": "django_redis.cache.RedisCache",
                    "LOCATION": f"redis://{endpoints[0]}/0",
                    "OPTIONS": {
                        "SOCKET_TIMEOUT": options["socket_timeout"],
                        "SOCKET_CONNECT_TIMEOUT": options["socket_connect_timeout"],
                    },
                }
            }
        )
        cache.get("harness")

    def contender(self, lock):
        return cache.lock(lock, timeout=self.lease)

    def grant(self, contender):
        return None, contender.local.token.decode()


serve(DjangoRedisLock)
