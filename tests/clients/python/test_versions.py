"""What redis-py does by the version that the server tells: its own cache wants Redis 7.4 and RESP3.

A server of another version is one that was given `redis-version`.
"""

import os
import unittest

import redis
from redis.cache import CacheConfig

from conversation import Conversation

IS_REDIS = os.environ.get("KEYFAST_BIN", "").endswith("redis-server")


@unittest.skipIf(IS_REDIS, "redis-server tells no other version than its own")
class Caching(Conversation, unittest.TestCase):
    protocol = 3
    server_arguments = ("--redis-version", "7.4.0")

    def setUp(self):
        self.other = self.connect()
        self.other.flushdb()
        self.client = self.connect(cache_config=CacheConfig())

    def gets(self):
        return self.other.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"]

    def test_the_version_is_the_one_that_was_given(self):
        self.assertEqual(self.other.info("server")["redis_version"], "7.4.0")

    def test_a_value_is_read_once_until_another_client_changes_it(self):
        self.other.set("key", "one")
        before = self.gets()
        for _ in range(10):
            self.assertEqual(self.client.get("key"), b"one")
        self.assertEqual(self.gets() - before, 1)
        self.assertEqual(self.client.get_cache().size, 1)
        self.other.set("key", "two")
        self.assertSoon(lambda: self.client.get("key") == b"two", "the change is not seen")
        self.other.delete("key")
        self.assertSoon(lambda: self.client.get("key") is None, "the deletion is not seen")

    def test_a_value_that_expires_is_forgotten(self):
        self.other.set("key", "one", px=50)
        self.assertIn(self.client.get("key"), (b"one", None))
        self.assertSoon(lambda: self.client.get("key") is None, "the expiry is not seen")

    def test_values_of_all_types_are_kept(self):
        self.other.hset("hash", mapping={"f": "v"})
        self.other.rpush("list", "a", "b")
        self.other.sadd("set", "a")
        self.other.zadd("zset", {"a": 1})
        reads = (
            lambda: self.client.hgetall("hash"),
            lambda: self.client.lrange("list", 0, -1),
            lambda: self.client.smembers("set"),
            lambda: self.client.zrange("zset", 0, -1, withscores=True),
        )
        first = [read() for read in reads]
        self.assertEqual([read() for read in reads], first)
        self.assertEqual(self.client.get_cache().size, len(reads))
        self.other.hset("hash", "f", "w")
        self.assertSoon(lambda: self.client.hgetall("hash") == {b"f": b"w"}, "the change is not seen")

    def test_flushing_empties_the_cache(self):
        self.other.set("key", "one")
        self.client.get("key")
        self.other.flushall()
        self.assertSoon(lambda: self.client.get("key") is None, "FLUSHALL is not seen")


@unittest.skipIf(IS_REDIS, "redis-server tells no other version than its own")
class NoCaching(Conversation, unittest.TestCase):
    protocol = 3
    server_arguments = ("--redis-version", "7.2.4")

    def test_an_older_server_is_refused(self):
        with self.assertRaisesRegex(redis.ConnectionError, "7.4 or later"):
            self.connect(cache_config=CacheConfig()).get("key")
