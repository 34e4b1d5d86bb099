"""The lock lens over redis-py's own Lock and python-redis-lock: nothing is found about one that is used as it should be,
however many threads and pooled connections take part, and what goes wrong is found under its name."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import redis_lock
from redis.exceptions import LockNotOwnedError

from conversation import EVENT_SECONDS_MAX, Conversation, in_both_protocols

WORKERS = 8
TURNS = 10  # for each worker: few enough that all of it is followed

# It tells of every refusal, and refusals are wanted here.
logging.getLogger("redis_lock").setLevel(logging.ERROR)


class Lens(Conversation):
    def setUp(self):
        self.client = self.connect(decode_responses=True)
        self.client.flushall()
        self.client.execute_command("LOCKS RESET")

    def rules(self):
        """The rules that were broken, the oldest finding first."""
        pairs = [self.fields(finding) for finding in self.client.execute_command("LOCKS LOG", -1)]
        return [fields["rule"] for fields in reversed(pairs)]

    @staticmethod
    def fields(reply):
        """A map, which RESP2 has as a list of names and values in turn."""
        return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))

    def test_a_lock_that_is_used_as_it_should_be_raises_no_hint(self):
        counter = {"value": 0}

        def work(_):
            for _ in range(TURNS):
                with self.client.lock("lock", timeout=30, sleep=0.001) as lock:
                    counter["value"] += 1
                    lock.reacquire()
                    lock.extend(10)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(work, range(WORKERS)))
        self.assertEqual(counter["value"], WORKERS * TURNS)
        self.assertEqual(self.rules(), [])
        stats = self.fields(self.client.execute_command("LOCKS STATS"))
        self.assertEqual((stats["taken"], stats["released"]), (WORKERS * TURNS, WORKERS * TURNS))

    def test_a_lock_that_lasted_too_short_is_found_when_its_holder_comes_back(self):
        lock = self.client.lock("lock", timeout=0.01)
        self.assertTrue(lock.acquire())
        self.assertSoon(lambda: not self.client.exists("lock"), "the lock does not expire")
        with self.assertRaises(LockNotOwnedError):
            lock.release()
        self.assertEqual(self.rules(), ["expired-while-held"])

    def test_a_lock_that_another_deletes_is_found(self):
        with self.assertRaises(LockNotOwnedError), self.client.lock("lock", timeout=30):
            self.connect().delete("lock")
        self.assertEqual(self.rules()[0], "deleted-by-another")

    def shown(self, key):
        return self.fields(self.client.execute_command("LOCKS GET", key))

    def test_python_redis_lock_tells_who_waits_and_who_was_woken(self):
        holder, taken = redis_lock.Lock(self.client, "wake", expire=30), threading.Event()
        holder.acquire()

        def wait():
            with redis_lock.Lock(self.connect(client_name="waiting"), "wake", expire=30):
                taken.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        self.assertSoon(lambda: self.shown("lock:wake")["waiting"] == 1, "no client waits")
        shown = self.shown("lock:wake")
        self.assertEqual((shown["state"], shown["waiting-list"]), ("held", "lock-signal:wake"))
        self.assertEqual(self.fields(shown["waiting-clients"][0])["name"], "waiting")
        self.assertGreaterEqual(shown["refused"], 1)
        holder.release()
        self.assertTrue(taken.wait(EVENT_SECONDS_MAX))
        waiting.join()
        shown = self.shown("lock:wake")
        self.assertEqual((shown["state"], shown["waiting"], shown["woken"]), ("released", 0, 2))
        self.assertEqual(self.rules(), [])

    def test_python_redis_lock_raises_no_hint_when_many_take_it_in_turn(self):
        counter = {"value": 0}

        def work(_):
            lock = redis_lock.Lock(self.client, "job", expire=30)
            for _ in range(TURNS):
                with lock:
                    counter["value"] += 1

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(work, range(WORKERS)))
        self.assertEqual(counter["value"], WORKERS * TURNS)
        self.assertEqual(self.rules(), [])
        stats = self.fields(self.client.execute_command("LOCKS STATS"))
        turns = WORKERS * TURNS
        self.assertEqual((stats["taken"], stats["released"], stats["woken"]), (turns, turns, turns))

    def test_python_redis_lock_that_lasted_too_short_or_was_reset_is_found(self):
        late = redis_lock.Lock(self.client, "job", expire=1)
        late.acquire()
        self.client.pexpire("lock:job", 1)
        self.assertSoon(lambda: not self.client.exists("lock:job"), "the lock does not expire")
        with self.assertRaises(redis_lock.NotAcquired):
            late.release()
        self.assertEqual(self.rules(), ["expired-while-held"])
        holder = redis_lock.Lock(self.client, "job", expire=30)
        holder.acquire()
        redis_lock.Lock(self.connect(), "job").reset()
        self.assertEqual(self.rules(), ["expired-while-held", "deleted-by-another"])


globals().update(in_both_protocols(__name__, Lens))
