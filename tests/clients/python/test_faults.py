"""What redis-py's lock makes of requests that are lost, late or refused, as FAULT has it; in RESP2 and in RESP3.

The classical trap: SET NX is executed, its reply is lost, the client tries again and finds the lock taken, by its
own first attempt. No client works until that has expired. SET NX GET tells such a client what it needs to know.
"""

import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, LockNotOwnedError, ResponseError, TimeoutError
from redis.retry import Retry

from conversation import EVENT_SECONDS_MAX, Conversation, in_both_protocols

LOST_SECONDS = 1  # after which a reply that does not come is given up


class Faults(Conversation):
    server_arguments = ("--enable-fault-command", "local")

    def setUp(self):
        self.planter = self.connect()
        self.planter.execute_command("FAULT CLEAR")
        self.planter.flushall()

    def plant(self, *words):
        return self.planter.execute_command("FAULT ADD", *words)

    def connect_with_retries(self, retries):
        client = redis.Redis(
            port=self.server.port,
            protocol=self.protocol,
            socket_timeout=LOST_SECONDS,
            retry=Retry(NoBackoff(), retries),
        )
        self.addCleanup(client.close)
        return client

    def test_a_client_whose_reply_was_lost_finds_the_lock_taken_by_itself(self):
        client = self.connect_with_retries(1)
        self.plant("ON", "set", "TIMES", 1, "DROP-REPLY")
        lock = client.lock("lock", timeout=30)
        self.assertIs(lock.acquire(blocking=False), False)
        self.assertIs(lock.owned(), False)
        self.assertWithin(self.planter.pttl("lock"), 1, 30_000)
        self.assertIs(self.planter.lock("lock", timeout=30).acquire(blocking=False), False)

    def test_without_retries_the_lock_is_taken_and_its_taker_sees_an_exception(self):
        client = self.connect_with_retries(0)
        self.plant("ON", "set", "TIMES", 1, "DROP-REPLY")
        with self.assertRaises(TimeoutError):
            client.lock("lock", timeout=30).acquire(blocking=False)
        self.assertTrue(self.planter.exists("lock"))

    def test_who_asks_for_the_old_value_learns_that_the_lock_is_its_own(self):
        client = self.connect_with_retries(1)
        self.plant("ON", "set", "TIMES", 1, "DROP-REPLY")
        self.assertEqual(client.set("lock", "mine", nx=True, px=30_000, get=True), b"mine")
        self.assertEqual(client.set("lock", "other", nx=True, px=30_000, get=True), b"mine")

    def test_a_client_that_takes_the_lock_with_again_finds_its_own(self):
        client = self.connect_with_retries(1)
        self.plant("ON", "lock|acquire", "TIMES", 1, "DROP-REPLY")
        take = ("LOCK ACQUIRE", "lock", "mine", "PX", 30_000, "AGAIN")
        number = client.execute_command(*take)
        self.assertEqual(number, self.planter.execute_command("LOCK FENCE", "lock", "mine"))
        self.assertEqual(number, client.execute_command(*take, "WAIT", 1_000))
        self.assertIsNone(client.execute_command("LOCK ACQUIRE", "lock", "mine", "PX", 30_000))
        self.assertIsNone(client.execute_command("LOCK ACQUIRE", "lock", "other", "PX", 30_000, "AGAIN"))

    def test_a_client_that_waits_with_again_is_granted_the_lock_on_its_next_connection(self):
        client = self.connect_with_retries(1)
        first = self.planter.execute_command("LOCK ACQUIRE", "lock", "first", "PX", 30_000)
        self.plant("ON", "lock|acquire", "TIMES", 1, "DROP-REPLY")
        # It gives the first attempt up after a second, and the second one waits in its place.
        release = threading.Timer(LOST_SECONDS * 1.5, lambda: self.planter.delete("lock"))
        release.start()
        self.addCleanup(release.join)
        take = ("LOCK ACQUIRE", "lock", "mine", "PX", 30_000, "WAIT", 10_000, "AGAIN")
        self.assertGreater(client.execute_command(*take), first)
        self.assertEqual(self.planter.get("lock"), b"mine")

    def test_a_holder_that_wants_to_be_notified_hears_of_its_loss_and_goes_on(self):
        client = self.connect_with_retries(0)
        listener = self.planter.pubsub(ignore_subscribe_messages=True)
        self.addCleanup(listener.close)
        listener.subscribe("__lock@0__:lock")
        listener.get_message(timeout=EVENT_SECONDS_MAX)
        number = client.execute_command("LOCK ACQUIRE", "lock", "mine", "PX", 30_000, "NOTIFY")
        self.planter.delete("lock")
        message = listener.get_message(timeout=EVENT_SECONDS_MAX)
        self.assertEqual(message["data"], b"%d deleted" % number)
        # In RESP3 there was a push before this reply.
        self.assertIsNone(client.get("lock"))

    def test_a_release_whose_reply_was_lost_looks_like_a_lock_that_was_lost(self):
        client = self.connect_with_retries(1)
        lock = client.lock("lock", timeout=30)
        with lock:
            pass  # the server knows the script from now on: the first EVALSHA is the one that releases
        self.assertIs(lock.acquire(blocking=False), True)
        self.plant("ON", "evalsha", "TIMES", 1, "DROP-REPLY")
        with self.assertRaises(LockNotOwnedError):
            lock.release()
        self.assertFalse(self.planter.exists("lock"))

    def test_a_late_attempt_takes_the_lock_for_no_client(self):
        client = self.connect_with_retries(0)
        self.plant("ON", "set", "MATCH", "lo?k", "DELAY", 3_600_000)
        with self.assertRaises(TimeoutError):
            client.lock("lock", timeout=30).acquire(blocking=False)
        self.assertFalse(self.planter.exists("lock"))
        self.planter.execute_command("FAULT CLEAR")
        self.assertSoon(lambda: self.planter.exists("lock"), "the late attempt never came")

    def test_a_connection_that_is_closed_first_does_no_harm(self):
        client = self.connect_with_retries(1)
        self.plant("ON", "set", "TIMES", 1, "CLOSE")
        self.assertIs(client.lock("lock", timeout=30).acquire(blocking=False), True)
        self.plant("ON", "get", "CLOSE")
        with self.assertRaises(ConnectionError):
            client.get("lock")

    def test_errors_reach_the_library_as_its_own_exceptions(self):
        client = self.connect_with_retries(0)
        client.client_setname("worker")
        for text, exception in {
            "READONLY no": redis.exceptions.ReadOnlyError,
            "LOADING not yet": redis.exceptions.BusyLoadingError,
            "boom": ResponseError,
        }.items():
            self.plant("CLIENT", "worker", "ON", "get", "TIMES", 1, "ERROR", text)
            client.client_setname("worker")
            with self.assertRaises(exception):
                client.get("k")
        self.assertIsNone(client.get("k"))

    def test_a_delay_shorter_than_patience_is_only_a_delay(self):
        client = self.connect_with_retries(0)
        self.plant("ON", "set", "TIMES", 1, "DELAY", 20)
        started = time.monotonic()
        self.assertIs(client.lock("lock", timeout=30).acquire(blocking=False), True)
        self.assertWithin(time.monotonic() - started, 0.02, EVENT_SECONDS_MAX)

    def test_faults_are_listed(self):
        self.assertEqual(self.plant("ON", "set", "MATCH", "lock:*", "DROP-REPLY") > 0, True)
        (listed,) = self.planter.execute_command("FAULT LIST")
        if not isinstance(listed, dict):
            listed = dict(zip(listed[::2], listed[1::2]))
        self.assertEqual((listed[b"match"], listed[b"action"], listed[b"struck"]), (b"lock:*", b"DROP-REPLY", 0))


globals().update(in_both_protocols(__name__, Faults))
