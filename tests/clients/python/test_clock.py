import os

import pytest
import redis
from redis.exceptions import LockNotOwnedError


@pytest.fixture
def server():
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/15"))
    client.flushdb()
    client.execute_command("CLOCK", "FREEZE")
    yield client
    client.execute_command("CLOCK", "RESUME")


def test_a_lock_outlives_its_crashed_holder_by_no_more_than_thirty_seconds(server):
    crashed = server.lock("report", timeout=30)
    waiting = server.lock("report", timeout=30)
    assert crashed.acquire(blocking=False)
    server.execute_command("CLOCK", "ADVANCE", 29_999)
    assert not waiting.acquire(blocking=False)
    server.execute_command("CLOCK", "ADVANCE", 1)
    assert waiting.acquire(blocking=False)
    with pytest.raises(LockNotOwnedError):
        crashed.release()
