"""What the conversations of redis-py have in common: a server of their own, and both protocols."""

import time
import unittest

import redis

from server import Server

REPLY_SECONDS_MAX = 30  # 64 MiB on a loaded machine
EVENT_SECONDS_MAX = 10  # what must come soon, as an expiry of milliseconds, has come by then


class Conversation:
    """A class of tests with a server of its own; `protocol` comes from the subclass."""

    protocol = None
    server_arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.server_arguments)
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def connect(self, **options):
        client = redis.Redis(
            host="127.0.0.1",
            port=self.server.port,
            protocol=self.protocol,
            socket_timeout=REPLY_SECONDS_MAX,
            **options,
        )
        self.addCleanup(client.close)
        return client

    def assertWithin(self, value, low, high):
        self.assertGreaterEqual(value, low)
        self.assertLessEqual(value, high)

    def assertSoon(self, holds, complaint):
        """Asks again and again, up to a limit, until something holds."""
        deadline = time.monotonic() + EVENT_SECONDS_MAX
        while not holds():
            self.assertLess(time.monotonic(), deadline, complaint)


def in_both_protocols(module, *conversations):
    """The classes of tests that unittest is to find in the module."""
    return {
        f"{each.__name__}Resp{protocol}": type(
            f"{each.__name__}Resp{protocol}",
            (each, unittest.TestCase),
            {"protocol": protocol, "__module__": module},
        )
        for each in conversations
        for protocol in (2, 3)
    }
