"""Caches and limits of web applications: django-redis, and Flask-Limiter on top of limits.

Both count by Lua scripts. Of Flask-Limiter's strategies the moving window is not here: it is a list.
redis-py's own cache (CacheConfig) is in test_versions.py.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import flask
from django.conf import settings
from django.core.cache import CacheHandler
from flask_limiter import Limiter
from redis.exceptions import LockError, LockNotOwnedError

from conversation import REPLY_SECONDS_MAX, Conversation, in_both_protocols

WORKERS = 8
TURNS = 25  # for each worker
MANY = 500  # keys: more than one page of SCAN

settings.configure(USE_TZ=True)


class DjangoRedis(Conversation):
    def setUp(self):
        self.client = self.connect(db=1)
        self.client.flushall()
        location = f"redis://127.0.0.1:{self.server.port}/1?protocol={self.protocol}"
        backend = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "KEY_PREFIX": "shop"}
        self.cache = CacheHandler({"default": backend})["default"]
        self.addCleanup(self.cache.client.do_close_clients)

    # Values

    def test_values_of_any_kind_come_back(self):
        for value in (1, -1, True, "text", b"\x00\xff", 1.5, None, ["a", 1], {"of": {"dicts": ()}}, 2**80):
            with self.subTest(value):
                self.assertIs(self.cache.set("key", value), True)
                self.assertEqual(self.cache.get("key", "default"), value)
        self.assertEqual(self.client.keys(), [b"shop:1:key"])
        self.assertEqual(self.cache.get("nosuchkey", "default"), "default")

    def test_add_sets_once(self):
        self.assertIs(self.cache.add("key", "first"), True)
        self.assertIs(self.cache.add("key", "second"), False)
        self.assertEqual(self.cache.get("key"), "first")
        self.assertIs(self.cache.set("key", "third", nx=True), False)
        self.assertIs(self.cache.set("key", "third", xx=True), True)
        self.assertIs(self.cache.set("other", "third", xx=True), False)

    def test_get_or_set_computes_once(self):
        computed = []

        def compute():
            computed.append(1)
            return "value"

        self.assertEqual(self.cache.get_or_set("key", compute, 100), "value")
        self.assertEqual(self.cache.get_or_set("key", compute, 100), "value")
        self.assertEqual(len(computed), 1)
        self.assertWithin(self.cache.ttl("key"), 60, 100)

    def test_many_at_once(self):
        self.cache.set_many({f"key{number}": number for number in range(MANY)}, timeout=100)
        names = [f"key{number}" for number in range(MANY)]
        self.assertEqual(self.cache.get_many([*names, "nosuchkey"]), {f"key{n}": n for n in range(MANY)})
        self.assertWithin(self.cache.ttl("key0"), 60, 100)
        self.assertEqual(self.cache.delete_many(names[:10]), 10)
        self.assertEqual(self.client.dbsize(), MANY - 10)

    def test_versions_are_kept_apart(self):
        self.cache.set("key", "old")
        self.assertEqual(self.cache.incr_version("key"), 2)
        self.assertIsNone(self.cache.get("key"))
        self.assertEqual(self.cache.get("key", version=2), "old")
        self.assertEqual(self.client.keys(), [b"shop:2:key"])

    # Counting

    def test_a_counter_counts_only_when_it_is_there(self):
        with self.assertRaisesRegex(ValueError, "not found"):
            self.cache.incr("visits")
        self.assertFalse(self.cache.has_key("visits"))
        self.assertEqual(self.cache.incr("visits", ignore_key_check=True), 1)
        self.assertEqual((self.cache.incr("visits", 9), self.cache.decr("visits", 4)), (10, 6))
        self.assertEqual(self.cache.get("visits"), 6)

    def test_a_counter_beyond_64_bits_goes_on(self):
        # INCRBY fails inside the script; the library takes the error, counts itself and keeps the expiry.
        self.cache.set("visits", 2**63 - 1, timeout=100)
        self.assertEqual(self.cache.incr("visits"), 2**63)
        self.assertEqual(self.cache.get("visits"), 2**63)
        self.assertWithin(self.cache.ttl("visits"), 60, 100)

    def test_eight_threads_count_without_losing_any(self):
        self.cache.set("visits", 0)
        together = threading.Barrier(WORKERS, timeout=REPLY_SECONDS_MAX)

        def count(_):
            together.wait()
            return [self.cache.incr("visits") for _ in range(TURNS)]

        with ThreadPoolExecutor(WORKERS) as pool:
            seen = [value for values in pool.map(count, range(WORKERS)) for value in values]
        self.assertEqual(sorted(seen), list(range(1, WORKERS * TURNS + 1)))

    # Time

    def test_a_timeout_is_given_seen_and_taken_away(self):
        self.assertEqual((self.cache.ttl("key"), self.cache.pttl("key")), (0, 0))
        self.cache.set("key", "v", timeout=None)
        self.assertEqual((self.cache.ttl("key"), self.cache.pttl("key")), (None, None))
        tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
        for give, low, high in (
            (lambda: self.cache.expire("key", 100), 60_000, 100_000),
            (lambda: self.cache.pexpire("key", 50_000), 10_000, 50_000),
            (lambda: self.cache.expire_at("key", tomorrow), 86_360_000, 86_400_000),
            (lambda: self.cache.pexpire_at("key", tomorrow), 86_360_000, 86_400_000),
            (lambda: self.cache.touch("key", 200), 160_000, 200_000),
        ):
            self.assertIs(give(), True)
            self.assertWithin(self.cache.pttl("key"), low, high)
        self.assertIs(self.cache.persist("key"), True)
        self.assertIsNone(self.cache.ttl("key"))
        self.assertIs(self.cache.touch("nosuchkey", 100), False)

    def test_what_has_timed_out_is_not_there(self):
        self.cache.set("key", "v", timeout=0.05)
        self.assertSoon(lambda: not self.cache.has_key("key"), "the key never expired")
        self.assertEqual(self.cache.get("key", "default"), "default")
        self.cache.set("key", "v")
        self.cache.set("key", "v", timeout=0)
        self.assertEqual(self.client.dbsize(), 0)

    # Taking away

    def test_keys_are_found_and_deleted_by_a_pattern(self):
        self.cache.set_many({f"user:{number}": number for number in range(MANY)})
        self.cache.set("session:1", "stays")
        self.assertEqual(len(set(self.cache.iter_keys("user:*"))), MANY)
        self.assertEqual(sorted(self.cache.keys("user:49?")), [f"user:49{digit}" for digit in range(10)])
        self.assertEqual(self.cache.delete_pattern("user:*"), MANY)
        self.assertEqual(self.cache.keys("*"), ["session:1"])
        self.assertIs(self.cache.delete("session:1"), True)
        self.assertIs(self.cache.delete("session:1"), False)

    def test_clearing_empties_the_cache_and_nothing_else(self):
        other = self.connect(db=2)
        other.set("key", "stays")
        self.cache.set_many({"a": 1, "b": 2})
        self.cache.clear()
        self.assertEqual((self.client.dbsize(), other.get("key")), (0, b"stays"))

    # Locks

    def test_a_lock_of_the_cache_is_held_by_one(self):
        with self.cache.lock("report", timeout=100) as mine:
            self.assertEqual(self.client.keys(), [b"shop:1:report"])
            self.assertIs(self.cache.lock("report", timeout=100).acquire(blocking=False), False)
            self.assertIs(mine.extend(200), True)
            self.assertWithin(self.cache.ttl("report"), 260, 300)
            self.assertIs(mine.reacquire(), True)
            self.assertWithin(self.cache.ttl("report"), 60, 100)
        self.assertEqual(self.client.dbsize(), 0)
        with self.assertRaises(LockError):
            mine.release()

    def test_a_lock_of_the_cache_that_was_cleared_is_lost(self):
        lock = self.cache.lock("report", timeout=100)
        lock.acquire()
        self.cache.clear()
        with self.assertRaises(LockNotOwnedError):
            lock.release()


class FlaskLimiter(Conversation):
    LIMIT = 3  # an hour: no window ends by itself while a test runs
    STRATEGIES = ("fixed-window", "sliding-window-counter")

    def setUp(self):
        self.client = self.connect(db=1)
        self.client.flushall()

    def application(self, strategy, limit):
        app = flask.Flask("shop")
        limiter = Limiter(
            key_func=lambda: flask.request.headers["User"],
            app=app,
            strategy=strategy,
            storage_uri=f"redis://127.0.0.1:{self.server.port}/1?protocol={self.protocol}",
            headers_enabled=True,
        )
        self.addCleanup(limiter.storage.get_connection().close)

        @app.get("/limited")
        @limiter.limit(limit)
        def limited():
            return "served"

        return app.test_client(), limiter

    def hit(self, app, user="alice"):
        return app.get("/limited", headers={"User": user})

    def test_a_user_is_served_up_to_the_limit(self):
        for strategy in self.STRATEGIES:
            with self.subTest(strategy):
                self.client.flushall()
                app, _ = self.application(strategy, f"{self.LIMIT} per hour")
                served = [self.hit(app) for _ in range(self.LIMIT)]
                self.assertEqual([each.status_code for each in served], [200] * self.LIMIT)
                remaining = [int(each.headers["X-RateLimit-Remaining"]) for each in served]
                self.assertEqual(remaining, list(reversed(range(self.LIMIT))))
                refused = self.hit(app)
                self.assertEqual(refused.status_code, 429)
                self.assertWithin(int(refused.headers["Retry-After"]), 60, 3601)
                self.assertEqual(self.hit(app, "bob").status_code, 200)
                self.assertTrue(all(self.client.ttl(key) > 0 for key in self.client.keys()), "a counter stays")

    def test_the_count_is_shared_by_all_who_ask(self):
        for strategy in self.STRATEGIES:
            with self.subTest(strategy):
                self.client.flushall()
                apps = [self.application(strategy, f"{self.LIMIT} per hour")[0] for _ in range(WORKERS)]
                together = threading.Barrier(WORKERS, timeout=REPLY_SECONDS_MAX)

                def hit_with_others(app):
                    together.wait()
                    return [self.hit(app).status_code for _ in range(self.LIMIT)]

                with ThreadPoolExecutor(WORKERS) as pool:
                    codes = [code for answers in pool.map(hit_with_others, apps) for code in answers]
                self.assertEqual((codes.count(200), codes.count(429)), (self.LIMIT, (WORKERS - 1) * self.LIMIT))

    def test_a_window_that_is_over_counts_anew(self):
        for strategy in self.STRATEGIES:
            with self.subTest(strategy):
                self.client.flushall()
                app, _ = self.application(strategy, "1 per hour")
                self.assertEqual([self.hit(app).status_code for _ in range(2)], [200, 429])
                # The window ends as it would in an hour: its counter's expiry comes.
                for key in self.client.keys():
                    self.client.pexpire(key, 20)
                self.assertSoon(lambda: self.client.dbsize() == 0, "the counter never expired")
                self.assertEqual(self.hit(app).status_code, 200)

    def test_a_sliding_window_forgets_bit_by_bit(self):
        # What was counted in the hour before weighs as much as is left of its time: here one of four, in whole hits.
        app, _ = self.application("sliding-window-counter", "4 per hour")
        self.assertEqual([self.hit(app).status_code for _ in range(5)], [200] * 4 + [429])
        [current] = self.client.keys()
        self.client.expire(current, 1795)
        self.assertEqual([self.hit(app).status_code for _ in range(4)], [200] * 3 + [429])
        previous = current + b"/-1"
        self.assertEqual((self.client.get(previous), self.client.get(current)), (b"4", b"3"))
        self.assertWithin(self.client.ttl(previous), 1755, 1795)
        self.assertWithin(self.client.ttl(current), 5355, 5395)
        self.client.expire(previous, 800)  # nothing any more
        self.assertEqual([self.hit(app).status_code for _ in range(2)], [200, 429])

    def test_resetting_forgets_the_limits_and_nothing_else(self):
        app, limiter = self.application("fixed-window", "1 per hour")
        self.client.set("other", "stays")
        for user in range(MANY):
            self.assertEqual(self.hit(app, f"user{user}").status_code, 200)
        self.assertEqual(self.hit(app, "user0").status_code, 429)
        limiter.reset()
        self.assertEqual(self.client.keys(), [b"other"])
        self.assertEqual(self.hit(app, "user0").status_code, 200)


globals().update(in_both_protocols(__name__, DjangoRedis, FlaskLimiter))
