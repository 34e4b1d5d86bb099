"""The locks of redis-py over two front-ends of one store: the lock of threads, and the one of asyncio."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise

import redis
import redis.asyncio
from redis.exceptions import LockNotOwnedError

from checks import EVENT_SECONDS_MAX, PORTS, REPLY_SECONDS_MAX, check, check_each, equal, raises, run, soon, within

TURNS = 30  # for each who contends
SWITCHES_MIN = 5  # how often the lock must go from one front-end to the other for the contention to count
SOON_SECONDS = 0.001  # how long a lock waits before it asks again
HELD_SECONDS = 300  # longer than any check holds a lock


def connect(port, protocol=3):
    return redis.Redis(port=port, protocol=protocol, socket_timeout=REPLY_SECONDS_MAX)


def locks(protocol=3, timeout=HELD_SECONDS):
    """The same lock at each front-end."""
    fronts = [connect(port, protocol) for port in PORTS]
    return [front.lock("lock", timeout=timeout, sleep=SOON_SECONDS, thread_local=False) for front in fronts]


@check_each(2, 3)
def a_lock_is_taken_at_one_front_end_and_refused_at_the_other(protocol):
    mine, yours = locks(protocol)
    equal(mine.acquire(blocking=False), True)
    equal(yours.acquire(blocking=False), False)
    equal((mine.owned(), yours.locked(), yours.owned()), (True, True, False))
    mine.release()
    equal(yours.acquire(blocking=False), True)
    yours.release()
    equal(mine.locked(), False)


@check_each(2, 3)
def extending_at_one_front_end_counts_at_the_other(protocol):
    mine, yours = locks(protocol)
    mine.acquire()
    equal(mine.extend(1000), True)
    within(yours.redis.pttl("lock"), 1_000_000, 1_300_000)
    equal(mine.extend(500, replace_ttl=True), True)
    within(yours.redis.pttl("lock"), 400_000, 500_000)
    equal(mine.reacquire(), True)
    within(yours.redis.pttl("lock"), 200_000, 300_000)
    mine.release()


@check_each(2, 3)
def a_lock_that_expired_goes_to_the_one_who_waits_at_the_other_front_end(protocol):
    mine, yours = locks(protocol, timeout=0.5)[0], locks(protocol)[1]
    began = time.monotonic()
    mine.acquire()
    equal(yours.acquire(blocking_timeout=EVENT_SECONDS_MAX), True)
    assert time.monotonic() - began >= 0.5, "two hold the lock"
    equal(mine.owned(), False)
    for act in (mine.reacquire, lambda: mine.extend(10), mine.release):
        raises(LockNotOwnedError, act)
    equal(yours.owned(), True)
    yours.release()


@check_each(2, 3)
def who_does_not_own_a_lock_cannot_release_it(protocol):
    mine, yours = locks(protocol)
    mine.acquire()
    yours.local.token = b"not this one"
    for act in (yours.reacquire, lambda: yours.extend(10), yours.release):
        raises(LockNotOwnedError, act)
    equal((mine.owned(), yours.redis.get("lock")), (True, mine.local.token))
    within(mine.redis.pttl("lock"), 200_000, 300_000)
    mine.release()


@check
def the_holder_goes_on_at_the_other_front_end():
    mine, elsewhere = locks()
    mine.acquire()
    elsewhere.local.token = mine.local.token
    equal((elsewhere.owned(), elsewhere.reacquire(), elsewhere.extend(100)), (True, True, True))
    elsewhere.redis.script_flush()
    elsewhere.release()
    raises(LockNotOwnedError, mine.release)


@check
def two_processes_contend_and_one_at_a_time_holds_the_lock():
    with tempfile.TemporaryDirectory() as folder:
        contend = [sys.executable, __file__, *map(str, PORTS), "contend", folder]
        processes = [subprocess.Popen([*contend, str(front)]) for front in range(2)]
        try:
            codes = [process.wait(2 * REPLY_SECONDS_MAX) for process in processes]
        finally:
            for process in processes:
                process.kill()
        equal(codes, [0, 0])
        holders, *turns = (read(folder, name) for name in ("holders", "turns0", "turns1"))
    # Each has read what all had written, and added itself: without the lock, some would be lost.
    equal([holders.count(front) for front in "01"], [int(each) for each in turns])
    assert switches(holders) >= SWITCHES_MIN, f"they did not contend: {holders}"


def read(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


def write(folder, name, text):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)


def switches(holders):
    return sum(one != other for one, other in pairwise(holders))


def contend(folder, front):
    """One of the two processes: it adds itself to a file, in two steps, until both have had the lock by turns."""
    inside = os.path.join(folder, "inside")
    write(folder, f"there{front}", "yes")
    soon(lambda: read(folder, f"there{1 - front}"), "the other process does not come")
    lock, turns, deadline, holders = locks()[front], 0, time.monotonic() + REPLY_SECONDS_MAX, ""
    while turns < TURNS or switches(holders) < SWITCHES_MIN and time.monotonic() < deadline:
        with lock:
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails if another holder is inside
            holders = read(folder, "holders")
            time.sleep(SOON_SECONDS)
            holders += str(front)
            write(folder, "holders", holders)
            os.remove(inside)
        turns += 1
        time.sleep(5 * SOON_SECONDS)  # the other one asks meanwhile
    write(folder, f"turns{front}", str(turns))


@check_each(2, 3)
def tasks_of_asyncio_count_under_the_lock(protocol):
    counted = 0

    async def count(client):
        nonlocal counted
        for _ in range(TURNS):
            async with client.lock("lock", timeout=HELD_SECONDS, sleep=SOON_SECONDS) as lock:
                before = counted
                equal(await lock.owned(), True)
                counted = before + 1

    async def race():
        one, other = (redis.asyncio.Redis(port=port, protocol=protocol) for port in PORTS)
        async with one, other:
            both = asyncio.gather(*(count(client) for client in (one, other, one, other)))
            await asyncio.wait_for(both, 2 * REPLY_SECONDS_MAX)
            mine, yours = (front.lock("lock", timeout=HELD_SECONDS) for front in (one, other))
            equal(await mine.acquire(blocking=False), True)
            equal(await yours.acquire(blocking=False), False)
            equal(await mine.extend(1000), True)
            within(await other.pttl("lock"), 1_000_000, 1_300_000)
            await other.delete("lock")
            for act in (mine.extend(10), mine.reacquire(), mine.release()):
                try:
                    await act
                except LockNotOwnedError:
                    continue
                raise AssertionError("a lock that is lost was there")

    asyncio.run(race())
    equal(counted, 4 * TURNS)


@check
def a_thread_that_waits_gets_the_lock_when_it_is_released_at_the_other_front_end():
    mine, yours = locks()
    mine.acquire()
    got = []
    waiting = threading.Thread(target=lambda: got.append(yours.acquire(blocking_timeout=EVENT_SECONDS_MAX)))

    def calls():
        return yours.redis.info("commandstats").get("cmdstat_set", {"calls": 0})["calls"]

    before = calls()
    waiting.start()
    soon(lambda: calls() >= before + 2, "it does not ask for the lock")
    equal(got, [])
    mine.release()
    waiting.join()
    equal((got, yours.owned()), ([True], True))
    yours.release()


if sys.argv[3:4] == ["contend"]:
    contend(sys.argv[4], int(sys.argv[5]))
else:
    run(f"redis-py {redis.__version__}", lambda: connect(PORTS[0]).flushall())
