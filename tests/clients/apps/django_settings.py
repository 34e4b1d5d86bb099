"""Settings for Django's own tests: those of its test_sqlite.py, and the cache in the server at port 6379."""

from test_sqlite import *  # noqa: F403

CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": "redis://127.0.0.1:6379",
    }
}
