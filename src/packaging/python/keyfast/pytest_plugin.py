"""Fixtures for pytest: a server for the tests of this process, and a client of it for each test.

A fixture of the same name in a conftest.py or a test file overrides these. `-p no:keyfast` turns them off.
With pytest-xdist each worker is a process, and has a server of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import pytest

from ._server import Server

if TYPE_CHECKING:
    import redis


@pytest.fixture(scope="session")
def keyfast_server() -> Iterator[Server]:
    """A Keyfast server with the commands CLOCK and FAULT, for all tests of this process."""
    server = Server("--enable-clock-command", "local", "--enable-fault-command", "local")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def keyfast(keyfast_server: Server) -> Iterator[redis.Redis]:
    """A redis.Redis client of a Keyfast server that is as if it were new."""
    try:
        import redis
    except ImportError:
        pytest.fail("the fixture 'keyfast' is a client of redis-py: pip install redis", pytrace=False)
    keyfast_server.reset()
    client = redis.Redis.from_url(keyfast_server.url)
    yield client
    client.close()
    keyfast_server.reset()
