"""Locks of other people's libraries: redis-py's own, in threads and in asyncio, and python-redis-lock.

All of them take a lock by SET NX and let it go or extend it by Lua scripts (EVALSHA, and SCRIPT LOAD where the
server does not know the script). python-redis-lock wakes those who wait by a list: only what needs no list is
here, so its locks are let go by their expiry, or taken away.
"""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio
import redis_lock
from redis.exceptions import LockError, LockNotOwnedError

from conversation import EVENT_SECONDS_MAX, REPLY_SECONDS_MAX, Conversation, in_both_protocols

WORKERS = 8
TURNS = 25  # for each worker
SOON_SECONDS = 0.001  # how long a lock waits before it asks again


# It tells of every refusal, and refusals are wanted here.
logging.getLogger("redis_lock").setLevel(logging.ERROR)


class RedisPyLock(Conversation):
    def setUp(self):
        self.client = self.connect()
        self.client.flushall()

    def lock(self, client=None, **options):
        return (client or self.client).lock("lock", sleep=SOON_SECONDS, **options)

    # Taking and letting go

    def test_a_lock_is_taken_refused_and_let_go(self):
        mine, yours = self.lock(timeout=30), self.lock(timeout=30)
        self.assertIs(mine.acquire(), True)
        self.assertEqual((mine.locked(), mine.owned()), (True, True))
        self.assertWithin(self.client.pttl("lock"), 1, 30_000)
        self.assertIs(yours.acquire(blocking=False), False)
        self.assertEqual((yours.locked(), yours.owned()), (True, False))
        mine.release()
        self.assertEqual((mine.locked(), mine.owned()), (False, False))
        self.assertEqual(self.client.exists("lock"), 0)
        self.assertIs(yours.acquire(blocking=False), True)
        yours.release()

    def test_a_block_of_code_holds_the_lock_to_its_end(self):
        with self.lock() as mine:
            self.assertTrue(mine.owned())
            self.assertEqual(self.client.ttl("lock"), -1)
            with self.assertRaisesRegex(LockError, "within the time specified"), self.lock(blocking_timeout=0.01):
                self.fail("two hold the lock")
        self.assertEqual(self.client.exists("lock"), 0)

    def test_who_waits_gets_the_lock_when_it_is_let_go(self):
        mine, yours = self.lock(), self.lock(self.connect(), thread_local=False)
        mine.acquire()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(yours.acquire, blocking_timeout=EVENT_SECONDS_MAX)
            # It has asked in vain before the lock is let go.
            self.assertSoon(lambda: self.calls("set") >= 2, "no client waits for the lock")
            self.assertFalse(waiting.done())
            mine.release()
            self.assertIs(waiting.result(EVENT_SECONDS_MAX), True)
        self.assertTrue(yours.owned())
        yours.release()

    def calls(self, command):
        return self.client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]

    def test_a_token_of_ones_own_is_what_the_key_holds(self):
        lock = self.lock()
        lock.acquire(token="worker-7")
        self.assertEqual(self.client.get("lock"), b"worker-7")
        lock.release()
        self.assertIsNone(self.client.get("lock"))

    # Time

    def test_extending_adds_to_the_time_or_replaces_it(self):
        lock = self.lock(timeout=100)
        lock.acquire()
        self.assertIs(lock.extend(200), True)
        self.assertWithin(self.client.pttl("lock"), 260_000, 300_000)
        self.assertIs(lock.extend(50, replace_ttl=True), True)
        self.assertWithin(self.client.pttl("lock"), 10_000, 50_000)
        self.assertIs(lock.extend(0.5), True)
        self.assertWithin(self.client.pttl("lock"), 10_000, 50_500)
        lock.release()

    def test_reacquiring_begins_the_time_anew(self):
        lock = self.lock(timeout=100)
        lock.acquire()
        self.client.expire("lock", 10)
        self.assertIs(lock.reacquire(), True)
        self.assertWithin(self.client.pttl("lock"), 60_000, 100_000)
        lock.release()

    def test_a_lock_without_an_expiry_has_nothing_to_extend(self):
        lock = self.lock()
        lock.acquire()
        for act in (lambda: lock.extend(10), lock.reacquire):
            with self.assertRaisesRegex(LockError, "lock with no timeout"):
                act()
        lock.release()
        # The script returns 0 for a lock whose expiry another client has removed.
        lock = self.lock(timeout=100)
        lock.acquire()
        self.client.persist("lock")
        with self.assertRaises(LockNotOwnedError):
            lock.extend(10)
        self.assertEqual(self.client.ttl("lock"), -1)
        lock.release()

    # Losing

    def test_a_lock_that_was_never_taken_cannot_be_let_go(self):
        lock = self.lock(timeout=30)
        for act in (lock.release, lambda: lock.extend(10), lock.reacquire):
            with self.assertRaisesRegex(LockError, "unlocked") as raised:
                act()
            self.assertNotIsInstance(raised.exception, LockNotOwnedError)

    def test_a_lock_that_another_client_has_now_is_left_to_it(self):
        for name, lose in {
            "taken over": lambda: self.client.set("lock", "other"),
            "taken away": lambda: self.client.delete("lock"),
        }.items():
            lock = self.lock(timeout=30)
            for act in (lambda: lock.extend(10), lock.reacquire, lock.release):
                with self.subTest(name):
                    self.client.delete("lock")
                    lock.acquire()
                    lose()
                    left = self.client.get("lock")
                    with self.assertRaises(LockNotOwnedError):
                        act()
                    self.assertEqual((self.client.get("lock"), self.client.ttl("lock") > 0), (left, False))

    def test_a_lock_that_expired_is_lost_and_taken_by_the_next(self):
        mine, yours = self.lock(timeout=0.05), self.lock(timeout=30)
        mine.acquire()
        self.assertIs(yours.acquire(blocking_timeout=EVENT_SECONDS_MAX), True)
        self.assertFalse(mine.owned())
        with self.assertRaises(LockNotOwnedError):
            mine.release()
        self.assertTrue(yours.owned())
        yours.release()

    def test_scripts_that_the_server_forgot_are_sent_again(self):
        lock = self.lock(timeout=30)
        for act in (lambda: lock.extend(10), lock.reacquire, lock.release):
            lock.acquire(blocking=False)
            self.assertTrue(self.client.script_flush())
            act()
        self.assertEqual(self.client.exists("lock"), 0)

    # Much at once

    def test_eight_threads_count_under_the_lock(self):
        """Without the lock, reading and writing in two steps would lose counts."""
        self.client.set("counter", 0)
        together = threading.Barrier(WORKERS, timeout=REPLY_SECONDS_MAX)

        def count(client):
            lock = self.lock(client, timeout=REPLY_SECONDS_MAX)
            together.wait()
            for _ in range(TURNS):
                with lock:
                    client.set("counter", int(client.get("counter")) + 1)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(count, [self.connect() for _ in range(WORKERS)]))
        self.assertEqual(self.client.get("counter"), b"%d" % (WORKERS * TURNS))
        self.assertEqual(self.client.exists("lock"), 0)

    def test_eight_tasks_count_under_the_lock_of_asyncio(self):
        async def count(client):
            for _ in range(TURNS):
                async with client.lock("lock", timeout=REPLY_SECONDS_MAX, sleep=SOON_SECONDS) as lock:
                    value = int(await client.get("counter"))
                    self.assertTrue(await lock.owned())
                    await client.set("counter", value + 1)

        async def race():
            options = {"host": "127.0.0.1", "port": self.server.port, "protocol": self.protocol}
            async with redis.asyncio.Redis(**options) as client:
                await asyncio.wait_for(asyncio.gather(*(count(client) for _ in range(WORKERS))), REPLY_SECONDS_MAX)
                lost = client.lock("lock", timeout=30)
                await lost.acquire()
                await client.delete("lock")
                for act in (lost.extend(10), lost.reacquire(), lost.release()):
                    with self.assertRaises(LockNotOwnedError):
                        await act

        self.client.set("counter", 0)
        asyncio.run(race())
        self.assertEqual(self.client.get("counter"), b"%d" % (WORKERS * TURNS))


