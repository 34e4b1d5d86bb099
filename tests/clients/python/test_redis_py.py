"""Conversations of redis-py with the server, the same ones in RESP2 and in RESP3.

Replies are compared as the library hands them out: bytes, since nothing is decoded.
redis-py's own Lock is in test_locks.py: it releases by a Lua script.
"""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis

from conversation import EVENT_SECONDS_MAX, REPLY_SECONDS_MAX, Conversation, in_both_protocols

CONNECTIONS = 200
PIPELINE_COMMANDS = 10_000
DEEP_PIPELINE_COMMANDS = 200_000  # more than all buffers on the way hold
ALL_BYTES = bytes(range(256))


def text(word):
    """What the library decodes in one protocol only: names and parameters."""
    return word.decode() if isinstance(word, bytes) else word


class Commands(Conversation):
    def setUp(self):
        self.client = self.connect()
        self.client.flushdb()

    # Connecting

    def test_a_client_introduces_itself_and_chooses_its_database(self):
        # On connecting the library sends HELLO (RESP3), CLIENT SETNAME, CLIENT SETINFO and SELECT.
        named = self.connect(client_name="painter", db=3)
        named.flushdb()
        self.assertIs(named.ping(), True)
        self.assertEqual(text(named.client_getname()), "painter")
        self.assertEqual(self.spoken_protocol(named), self.protocol)
        named.set("canvas", "blue")
        self.assertEqual(named.get("canvas"), b"blue")
        self.assertIsNone(self.client.get("canvas"))
        named.flushdb()

    def spoken_protocol(self, client):
        reply = client.execute_command("HELLO")
        if isinstance(reply, list):  # RESP2 has no maps
            reply = dict(zip(reply[::2], reply[1::2]))
        return reply[b"proto"]

    # SETNX, SET, GET, GETSET, DEL

    def test_setnx_sets_once(self):
        self.assertIs(self.client.setnx("mykey", "Hello"), True)
        self.assertIs(self.client.setnx("mykey", "World"), False)
        self.assertEqual(self.client.get("mykey"), b"Hello")

    def test_get_of_an_absent_key_is_none(self):
        self.assertIsNone(self.client.get("nosuchkey"))

    def test_set_overwrites_and_forgets_the_expiry(self):
        self.assertIs(self.client.set("key", "old", ex=100), True)
        self.assertIs(self.client.set("key", "new"), True)
        self.assertEqual(self.client.get("key"), b"new")
        self.assertEqual(self.client.ttl("key"), -1)

    def test_set_nx_and_xx_look_whether_the_key_is_there(self):
        self.assertIsNone(self.client.set("key", "a", xx=True))
        self.assertIs(self.client.set("key", "b", nx=True), True)
        self.assertIsNone(self.client.set("key", "c", nx=True))
        self.assertEqual(self.client.get("key"), b"b")
        self.assertIs(self.client.set("key", "d", xx=True), True)
        self.assertEqual(self.client.get("key"), b"d")

    def test_set_get_answers_the_old_value(self):
        self.assertIsNone(self.client.set("key", "first", get=True))
        self.assertEqual(self.client.set("key", "second", get=True), b"first")
        self.assertEqual(self.client.set("key", "third", nx=True, get=True), b"second")
        self.assertEqual(self.client.get("key"), b"second")

    def test_set_takes_an_expiry_in_four_ways(self):
        now = time.time()
        for name, options in {
            "seconds": {"ex": 100},
            "milliseconds": {"px": 100_000},
            "second of the clock": {"exat": int(now) + 100},
            "millisecond of the clock": {"pxat": int(now * 1000) + 100_000},
        }.items():
            with self.subTest(name):
                self.assertIs(self.client.set(name, "v", **options), True)
                self.assertWithin(self.client.ttl(name), 60, 100)
                self.assertWithin(self.client.pttl(name), 60_000, 100_000)

    def test_set_keepttl_keeps_the_expiry(self):
        self.client.set("key", "old", ex=100)
        self.assertIs(self.client.set("key", "new", keepttl=True), True)
        self.assertEqual(self.client.get("key"), b"new")
        self.assertWithin(self.client.ttl("key"), 60, 100)

    def test_a_key_set_to_expire_in_the_past_is_absent(self):
        self.assertIs(self.client.set("lock", "a", exat=1), True)
        self.assertIsNone(self.client.get("lock"))
        self.assertIs(self.client.setnx("lock", "b"), True)

    def test_getset_swaps_and_forgets_the_expiry(self):
        self.assertIsNone(self.client.getset("key", "first"))
        self.client.expire("key", 100)
        self.assertEqual(self.client.getset("key", "second"), b"first")
        self.assertEqual(self.client.get("key"), b"second")
        self.assertEqual(self.client.ttl("key"), -1)

    def test_del_counts_the_keys_that_were_there(self):
        self.client.set("key1", "Hello")
        self.client.set("key2", "World")
        self.assertEqual(self.client.delete("key1", "key2", "key3"), 2)
        self.assertEqual(self.client.delete("key1"), 0)
        self.assertIsNone(self.client.get("key1"))

    # Locks by SET NX PX

    def test_a_lock_is_released_only_by_its_holder(self):
        self.assertIs(self.client.set("lock", "mine", nx=True, px=30_000), True)
        self.assertIsNone(self.client.set("lock", "yours", nx=True, px=30_000))
        self.assertEqual(self.release("lock", b"yours"), 0)
        self.assertEqual(self.release("lock", b"mine"), 1)
        self.assertIs(self.client.set("lock", "yours", nx=True, px=30_000), True)

    def release(self, name, token):
        return self.client.delete(name) if self.client.get(name) == token else 0

    def test_a_lock_that_expired_can_be_taken_again(self):
        self.client.set("lock", "a", nx=True, px=50)
        deadline = time.monotonic() + EVENT_SECONDS_MAX
        while self.client.set("lock", "b", nx=True) is None:
            self.assertLess(time.monotonic(), deadline, "the lock never expired")
        self.assertEqual(self.client.get("lock"), b"b")
        self.assertEqual(self.client.ttl("lock"), -1)

    # Keys and the server

    def test_exists_and_type_tell_what_is_there(self):
        self.client.set("here", "v")
        self.assertEqual(self.client.exists("here", "here", "nosuchkey"), 2)
        self.assertEqual(self.client.exists("nosuchkey"), 0)
        self.assertEqual(self.client.type("here"), b"string")
        self.assertEqual(self.client.type("nosuchkey"), b"none")

    def test_an_expiry_is_given_seen_and_taken_away(self):
        self.assertEqual((self.client.ttl("key"), self.client.pttl("key")), (-2, -2))
        self.assertIs(self.client.expire("key", 100), False)
        self.client.set("key", "v")
        self.assertEqual((self.client.ttl("key"), self.client.pttl("key")), (-1, -1))
        self.assertIs(self.client.expire("key", 100), True)
        self.assertWithin(self.client.ttl("key"), 60, 100)
        self.assertIs(self.client.pexpire("key", 500_000), True)
        self.assertWithin(self.client.pttl("key"), 460_000, 500_000)
        self.assertIs(self.client.persist("key"), True)
        self.assertIs(self.client.persist("key"), False)
        self.assertEqual(self.client.ttl("key"), -1)
        self.assertIs(self.client.pexpire("key", -1), True)
        self.assertEqual(self.client.exists("key"), 0)

    def test_dbsize_counts_and_flushdb_empties(self):
        self.assertEqual(self.client.dbsize(), 0)
        for number in range(5):
            self.client.set(f"key{number}", "v")
        self.assertEqual(self.client.dbsize(), 5)
        self.assertIs(self.client.flushdb(), True)
        self.assertEqual(self.client.dbsize(), 0)

    def test_info_describes_the_server(self):
        self.client.set("key", "v")
        info = self.client.info()
        self.assertRegex(info["redis_version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(info["tcp_port"], self.server.port)
        self.assertGreaterEqual(info["connected_clients"], 1)
        self.assertEqual(info["db0"]["keys"], 1)
        self.assertNotIn("tcp_port", self.client.info("clients"))

    def test_config_get_tells_parameters_by_name_and_pattern(self):
        self.assertEqual(self.config_get("port"), {"port": str(self.server.port)})
        self.assertEqual(self.config_get("sav?"), {"save": ""})
        self.assertEqual(self.config_get("nosuchparameter"), {})

    def config_get(self, pattern):
        return {text(name): text(value) for name, value in self.client.config_get(pattern).items()}

    # Much at once

    def test_a_pipeline_answers_ten_thousand_commands_in_order(self):
        pipeline = self.client.pipeline(transaction=False)
        expected = []
        for number in range(PIPELINE_COMMANDS // 2):
            pipeline.set(f"key:{number}", f"value:{number}").get(f"key:{number}")
            expected += [True, b"value:%d" % number]
        self.assertTrue(pipeline.execute() == expected, "a reply is missing, wrong or out of place")
        self.assertEqual(self.client.dbsize(), PIPELINE_COMMANDS // 2)

    def test_a_pipeline_is_written_whole_before_its_replies_are_read(self):
        value = b"v" * 100
        self.client.set("key", value)
        self.client.config_resetstat()
        replies = self.client.pipeline(transaction=False)
        for _ in range(DEEP_PIPELINE_COMMANDS):
            replies.get("key")
        self.assertTrue(replies.execute() == [value] * DEEP_PIPELINE_COMMANDS, "a reply is missing or wrong")
        # After a timeout the library sends everything again.
        self.assertEqual(self.client.info("commandstats")["cmdstat_get"]["calls"], DEEP_PIPELINE_COMMANDS)

    def test_keys_and_values_may_hold_any_bytes(self):
        for binary in (ALL_BYTES, ALL_BYTES[::-1] * 3, b"\0", b"\r\n", b"*1\r\n$4\r\nPING\r\n", b"$-1\r\n", b""):
            with self.subTest(binary=binary):
                self.assertIs(self.client.setnx(b"key" + binary, binary), True)
                self.assertIs(self.client.set(binary, binary), True)
                self.assertEqual(self.client.get(b"key" + binary), binary)
                self.assertEqual(self.client.getset(binary, b"\0\r\n" + binary), binary)
                self.assertEqual(self.client.get(binary), b"\0\r\n" + binary)
                self.assertEqual(self.client.delete(binary), 1)

    def test_a_value_of_64_mib_comes_back_unchanged(self):
        value = random.Random(64).randbytes(64 << 20)
        self.assertIs(self.client.set("large", value), True)
        self.assertTrue(self.client.get("large") == value, "the value changed on its way")
        self.assertEqual(self.client.delete("large"), 1)

    def test_of_two_hundred_connections_one_wins_and_all_are_served(self):
        clients = [self.connect(single_connection_client=True) for _ in range(CONNECTIONS)]
        self.assertGreaterEqual(self.client.info("clients")["connected_clients"], CONNECTIONS)
        together = threading.Barrier(CONNECTIONS, timeout=REPLY_SECONDS_MAX)

        def race(number):
            together.wait()
            won = clients[number].setnx("prize", number)
            stored = clients[number].set(f"own:{number}", f"value:{number}")
            return won, stored, clients[number].get(f"own:{number}")

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            answers = list(pool.map(race, range(CONNECTIONS)))
        winners = [number for number, (won, _, _) in enumerate(answers) if won]
        self.assertEqual(len(winners), 1)
        self.assertEqual(self.client.get("prize"), b"%d" % winners[0])
        self.assertEqual(
            [own for _, *own in answers],
            [[True, b"value:%d" % number] for number in range(CONNECTIONS)],
        )

    # Errors

    def test_errors_carry_the_texts_of_redis(self):
        self.client.set("text", "abc")
        for command, message in {
            ("SETNX", "k"): "wrong number of arguments for 'setnx' command",
            ("GET",): "wrong number of arguments for 'get' command",
            ("SET", "k", "v", "NX", "XX"): "syntax error",
            ("SET", "k", "v", "EX", "0"): "invalid expire time in 'set' command",
            ("EXPIRE", "text", "soon"): "value is not an integer or out of range",
            ("NOSUCH", "a"): "unknown command 'NOSUCH', with args beginning with: 'a' ",
        }.items():
            with self.subTest(command=command):
                with self.assertRaises(redis.ResponseError) as raised:
                    self.client.execute_command(*command)
                self.assertEqual(str(raised.exception), message)
        self.assertEqual(self.client.get("text"), b"abc")

    def test_an_error_inside_a_pipeline_leaves_its_neighbours_alone(self):
        pipeline = self.client.pipeline(transaction=False)
        pipeline.set("key", "v").execute_command("SETNX", "key").get("key")
        before, error, after = pipeline.execute(raise_on_error=False)
        self.assertEqual((before, after), (True, b"v"))
        self.assertIsInstance(error, redis.ResponseError)
        self.assertIn("wrong number of arguments for 'setnx' command", str(error))


class Restart(Conversation):
    def test_a_client_comes_back_with_its_name_and_database(self):
        client = self.connect(client_name="patient", db=3)
        self.assertIs(client.set("key", "before"), True)
        self.server.stop()
        with self.assertRaises(redis.ConnectionError):
            self.connect(retry=None).ping()
        self.server.start()
        self.assertIsNone(client.get("key"))
        self.assertIs(client.set("key", "after"), True)
        self.assertEqual(client.get("key"), b"after")
        self.assertEqual(text(client.client_getname()), "patient")
        self.assertIsNone(self.connect().get("key"))


class Password(Conversation):
    # A refusal counts as a broken connection to redis-py and would be retried: hence no retry.
    server_arguments = ("--requirepass", "secret")

    def test_without_a_password_nothing_is_answered(self):
        # In RESP3 the library's first word is HELLO, which has a refusal of its own.
        refusal = {2: "Authentication required", 3: "HELLO must be called with the client already authenticated"}
        with self.assertRaisesRegex(redis.AuthenticationError, refusal[self.protocol]):
            self.connect(retry=None).ping()

    def test_a_wrong_password_is_refused(self):
        for user in ({}, {"username": "default"}, {"username": "stranger"}):
            with self.subTest(user), self.assertRaisesRegex(
                redis.AuthenticationError, "invalid username-password pair or user is disabled"
            ):
                self.connect(password="wrong", retry=None, **user).ping()

    def test_the_right_password_opens_the_door(self):
        for user in ({}, {"username": "default"}):
            with self.subTest(user):
                client = self.connect(password="secret", client_name="guest", db=3, **user)
                self.assertIs(client.set("key", "v"), True)
                self.assertEqual(client.get("key"), b"v")
                self.assertEqual(text(client.client_getname()), "guest")


globals().update(in_both_protocols(__name__, Commands, Restart, Password))
