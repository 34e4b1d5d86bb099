"""The lock lens over redis-py's own Lock: nothing is found about one that is used as it should be, however many
threads and pooled connections take part, and what goes wrong is found under its name."""

from concurrent.futures import ThreadPoolExecutor

from redis.exceptions import LockNotOwnedError

from conversation import Conversation, in_both_protocols

WORKERS = 8
TURNS = 10  # for each worker: few enough that all of it is followed


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


globals().update(in_both_protocols(__name__, Lens))
