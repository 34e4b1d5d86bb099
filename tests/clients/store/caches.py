"""django-redis and Flask-Limiter over two front-ends of one store: what one process caches or counts, the other sees."""

import threading
from concurrent.futures import ThreadPoolExecutor

import flask
import redis
from django.conf import settings
from django.core.cache import CacheHandler
from flask_limiter import Limiter
from redis.exceptions import LockError, LockNotOwnedError

from checks import PORTS, REPLY_SECONDS_MAX, check, check_each, equal, raises, run, soon, within

WORKERS = 6  # half of them at each front-end
TURNS = 20  # for each worker
MANY = 250  # keys: more than one page of SCAN
LIMIT = 25  # an hour: no window ends by itself while a check runs

settings.configure(USE_TZ=True)
front = redis.Redis(port=PORTS[0], socket_timeout=REPLY_SECONDS_MAX)
caches = [
    CacheHandler({"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{port}/1"}})[
        "default"
    ]
    for port in PORTS
]


def together(work):
    """What all workers return who do this at the same time, each at one of the two front-ends."""
    barrier = threading.Barrier(WORKERS, timeout=REPLY_SECONDS_MAX)

    def begin(worker):
        barrier.wait()
        return work(worker % 2)

    with ThreadPoolExecutor(WORKERS) as pool:
        return [each for result in pool.map(begin, range(WORKERS)) for each in result]


# django-redis


@check
def django_get_or_set_computes_once_for_both():
    one, other = caches
    computed = []

    def compute():
        computed.append(1)
        return {"of": ["things", 1.5]}

    equal([cache.get_or_set("report", compute, 100) for cache in (one, other, one)], [{"of": ["things", 1.5]}] * 3)
    equal(len(computed), 1)
    within(other.ttl("report"), 30, 100)


@check
def django_add_sets_once_and_versions_are_kept_apart():
    one, other = caches
    equal((one.add("key", "first"), other.add("key", "second"), other.get("key")), (True, False, "first"))
    equal((other.set("key", "third", nx=True), other.set("key", "third", xx=True)), (False, True))
    equal((one.incr_version("key"), other.get("key"), other.get("key", version=2)), (2, None, "third"))


@check
def django_incr_counts_at_both():
    caches[0].set("visits", 0)
    seen = together(lambda front: [caches[front].incr("visits") for _ in range(TURNS)])
    equal(sorted(seen), list(range(1, WORKERS * TURNS + 1)))
    equal((caches[1].decr("visits", 20), caches[0].get("visits")), (WORKERS * TURNS - 20,) * 2)
    raises(ValueError, lambda: caches[1].incr("nothing"))
    # INCRBY fails inside the script; the library takes the error, counts itself and keeps the expiry.
    caches[0].set("visits", 2**63 - 1, timeout=1000)
    equal((caches[1].incr("visits"), caches[0].get("visits")), (2**63, 2**63))
    within(caches[0].ttl("visits"), 100, 1000)


@check
def django_ttl_and_touch_are_those_of_both():
    one, other = caches
    one.set("key", "v", timeout=None)
    equal((other.ttl("key"), other.ttl("nothing")), (None, 0))
    equal((other.expire("key", 100), other.touch("key", 2000), one.touch("nothing", 100)), (True, True, False))
    within(one.pttl("key"), 1_000_000, 2_000_000)
    equal((one.persist("key"), other.ttl("key")), (True, None))
    one.set("brief", "v", timeout=0.05)
    soon(lambda: not other.has_key("brief"), "the key never expired")
    equal(one.get("brief", "gone"), "gone")


@check
def django_delete_pattern_deletes_what_matches():
    one, other = caches
    one.set_many({f"page:{number}": number for number in range(MANY)}, timeout=1000)
    one.set("other", "stays")
    equal(other.get_many(f"page:{number}" for number in range(MANY)), {f"page:{n}": n for n in range(MANY)})
    equal((len(list(other.iter_keys("page:*"))), sorted(other.keys("page:1?"))), (MANY, [f"page:1{n}" for n in range(10)]))
    equal((other.delete_pattern("page:*"), one.get("page:7"), one.get("other")), (MANY, None, "stays"))
    other.clear()
    equal(front.dbsize(), 0)


@check
def django_cache_lock_excludes():
    counted = []

    def count(front):
        for _ in range(TURNS):
            with caches[front].lock("lock", timeout=REPLY_SECONDS_MAX * 5, sleep=0.001):
                counted[:] = [counted[0] + 1] if counted else [1]
        return []

    together(count)
    equal(counted, [WORKERS * TURNS])
    mine, yours = (cache.lock("lock", timeout=100) for cache in caches)
    mine.acquire()
    equal((yours.acquire(blocking=False), yours.locked(), yours.owned()), (False, True, False))
    raises(LockError, yours.release)
    caches[1].delete("lock")
    raises(LockNotOwnedError, mine.release)


# Flask-Limiter


def application(port, strategy):
    app = flask.Flask("shop")
    limiter = Limiter(
        key_func=lambda: flask.request.headers["User"],
        app=app,
        strategy=strategy,
        storage_uri=f"redis://127.0.0.1:{port}/1",
        headers_enabled=True,
    )

    @app.get("/limited")
    @limiter.limit(f"{LIMIT} per hour")
    def limited():
        return "served"

    return app.test_client(), limiter


def hit(app, user="alice"):
    return app.get("/limited", headers={"User": user})


STRATEGIES = ("fixed-window", "moving-window", "sliding-window-counter")


@check_each(*STRATEGIES)
def flask_limiter_counts_over_both(strategy):
    apps = [application(port, strategy)[0] for port in PORTS]
    equal([hit(apps[number % 2]).status_code for number in range(LIMIT)], [200] * LIMIT)
    for app in apps:
        refused = hit(app)
        equal(refused.status_code, 429)
        equal(refused.headers["X-RateLimit-Remaining"], "0")
        within(int(refused.headers["Retry-After"]), 1000, 3601)
        equal((hit(app, "bob").status_code), 200)
    client = caches[0].client.get_client()
    assert all(client.ttl(key) > 0 for key in client.keys()), "a counter stays"


@check_each(*STRATEGIES)
def flask_limiter_serves_no_more_than_the_limit_to_many_at_once(strategy):
    def hits(front):
        app = application(PORTS[front], strategy)[0]
        return [hit(app).status_code for _ in range(TURNS)]

    codes = together(hits)
    equal((codes.count(200), codes.count(429)), (LIMIT, WORKERS * TURNS - LIMIT))


@check
def flask_limiter_reset_is_refused_as_its_script_looks_for_keys():
    (app, limiter), (other, _) = (application(port, "fixed-window") for port in PORTS)
    equal([hit(app).status_code for _ in range(LIMIT + 1)], [200] * LIMIT + [429])
    raises(redis.ResponseError, limiter.storage.reset)
    equal(hit(other).status_code, 429)
    # One counter can be cleared.
    (key,) = caches[0].client.get_client().keys()
    limiter.storage.clear(key.decode().removeprefix("LIMITS:"))
    equal(hit(other).status_code, 200)


run("caches", front.flushall)
