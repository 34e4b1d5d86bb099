"""Publishing and subscribing through redis-py, and what the server itself publishes about keys.

In RESP2 a subscribed connection can do little else, in RESP3 messages are pushes: the library hides which.
"""

import asyncio
import queue
from concurrent.futures import ThreadPoolExecutor

import redis.asyncio

from conversation import EVENT_SECONDS_MAX, REPLY_SECONDS_MAX, Conversation, in_both_protocols

MESSAGES = 1000
SUBSCRIBERS = 50
ALL_BYTES = bytes(range(256))


class Listening(Conversation):
    def setUp(self):
        self.client = self.connect()
        self.client.flushall()
        self.client.config_set("notify-keyspace-events", "")

    def listen(self, *channels, patterns=(), shards=()):
        """A subscription whose confirmations have come."""
        pubsub = self.client.pubsub()
        self.addCleanup(pubsub.close)
        for subscribe, names in (
            (pubsub.subscribe, channels),
            (pubsub.psubscribe, patterns),
            (pubsub.ssubscribe, shards),
        ):
            if names:
                subscribe(*names)
                for _ in names:
                    self.assertRegex(self.next(pubsub)["type"], "^[ps]?subscribe$")
        return pubsub

    def next(self, pubsub):
        message = pubsub.get_message(timeout=EVENT_SECONDS_MAX)
        self.assertIsNotNone(message, "nothing came")
        return message

    def heard(self, pubsub, count):
        return [(message["channel"], message["data"]) for message in (self.next(pubsub) for _ in range(count))]


