"""Fixtures for pytest: a server for the tests of this process, and a client of it for each test.

A fixture of the same name in a conftest.py or a test file overrides these. `-p no:keyfast` turns them off. With
pytest-xdist each worker is a process, and has a server of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

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
def keyfast(keyfast_server: Server) -> "Iterator[redis.Redis[Any]]":
    """A redis.Redis client of an empty Keyfast server, whose clock runs and that has no faults."""
    try:
        import redis
    except ImportError:
        pytest.fail("the fixture 'keyfast' is a client of redis-py: pip install redis", pytrace=False)
    _reset(keyfast_server.url)
    client = redis.Redis.from_url(keyfast_server.url)
    yield client
    client.close()
    _reset(keyfast_server.url)


def _reset(url: str) -> None:
    """Undoes what a test may have done to the server, by a client of its own: the test's may be in any state."""
    import redis

    with redis.Redis.from_url(url) as client:
        # In this order: a fault or a pause would hold up what follows.
        client.execute_command("FAULT", "CLEAR")
        client.execute_command("CLIENT", "UNPAUSE")
        client.execute_command("CLOCK", "RESUME")
        client.flushall()
