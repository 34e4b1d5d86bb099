"""The lock lens over lock libraries of PyPI: nothing is found about one that is used as it should be, and a lock that
lasted too short, that another client deletes, or that is flushed away is found under its name. The other libraries are
told by their scripts, in tests/locks/lock_libraries.rs."""

import logging
import unittest

import pottery
import redlock
import sherlock

from conversation import Conversation, in_both_protocols

# They tell of what goes wrong here by intention.
logging.disable(logging.ERROR)


class Library:
    """What the stories need of a library; `client` is a connection of the lock's own."""

    def __init__(self, client):
        self.client = client

    def release(self, lock):
        lock.release()


class RedlockPy(Library):
    key = "lock"

    def take(self):
        return redlock.Redlock([self.client], retry_count=1).lock(self.key, 30_000) or None

    def release(self, lock):
        redlock.Redlock([self.client], retry_count=1).unlock(lock)


class Sherlock(Library):
    key = "lock"

    def take(self):
        lock = sherlock.RedisLock(self.key, client=self.client, expire=30, timeout=0.01, retry_interval=0.01)
        return lock if lock.acquire(blocking=False) else None


class Pottery(Library):
    key = "redlock:lock"

    def take(self):
        lock = pottery.Redlock(key="lock", masters={self.client}, auto_release_time=30)
        return lock if lock.acquire(blocking=False) else None


class LensOfLibraries(Conversation):
    server_arguments = ("--enable-clock-command", "yes")

    def setUp(self):
        self.client = self.connect(decode_responses=True)
        self.client.execute_command("CLOCK", "FREEZE")

    def rules(self):
        """The rules that were broken, the oldest finding first."""
        found = self.client.execute_command("LOCKS LOG", -1)
        fields = [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2])) for one in found]
        return [each["rule"] for each in reversed(fields)]

    def stories(self):
        """Each library, with two clients of it, on a server that knows of no misuse."""
        for library in (RedlockPy, Sherlock, Pottery):
            self.forget()
            yield library(self.connect()), library(self.connect())

    def forget(self):
        self.client.flushall()
        self.client.execute_command("LOCKS RESET")

    def test_correct_use_raises_no_hint(self):
        for one, other in self.stories():
            for _ in range(3):
                lock = one.take()
                self.assertIsNotNone(lock)
                self.assertIsNone(other.take())
                if isinstance(one, Pottery):
                    lock.extend()
                    self.assertTrue(lock.locked())
                one.release(lock)
                if isinstance(one, Pottery):
                    self.assertFalse(lock.locked())
                lock = other.take()
                self.assertIsNotNone(lock)
                other.release(lock)
            self.assertEqual(self.rules(), [], type(one).__name__)

    def test_a_lock_that_lasted_too_short_is_found(self):
        for one, other in self.stories():
            late = one.take()
            self.client.execute_command("CLOCK", "ADVANCE", 31_000)
            self.assertIsNotNone(other.take())
            self.try_release(one, late)
            self.assertEqual(self.rules(), ["expired-while-held"], type(one).__name__)

    def test_a_lock_that_another_deletes_overwrites_or_prolongs_is_found(self):
        kept = []  # sherlock releases what is collected
        for one, _ in self.stories():
            for line, rule in (
                (("DEL", one.key), "deleted-by-another"),
                (("SET", one.key, "a-token-of-another", "PX", 30_000), "overwritten-by-another"),
                (("PERSIST", one.key), "extended-by-another"),
            ):
                self.forget()
                kept.append(one.take())
                self.assertIsNotNone(kept[-1])
                self.client.execute_command(*line)
                self.assertEqual(self.rules(), [rule], type(one).__name__)

    def test_a_lock_that_is_flushed_away_is_found(self):
        for one, _ in self.stories():
            lock = one.take()
            self.client.flushall()
            self.try_release(one, lock)
            self.assertEqual(self.rules(), ["lost-while-held"], type(one).__name__)

    def try_release(self, library, lock):
        """Some libraries raise if the lock is not theirs, and some do not."""
        try:
            library.release(lock)
        except Exception as error:  # each has a class of its own
            self.assertIn("Lock", type(error).__name__ + type(error).__base__.__name__)


globals().update(in_both_protocols(__name__, LensOfLibraries))

if __name__ == "__main__":
    unittest.main()