class PubSub(Listening):
    def test_a_message_reaches_who_listens(self):
        self.assertEqual(self.client.publish("news", "unheard"), 0)
        ears = [self.listen("news", "sport") for _ in range(2)]
        self.assertEqual(self.client.publish("news", "hello"), 2)
        self.assertEqual(self.client.publish("weather", "rain"), 0)
        self.assertEqual(self.client.publish("sport", b"\r\n" + ALL_BYTES), 2)
        for pubsub in ears:
            expected = {"type": "message", "pattern": None, "channel": b"news", "data": b"hello"}
            self.assertEqual(self.next(pubsub), expected)
            self.assertEqual(self.heard(pubsub, 1), [(b"sport", b"\r\n" + ALL_BYTES)])

    def test_confirmations_count_what_is_subscribed(self):
        pubsub = self.client.pubsub()
        self.addCleanup(pubsub.close)
        pubsub.subscribe("a", "b", "a")
        pubsub.psubscribe("p*")
        pubsub.unsubscribe("b", "nosuchchannel")
        pubsub.punsubscribe("p*")
        pubsub.unsubscribe()
        told = [self.next(pubsub) for _ in range(7)]
        self.assertEqual(
            [(each["type"], each["channel"], each["data"]) for each in told],
            [
                ("subscribe", b"a", 1),  # the library sends a name given twice once
                ("subscribe", b"b", 2),
                ("psubscribe", b"p*", 3),
                ("unsubscribe", b"b", 2),
                ("unsubscribe", b"nosuchchannel", 2),
                ("punsubscribe", b"p*", 1),
                ("unsubscribe", b"a", 0),
            ],
        )
        self.assertEqual(self.client.publish("a", "unheard"), 0)
        self.assertFalse(pubsub.subscribed)

    def test_patterns_catch_channels(self):
        pubsub = self.listen("news.art", patterns=("news.*", "news.[ab]rt", "?port"))
        self.assertEqual(self.client.publish("news.art", "once and twice"), 3)
        self.assertEqual(self.client.publish("sport", "score"), 1)
        self.assertEqual(self.client.publish("transport", "late"), 0)
        told = [self.next(pubsub) for _ in range(4)]
        self.assertEqual((told[0]["type"], told[0]["pattern"]), ("message", None))
        self.assertEqual({(each["type"], each["pattern"]) for each in told[1:3]},
                         {("pmessage", b"news.*"), ("pmessage", b"news.[ab]rt")})
        self.assertEqual({each["channel"] for each in told[:3]}, {b"news.art"})
        self.assertEqual((told[3]["pattern"], told[3]["channel"], told[3]["data"]), (b"?port", b"sport", b"score"))

    def test_channels_of_shards_are_apart(self):
        pubsub = self.listen("news", shards=("news", "sport"))
        self.assertEqual(self.client.publish("news", "to all"), 1)
        self.assertEqual(self.client.spublish("news", "to the shard"), 1)
        told = [self.next(pubsub) for _ in range(2)]
        self.assertEqual([(each["type"], each["data"]) for each in told],
                         [("message", b"to all"), ("smessage", b"to the shard")])
        self.assertEqual(sorted(self.client.pubsub_shardchannels()), [b"news", b"sport"])
        self.assertEqual(self.client.pubsub_shardnumsub("news", "nosuch"), [(b"news", 1), (b"nosuch", 0)])
        pubsub.sunsubscribe("news")
        self.assertEqual(self.next(pubsub)["type"], "sunsubscribe")
        self.assertEqual(self.client.spublish("news", "unheard"), 0)

    def test_the_server_tells_who_listens_to_what(self):
        self.assertEqual((self.client.pubsub_channels(), self.client.pubsub_numpat()), ([], 0))
        ears = [self.listen("news", patterns=("n*",)), self.listen("news", "sport", patterns=("n*", "s*"))]
        self.assertEqual(sorted(self.client.pubsub_channels()), [b"news", b"sport"])
        self.assertEqual(self.client.pubsub_channels("s*"), [b"sport"])
        counts = self.client.pubsub_numsub("news", "sport", "nosuch")
        self.assertEqual(counts, [(b"news", 2), (b"sport", 1), (b"nosuch", 0)])
        self.assertEqual(self.client.pubsub_numpat(), 2)  # patterns, not who listens
        for pubsub in ears:
            pubsub.close()
        self.assertSoon(lambda: not self.client.pubsub_channels(), "channels stay without subscribers")
        self.assertEqual(self.client.pubsub_numpat(), 0)

    def test_a_subscriber_may_still_ping(self):
        pubsub = self.listen("news")
        pubsub.ping("still there")
        self.assertEqual(self.next(pubsub)["data"], b"still there")
        self.assertTrue(pubsub.check_health() is None and pubsub.subscribed)

    def test_a_thread_hands_messages_to_handlers(self):
        news, rest = queue.Queue(), queue.Queue()
        pubsub = self.client.pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe(news=news.put)
        pubsub.psubscribe(**{"*": rest.put})
        thread = pubsub.run_in_thread(sleep_time=0.01, daemon=True)
        try:
            self.assertSoon(lambda: self.client.pubsub_numpat() == 1, "the subscription never came")
            self.assertEqual(self.client.publish("news", "hello"), 2)
            self.assertEqual(news.get(timeout=EVENT_SECONDS_MAX)["data"], b"hello")
            self.assertEqual(rest.get(timeout=EVENT_SECONDS_MAX)["channel"], b"news")
        finally:
            thread.stop()
            thread.join(EVENT_SECONDS_MAX)
        self.assertFalse(thread.is_alive())

    def test_messages_keep_their_order(self):
        ears = [self.listen("news", patterns=("other",)) for _ in range(SUBSCRIBERS)]
        with self.client.pipeline(transaction=False) as pipe:
            for number in range(MESSAGES):
                pipe.publish("news", number)
            self.assertEqual(pipe.execute(), [SUBSCRIBERS] * MESSAGES)
        expected = [(b"news", b"%d" % number) for number in range(MESSAGES)]
        for pubsub in ears:
            self.assertTrue(self.heard(pubsub, MESSAGES) == expected, "a message is missing or out of place")

    def test_transactions_and_scripts_publish(self):
        pubsub = self.listen("news")
        self.assertEqual(self.client.pipeline().publish("news", "a").set("k", "v").publish("news", "b").execute(),
                         [1, True, 1])
        self.assertEqual(self.client.eval("return redis.call('PUBLISH', KEYS[1], ARGV[1])", 1, "news", "c"), 1)
        self.assertEqual(self.heard(pubsub, 3), [(b"news", b"a"), (b"news", b"b"), (b"news", b"c")])

    def test_a_large_message_comes_unchanged(self):
        pubsub, large = self.listen("news"), ALL_BYTES * 16384  # 4 MiB
        with ThreadPoolExecutor(1) as pool:
            published = pool.submit(self.client.publish, "news", large)
            self.assertTrue(self.next(pubsub)["data"] == large, "the message changed on its way")
            self.assertEqual(published.result(REPLY_SECONDS_MAX), 1)

    def test_a_subscription_comes_back_with_its_connection(self):
        pubsub = self.listen("news", patterns=("s*",))
        killed = self.client.client_kill_filter(_type="pubsub")
        self.assertEqual(killed, 1)
        pubsub.connection.disconnect()  # or the library would find out by reading
        ears = 0
        while ears < 2:
            message = self.next(pubsub)  # connects, and subscribes anew to everything
            ears += message["type"] in ("subscribe", "psubscribe")
        self.assertEqual(self.client.publish("news", "again"), 1)
        self.assertEqual(self.heard(pubsub, 1), [(b"news", b"again")])

    def test_asyncio_listens_too(self):
        async def conversation():
            options = {"host": "127.0.0.1", "port": self.server.port, "protocol": self.protocol}
            async with redis.asyncio.Redis(**options) as client, client.pubsub() as pubsub:
                await pubsub.subscribe("news")
                await pubsub.psubscribe("s*")
                heard = []
                async for message in pubsub.listen():
                    heard.append((message["type"], message["channel"], message["data"]))
                    if len(heard) == 2:
                        await client.publish("news", "one")
                        await client.publish("sport", "two")
                    if len(heard) == 4:
                        return heard

        heard = asyncio.run(asyncio.wait_for(conversation(), REPLY_SECONDS_MAX))
        self.assertEqual(heard[2:], [("message", b"news", b"one"), ("pmessage", b"sport", b"two")])


