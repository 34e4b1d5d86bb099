"""Every reply around a string through redis-py's own methods, in RESP2 and in RESP3.

What counts is that the library understands the reply: parses it, converts it, hands it out as documented.
"""

import time
import unittest

import redis

from server import Server


class Surface:
    """A class of tests with a server of its own; `protocol` comes from the subclass."""

    protocol = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--enable-debug-command", "yes")
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        options = {"host": "127.0.0.1", "port": self.server.port, "protocol": self.protocol, "decode_responses": True}
        self.r = redis.Redis(**options)
        self.addCleanup(self.r.close)
        self.r.flushall()

    def test_strings(self):
        r = self.r
        self.assertEqual(r.append("k", "Hello"), 5)
        self.assertEqual(r.setrange("k", 5, " World"), 11)
        self.assertEqual(r.getrange("k", 6, -1), "World")
        self.assertEqual(r.substr("k", 0, 4), "Hello")
        self.assertEqual(r.strlen("k"), 11)
        self.assertEqual(r.getdel("k"), "Hello World")
        self.assertEqual((r.incrby("n", 5), r.decrby("n", 2), r.decr("n"), r.incr("n")), (5, 3, 2, 3))
        self.assertEqual(r.incrbyfloat("n", 0.5), 3.5)
        self.assertTrue(r.setex("t", 100, "v"))
        self.assertTrue(r.psetex("t", 100_000, "v"))
        self.assertEqual(r.getex("t", persist=True), "v")
        self.assertEqual(r.ttl("t"), -1)
        self.assertTrue(r.mset({"a": 1, "b": 2}))
        self.assertFalse(r.msetnx({"b": 3, "c": 4}))
        self.assertEqual(r.mget("a", "b", "c"), ["1", "2", None])
        r.mset({"one": "ohmytext", "other": "mynewtext"})
        self.assertEqual(r.lcs("one", "other"), "mytext")
        self.assertEqual(r.lcs("one", "other", len=True), 6)
        found = r.lcs("one", "other", idx=True, minmatchlen=4, withmatchlen=True)
        matches = found["matches"] if isinstance(found, dict) else found[1]
        self.assertEqual(matches, [[[4, 7], [5, 8], 4]])

    def test_bits(self):
        r = self.r
        self.assertEqual((r.setbit("b", 7, 1), r.getbit("b", 7), r.getbit("b", 100)), (0, 1, 0))
        r.set("b", "foobar")
        self.assertEqual((r.bitcount("b"), r.bitcount("b", 5, 30, "BIT")), (26, 17))
        self.assertEqual((r.bitpos("b", 1), r.bitpos("b", 0, 17, -1, "BIT")), (1, 19))
        self.assertEqual(r.bitop("NOT", "d", "b"), 6)
        operations = r.bitfield("f").incrby("i5", 100, 1).overflow("FAIL").incrby("u2", 102, 3).incrby("u2", 102, 1)
        self.assertEqual(operations.execute(), [1, 3, None])
        self.assertEqual(r.bitfield_ro("f", "u2", 102), [3])

    def test_compare_and_act(self):
        r = self.r
        self.assertTrue(r.set("lock", "mine", nx=True, px=60_000))
        self.assertIsNone(r.execute_command("SET", "lock", "x", "IFEQ", "theirs"))
        self.assertTrue(r.execute_command("SET", "lock", "mine", "IFEQ", "mine", "PX", 60_000))
        digest = r.execute_command("DIGEST", "lock")
        self.assertEqual(len(digest), 16)
        self.assertEqual(r.execute_command("DELEX", "lock", "IFDNE", digest), 0)
        self.assertEqual(r.execute_command("DELIFEQ", "lock", "mine"), 1)
        self.assertEqual(r.execute_command("MSETEX", 2, "a", 1, "b", 2, "NX", "EX", 60), 1)

    def test_keys(self):
        r = self.r
        r.set("a", "1")
        self.assertTrue(r.copy("a", "b"))
        self.assertTrue(r.rename("b", "c"))
        self.assertFalse(r.renamenx("a", "c"))
        self.assertTrue(r.move("c", 1))
        self.assertEqual((r.exists("a", "c"), r.touch("a", "c"), r.type("a")), (1, 1, "string"))
        self.assertEqual(r.object("encoding", "a"), "int")
        self.assertEqual((r.object("idletime", "a"), r.object("refcount", "a") > 0), (0, True))
        self.assertEqual((r.randomkey(), r.keys("*"), r.unlink("a")), ("a", ["a"], 1))
        r.mset({f"k{n}": n for n in range(500)})
        self.assertEqual(len(set(r.scan_iter(match="k*", count=50))), 500)
        self.assertEqual(r.scan(0, _type="list", count=100_000), (0, []))
        self.assertTrue(r.swapdb(0, 1))
        self.assertEqual(r.dbsize(), 1)
        self.assertEqual(r.wait(0, 10), 0)

    def test_dump_and_restore(self):
        raw = redis.Redis(host="127.0.0.1", port=self.server.port, protocol=self.protocol)
        self.addCleanup(raw.close)
        raw.set("k", b"value " * 20)
        self.assertTrue(raw.restore("copy", 60_000, raw.dump("k")))
        self.assertEqual(raw.get("copy"), b"value " * 20)
        with self.assertRaises(redis.ResponseError):
            raw.restore("copy", 0, raw.dump("k"))

    def test_expiry(self):
        r = self.r
        r.set("k", "v")
        self.assertTrue(r.expire("k", 100, nx=True))
        self.assertFalse(r.expire("k", 50, gt=True))
        self.assertTrue(r.pexpire("k", 200_000))
        self.assertTrue(r.expireat("k", int(time.time()) + 300))
        self.assertTrue(r.pexpireat("k", 33177117420000))
        self.assertEqual((r.expiretime("k"), r.pexpiretime("k")), (33177117420, 33177117420000))
        self.assertTrue(r.persist("k"))

    def test_server(self):
        r = self.r
        r.set("k", "v")
        info = r.info()
        self.assertEqual((info["role"], info["db0"]["keys"], info["cluster_enabled"]), ("master", 1, 0))
        self.assertGreaterEqual(r.info("commandstats")["cmdstat_set"]["calls"], 1)
        self.assertIn("latency_percentiles_usec_set", r.info("latencystats"))
        self.assertTrue(r.config_set("slowlog-log-slower-than", 0))
        r.get("k")
        entry = r.slowlog_get(1)[0]
        self.assertIn("GET k", entry["command"] if isinstance(entry["command"], str) else entry["command"].decode())
        self.assertGreater(r.slowlog_len(), 0)
        self.assertTrue(r.slowlog_reset())
        self.assertTrue(r.config_set("slowlog-log-slower-than", 10_000))
        self.assertGreater(r.memory_usage("k"), 0)
        self.assertIn("keys.count", r.memory_stats())
        self.assertTrue(r.memory_purge())
        self.assertEqual(r.latency_latest(), [])
        self.assertEqual(r.latency_reset(), 0)
        self.assertEqual(len(r.time()), 2)
        self.assertLessEqual(r.lastsave().timestamp(), time.time())
        self.assertEqual(list(r.role())[0], "master")
        self.assertIn("Redis ver.", r.lolwut())
        self.assertIn("bind", r.config_get("*"))
        self.assertIn("setnx", {name.lower() for name in r.command()})
        self.assertEqual(r.command_getkeys("MSET", "a", 1, "b", 2), ["a", "b"])
        self.assertIn("refcount", r.debug_object("k"))

    def test_clients(self):
        r = self.r
        self.assertTrue(r.client_setname("surface"))
        self.assertIn("surface", [client["name"] for client in r.client_list()])
        self.assertTrue(r.client_pause(1))
        self.assertTrue(r.client_unpause())
        self.assertFalse(r.client_unblock(r.client_id()))
        self.assertEqual(r.client_getredir(), -1)
        r.client_trackinginfo()
        self.assertTrue(r.client_no_touch("ON"))
        with r.monitor() as monitor:
            r.set("watched", "v")
            # The library introduces each connection first.
            self.assertIn("SET watched v", (line["command"] for line in monitor.listen()))

    def test_out_of_memory(self):
        r = self.r
        r.config_set("maxmemory", "100kb")
        self.addCleanup(r.config_set, "maxmemory", 0)
        with self.assertRaises(redis.exceptions.OutOfMemoryError):
            r.set("k", "v")


class SurfaceInResp2(Surface, unittest.TestCase):
    protocol = 2


class SurfaceInResp3(Surface, unittest.TestCase):
    protocol = 3
