"""The server for the example of the page on tests (test_clock.py), which finds it by REDIS_URL."""

import os

import pytest

from server import Server


@pytest.fixture(scope="session", autouse=True)
def running_server():
    server = Server("--enable-clock-command", "local").start()
    os.environ["REDIS_URL"] = f"redis://127.0.0.1:{server.port}"
    yield
    server.stop()