class Notifications(Listening):
    def test_nothing_is_told_unless_asked_for(self):
        pubsub = self.listen(patterns=("*",))
        self.client.set("key", "v")
        self.client.publish("end", "")
        self.assertEqual(self.heard(pubsub, 1), [(b"end", b"")])

    def test_both_kinds_of_channel_tell_of_a_key(self):
        self.client.config_set("notify-keyspace-events", "KEA")
        self.assertEqual(self.client.config_get("notify-keyspace-events"), {"notify-keyspace-events": "AKE"})
        pubsub = self.listen(patterns=("__key*__:*",))
        self.client.set("key", "v")
        self.assertEqual(
            self.heard(pubsub, 2), [(b"__keyspace@0__:key", b"set"), (b"__keyevent@0__:set", b"key")]
        )
        with self.connect(db=3) as third:
            third.set("key", "v")
        self.assertEqual(self.heard(pubsub, 1), [(b"__keyspace@3__:key", b"set")])

    def test_each_command_tells_what_it_did(self):
        self.client.config_set("notify-keyspace-events", "EA")
        pubsub = self.listen(patterns=("__keyevent@0__:*",))
        client = self.client
        for name, act, events in (
            ("setnx", lambda: client.setnx("key", "1"), ["set key"]),
            ("setnx refused", lambda: client.setnx("key", "2"), []),
            ("set nx refused", lambda: client.set("key", "2", nx=True), []),
            ("set px", lambda: client.set("key", "1", px=100_000), ["set key", "expire key"]),
            ("getset", lambda: client.getset("key", "1"), ["set key"]),
            ("incr", lambda: client.incr("key"), ["incrby key"]),
            ("incrbyfloat", lambda: client.incrbyfloat("key", 0.5), ["incrbyfloat key"]),
            ("append", lambda: client.append("key", "0"), ["append key"]),
            ("setrange", lambda: client.setrange("key", 0, "9"), ["setrange key"]),
            ("setbit", lambda: client.setbit("bits", 1, 1), ["setbit bits"]),
            ("expire", lambda: client.expire("key", 100), ["expire key"]),
            ("persist", lambda: client.persist("key"), ["persist key"]),
            ("persist again", lambda: client.persist("key"), []),
            ("mset", lambda: client.mset({"a": 1, "b": 2}), ["set a", "set b"]),
            ("rename", lambda: client.rename("a", "c"), ["rename_from a", "rename_to c"]),
            ("copy", lambda: client.copy("c", "d"), ["copy_to d"]),
            ("getex", lambda: client.getex("d", ex=100), ["expire d"]),
            ("getdel", lambda: client.getdel("d"), ["del d"]),
            ("restore", lambda: client.restore("e", 0, client.dump("c")), ["restore e"]),
            ("del", lambda: client.delete("b", "nosuchkey", "c"), ["del b", "del c"]),
            ("unlink", lambda: client.unlink("bits"), ["del bits"]),
            ("expire in the past", lambda: client.expire("e", -1), ["del e"]),
            ("move", lambda: client.move("key", 5), ["move_from key"]),
            ("transaction", lambda: client.pipeline().set("t", 1).incr("t").execute(), ["set t", "incrby t"]),
            ("script", lambda: client.eval("redis.call('SET', KEYS[1], 1)", 1, "s"), ["set s"]),
        ):
            with self.subTest(name):
                act()
                client.publish("__keyevent@0__:end", "")
                heard = []
                while (message := self.next(pubsub))["channel"] != b"__keyevent@0__:end":
                    heard.append(f"{message['channel'].decode().partition(':')[2]} {message['data'].decode()}")
                self.assertEqual(heard, events)

    def test_an_expiry_tells_when_it_has_come(self):
        self.client.config_set("notify-keyspace-events", "Ex")
        pubsub = self.listen("__keyevent@0__:expired")
        self.client.set("found by asking", "v", px=20)
        self.assertSoon(lambda: not self.client.exists("found by asking"), "the key never expired")
        self.assertEqual(self.heard(pubsub, 1), [(b"__keyevent@0__:expired", b"found by asking")])
        self.client.set("not asked for", "v", px=20)
        self.assertEqual(self.heard(pubsub, 1), [(b"__keyevent@0__:expired", b"not asked for")])

    def test_only_what_was_asked_for_is_told(self):
        for flags, expected in {
            "Kg": [(b"__keyspace@0__:key", b"del")],
            "E$": [(b"__keyevent@0__:set", b"key")],
            "Kn": [(b"__keyspace@0__:key", b"new")],
            "Em": [(b"__keyevent@0__:keymiss", b"nosuchkey")],
            "K": [],
        }.items():
            with self.subTest(flags):
                self.client.config_set("notify-keyspace-events", flags)
                pubsub = self.listen(patterns=("*",))
                self.client.set("key", "v")
                self.client.get("nosuchkey")
                self.client.delete("key")
                self.client.publish("end", "")
                self.assertEqual(self.heard(pubsub, len(expected) + 1), [*expected, (b"end", b"")])
                pubsub.close()


globals().update(in_both_protocols(__name__, PubSub, Notifications))
