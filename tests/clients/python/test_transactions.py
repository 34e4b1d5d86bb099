"""Transactions (MULTI, EXEC, WATCH) and Lua scripts through redis-py's own methods, in RESP2 and in RESP3."""

import threading
from concurrent.futures import ThreadPoolExecutor

from redis.exceptions import ExecAbortError, NoScriptError, ResponseError, WatchError

from conversation import REPLY_SECONDS_MAX, Conversation, in_both_protocols

WORKERS = 8
TURNS = 25  # for each worker
PIPELINE_COMMANDS = 10_000

COMPARE_AND_SET = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2])
    return 1
end
return 0
"""


class Transactions(Conversation):
    def setUp(self):
        self.client = self.connect()
        self.other = self.connect()
        self.client.flushall()

    def test_a_transaction_answers_everything_at_once(self):
        with self.client.pipeline() as pipe:
            pipe.set("key", "v", ex=100).get("key").incr("n", 5).get("nosuchkey").ttl("key").mget("key", "n")
            value = pipe.execute()
        self.assertEqual(value, [True, b"v", 5, None, 100, [b"v", b"5"]])

    def test_a_transaction_of_ten_thousand_commands_answers_in_order(self):
        with self.client.pipeline() as pipe:
            for number in range(PIPELINE_COMMANDS):
                pipe.setnx(f"key{number % 100}", number)
            answers = pipe.execute()
        self.assertTrue(answers == [True] * 100 + [False] * (PIPELINE_COMMANDS - 100), "a reply is wrong or missing")

    def test_an_error_when_it_runs_leaves_its_neighbours_alone(self):
        with self.client.pipeline() as pipe:
            pipe.set("key", "text").incr("key").set("after", "v")
            before, error, after = pipe.execute(raise_on_error=False)
            self.assertEqual((before, after), (True, True))
            self.assertIsInstance(error, ResponseError)
            self.assertIn("not an integer", str(error))
            pipe.incr("key").set("after", "w")
            with self.assertRaisesRegex(ResponseError, "Command # 1 .*not an integer"):
                pipe.execute()
        self.assertEqual(self.client.get("after"), b"w")

    def test_a_command_that_cannot_be_queued_stops_the_whole(self):
        for command, complaint in ((("SETNX", "key"), "wrong number of arguments"), (("NOSUCH",), "unknown command")):
            with self.subTest(command), self.client.pipeline() as pipe:
                pipe.set("key", "v").execute_command(*command)
                with self.assertRaisesRegex(ResponseError, complaint):
                    pipe.execute()
                self.assertEqual(self.client.exists("key"), 0)
        # The same, word for word, on one connection.
        with self.connect(single_connection_client=True) as raw:
            self.assertEqual(raw.execute_command("MULTI"), b"OK")
            with self.assertRaisesRegex(ResponseError, "wrong number of arguments"):
                raw.execute_command("SETNX", "key")
            with self.assertRaisesRegex(ExecAbortError, "Transaction discarded because of previous errors"):
                raw.execute_command("EXEC")
            with self.assertRaisesRegex(ResponseError, "EXEC without MULTI"):
                raw.execute_command("EXEC")

    def test_a_transaction_fails_when_a_watched_key_changes(self):
        for name, change in {
            "set": lambda: self.other.set("key", "theirs"),
            "set to what it was": lambda: self.other.set("key", "before"),
            "deleted": lambda: self.other.delete("key"),
            "expires later": lambda: self.other.expire("key", 100),
            "renamed": lambda: self.other.rename("key", "elsewhere"),
            "overwritten by a rename": lambda: self.other.rename("source", "key"),
            "flushed": lambda: self.other.flushdb(),
            "changed by a script": lambda: self.other.eval("redis.call('APPEND', KEYS[1], '!')", 1, "key"),
            "changed in a transaction": lambda: self.other.pipeline().append("key", "!").execute(),
        }.items():
            with self.subTest(name), self.client.pipeline() as pipe:
                self.client.mset({"key": "before", "source": "v"})
                pipe.watch("unrelated", "key")
                self.assertEqual(pipe.get("key"), b"before")
                change()
                pipe.multi()
                pipe.set("key", "mine").set("trace", "v")
                with self.assertRaises(WatchError):
                    pipe.execute()
                self.assertNotEqual(self.client.get("key"), b"mine")
                self.assertEqual(self.client.exists("trace"), 0)

    def test_a_transaction_runs_when_no_watched_key_changes(self):
        for name, change in {
            "another key": lambda: self.other.set("other", "v"),
            "only read": lambda: (self.other.get("key"), self.other.setnx("key", "v"), self.other.delete("nosuchkey")),
            "the same key of another database": lambda: self.connect(db=1).set("key", "v"),
        }.items():
            with self.subTest(name), self.client.pipeline() as pipe:
                self.client.set("key", "before")
                pipe.watch("key")
                change()
                pipe.multi()
                pipe.set("key", "mine")
                self.assertEqual(pipe.execute(), [True])

    def test_a_watch_that_was_given_up_does_not_count(self):
        for give_up in ("unwatch", "reset"):
            with self.subTest(give_up), self.client.pipeline() as pipe:
                pipe.watch("key")
                self.other.incr("key")
                getattr(pipe, give_up)()
                pipe.set("done", give_up)
                self.assertEqual(pipe.execute(), [True])
        with self.connect(single_connection_client=True) as raw:
            for word in ("WATCH key", "MULTI", "DISCARD"):
                self.assertIn(raw.execute_command(*word.split()), (True, b"OK"))
            self.other.incr("key")
            self.assertEqual(raw.pipeline().incr("key").execute(), [4])

    def test_a_key_that_comes_to_be_was_changed(self):
        with self.client.pipeline() as pipe:
            pipe.watch("nosuchkey")
            self.other.setnx("nosuchkey", "v")
            pipe.multi()
            pipe.get("nosuchkey")
            with self.assertRaises(WatchError):
                pipe.execute()

    def test_eight_threads_count_by_trying_again(self):
        together = threading.Barrier(WORKERS, timeout=REPLY_SECONDS_MAX)
        self.client.set("counter", 0)

        def add_one(pipe):
            value = int(pipe.get("counter"))
            pipe.multi()
            pipe.set("counter", value + 1)

        def count(client):
            together.wait()
            for _ in range(TURNS):
                self.assertEqual(client.transaction(add_one, "counter"), [True])

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(count, [self.connect() for _ in range(WORKERS)]))
        self.assertEqual(self.client.get("counter"), b"%d" % (WORKERS * TURNS))

    def test_no_client_sees_half_a_transaction(self):
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                number += 1
                self.other.pipeline().set("left", number).set("right", number).execute()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                seen = [self.client.mget("left", "right") for _ in range(500)]
            finally:
                stop.set()
            writing.result(REPLY_SECONDS_MAX)
        self.assertGreater(len({left for left, _ in seen}), 1, "nothing was written meanwhile")
        self.assertEqual([pair for pair in seen if pair[0] != pair[1]], [])


class Scripts(Conversation):
    def setUp(self):
        self.client = self.connect()
        self.client.flushall()
        self.client.script_flush()

    def test_a_registered_script_is_sent_once_and_then_named(self):
        script = self.client.register_script(COMPARE_AND_SET)
        self.assertEqual(self.client.script_exists(script.sha), [False])
        with self.assertRaises(NoScriptError):
            self.client.evalsha(script.sha, 1, "key", "a", "b")
        self.client.set("key", "old")
        self.assertEqual(script(keys=["key"], args=["old", "new"]), 1)
        self.assertEqual(script(keys=["key"], args=["old", "newer"]), 0)
        self.assertEqual(self.client.get("key"), b"new")
        self.assertEqual(self.client.script_exists(script.sha, "0" * 40), [True, False])
        self.assertEqual(self.client.evalsha(script.sha.upper(), 1, "key", "new", "newest"), 1)
        self.client.script_flush("SYNC")
        self.assertEqual(self.client.script_exists(script.sha), [False])
        self.assertEqual(script(keys=["key"], args=["newest", "last"]), 1)

    def test_scripts_run_in_pipelines_and_transactions(self):
        script = self.client.register_script(COMPARE_AND_SET)
        for transaction in (False, True):
            with self.subTest(transaction=transaction), self.client.pipeline(transaction=transaction) as pipe:
                self.client.script_flush()
                pipe.set("key", "a")
                script(keys=["key"], args=["a", "b"], client=pipe)
                script(keys=["key"], args=["a", "c"], client=pipe)
                pipe.get("key")
                self.assertEqual(pipe.execute(), [True, 1, 0, b"b"])

    def test_values_of_lua_become_replies(self):
        resp2_or_3 = {2: lambda resp2, _: resp2, 3: lambda _, resp3: resp3}[self.protocol]
        for lua, reply in {
            "return 1": 1,
            "return 3.99": 3,
            "return 'text'": b"text",
            "return nil": None,
            "return true": 1,
            "return false": None,
            "return {1, 'two', {3, {}}}": [1, b"two", [3, []]],
            "return {1, nil, 3}": [1],
            "return redis.status_reply('FINE')": b"FINE",
            "return {ok = 'FINE'}": b"FINE",
            "return #ARGV .. KEYS[1] .. ARGV[2]": b"2key\xff\x00",
            "redis.setresp(3); return {double = 2.5}": resp2_or_3(b"2.5", 2.5),
            "redis.setresp(3); return true": resp2_or_3(1, True),
            "redis.setresp(3); return {map = {field = 'v'}}": resp2_or_3([b"field", b"v"], {b"field": b"v"}),
            "return redis.sha1hex('')": b"da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "return cjson.encode({1, 'two', {a = true}})": b'[1,"two",{"a":true}]',
            "return cmsgpack.unpack(cmsgpack.pack('packed'))": b"packed",
            "return bit.tohex(bit.bxor(0xff, 0x0f))": b"000000f0",
            "return struct.unpack('>I2', struct.pack('>I2', 513))": 513,
        }.items():
            with self.subTest(lua):
                self.assertEqual(self.client.eval(lua, 1, "key", "first", b"\xff\x00"), reply)

    def test_what_goes_wrong_in_a_script_is_told(self):
        self.client.set("text", "abc")
        for lua, message in {
            "return redis.error_reply('MINE to tell')": "MINE to tell",
            "return {err = 'MINE too'}": "MINE too",
            "return redis.call('INCR', KEYS[1])": "value is not an integer or out of range",
            "return redis.call('NOSUCH')": "Unknown Redis command called from script",
            "return redis.call('GET')": "Wrong number of args calling Redis command from script",
            "return nosuchvariable": "Script attempted to access nonexistent global variable 'nosuchvariable'",
            "this is not lua": "Error compiling script",
        }.items():
            with self.subTest(lua), self.assertRaises(ResponseError) as raised:
                self.client.eval(lua, 1, "text")
            self.assertIn(message, str(raised.exception))
        caught = "local answer = redis.pcall('INCR', KEYS[1]); return 'caught ' .. answer.err"
        self.assertIn(b"caught ERR value is not an integer", self.client.eval(caught, 1, "text"))
        self.assertEqual(self.client.get("text"), b"abc")

    def test_a_script_that_only_reads_may_not_write(self):
        self.client.set("key", "v")
        self.assertEqual(self.client.eval_ro("return redis.call('GET', KEYS[1])", 1, "key"), b"v")
        with self.assertRaisesRegex(ResponseError, "Write commands are not allowed from read-only scripts"):
            self.client.eval_ro("return redis.call('SET', KEYS[1], 'w')", 1, "key")
        sha = self.client.script_load("return redis.call('GET', KEYS[1])")
        self.assertEqual(self.client.evalsha_ro(sha, 1, "key"), b"v")

    def test_a_script_is_seen_whole_or_not_at_all(self):
        script = self.client.register_script(
            "local value = redis.call('GET', KEYS[1]); redis.call('SET', KEYS[1], value + 1); return value + 1"
        )
        self.client.set("counter", 0)
        together = threading.Barrier(WORKERS, timeout=REPLY_SECONDS_MAX)

        def count(client):
            together.wait()
            return [script(keys=["counter"], client=client) for _ in range(TURNS)]

        with ThreadPoolExecutor(WORKERS) as pool:
            answers = list(pool.map(count, [self.connect() for _ in range(WORKERS)]))
        self.assertEqual(sorted(sum(answers, [])), list(range(1, WORKERS * TURNS + 1)))

    def test_a_script_that_does_not_end_is_killed(self):
        self.client.config_set("busy-reply-threshold", 20)
        self.addCleanup(self.client.config_set, "busy-reply-threshold", 5000)
        # A refusal counts as something to try again, and a busy server is what is waited for.
        other = self.connect(retry=None)
        other.ping()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.client.eval, "while true do end", 0)

            def is_killed():
                try:
                    return other.script_kill()
                except ResponseError as refusal:
                    self.assertRegex(str(refusal), "No scripts in execution right now|BUSY|busy running a script")
                    return False

            self.assertSoon(is_killed, "the script was not killed")
            with self.assertRaisesRegex(ResponseError, "Script killed by user with SCRIPT KILL"):
                running.result(REPLY_SECONDS_MAX)
        self.assertTrue(self.client.ping())


globals().update(in_both_protocols(__name__, Transactions, Scripts))