class PythonRedisLock(Conversation):
    def setUp(self):
        self.client = self.connect()
        self.client.flushall()

    def lock(self, **options):
        return redis_lock.Lock(self.client, "job", **options)

    def test_a_lock_is_taken_and_refused(self):
        mine, yours = self.lock(expire=100), self.lock(expire=100)
        self.assertFalse(mine.locked())
        self.assertIs(mine.acquire(blocking=False), True)
        self.assertTrue(yours.locked())
        self.assertEqual(yours.get_owner_id(), mine.id)
        self.assertWithin(self.client.ttl("lock:job"), 60, 100)
        self.assertIs(yours.acquire(blocking=False), False)
        with self.assertRaises(redis_lock.AlreadyAcquired):
            mine.acquire(blocking=False)

    def test_only_the_holder_extends_a_lock(self):
        mine, yours = self.lock(expire=100), self.lock(expire=100)
        mine.acquire(blocking=False)
        mine.extend(500)
        self.assertWithin(self.client.ttl("lock:job"), 460, 500)
        with self.assertRaises(redis_lock.NotAcquired):
            yours.extend(900)
        self.assertWithin(self.client.ttl("lock:job"), 460, 500)
        mine.extend()
        self.assertWithin(self.client.ttl("lock:job"), 60, 100)

    def test_a_lock_without_an_expiry_has_nothing_to_extend(self):
        lock = self.lock()
        lock.acquire(blocking=False)
        self.assertEqual(self.client.ttl("lock:job"), -1)
        with self.assertRaises(redis_lock.NotExpirable):
            lock.extend(100)

    def test_a_lock_that_another_client_has_is_not_let_go(self):
        mine, yours = self.lock(expire=100), self.lock(expire=100)
        with self.assertRaises(redis_lock.NotAcquired):
            mine.release()
        yours.acquire(blocking=False)
        with self.assertRaises(redis_lock.NotAcquired):
            mine.release()
        self.assertEqual(mine.get_owner_id(), yours.id)

    def test_a_lock_that_expired_is_taken_by_the_next(self):
        mine, yours = self.lock(expire=1), self.lock(expire=100)
        mine.acquire(blocking=False)
        self.client.pexpire("lock:job", 20)
        self.assertSoon(lambda: yours.acquire(blocking=False), "the lock never expired")
        with self.assertRaises(redis_lock.NotAcquired):
            mine.extend()
        self.assertEqual(mine.get_owner_id(), yours.id)

    def test_a_lock_is_renewed_while_its_holder_works(self):
        lock = self.lock(expire=100, auto_renewal=True)
        # By itself the library renews after two thirds of the expiry. Its way to change that is a subclass, but
        # the scripts would be registered for the subclass alone.
        lock._lock_renewal_interval = 0.02
        lock.acquire(blocking=False)
        self.addCleanup(lock._stop_lock_renewer)
        for _ in range(3):
            self.client.expire("lock:job", 10)
            self.assertSoon(lambda: self.client.ttl("lock:job") > 60, "the lock was not renewed")


globals().update(in_both_protocols(__name__, RedisPyLock, PythonRedisLock))
