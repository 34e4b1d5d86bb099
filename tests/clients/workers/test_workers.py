"""Job queues: each gets a hundred jobs, and each job must be done once, by whichever worker was waiting for it.

They use lists, hashes, sets and sorted sets, commands that wait (BRPOP, BLMOVE, BZPOPMIN), scripts and MULTI. Some take
locks, or write what looks like locks: the lens finds no misuse in what they do, and finds a scheduler that stood still.
"""

import asyncio
import datetime
import gc
import os
import pathlib
import subprocess
import sys
import threading
import unittest

import redis

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from server import Server, binary  # noqa: E402

JOBS = 100
SECONDS_MAX = 60  # for all jobs; a quiet machine needs two


class Workers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        extra = () if os.path.basename(binary()) == "redis-server" else ("--enable-clock-command", "yes")
        cls.server = Server(*extra).start()
        cls.url = f"redis://127.0.0.1:{cls.server.port}"
        os.environ["WORKERS_URL"] = cls.url

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        self.client = redis.Redis(port=self.server.port, decode_responses=True)
        self.expected = []

    def tearDown(self):
        if os.path.basename(binary()) != "redis-server":
            found = self.client.execute_command("LOCKS LOG", -1)
            fields = [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2])) for one in found]
            self.client.execute_command("LOCKS RESET")
            # Entries of a cache look like locks: they are listed, and the server's log is silent about them.
            fields = [each for each in fields if not each["key"].startswith(":1:")]
            self.assertEqual([each["rule"] for each in fields], self.expected, found)
            self.assertNotIn(":1:", self.server.said())
        self.client.close()

    def test_celery(self):
        from jobs import add_by_celery, app

        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "jobs", "worker", "--pool", "threads"]
        worker = subprocess.Popen([*command, "-c", "3", "-l", "ERROR"], cwd=HERE, stdout=subprocess.DEVNULL)
        try:
            results = [add_by_celery.delay(number, 1) for number in range(JOBS)]
            self.assertEqual([one.get(timeout=SECONDS_MAX) for one in results], list(range(1, JOBS + 1)))
            # Results that are freed later would look for the server when it is gone.
            results.clear()
            gc.collect()
            app.backend.result_consumer.stop()
        finally:
            worker.terminate()
            worker.wait()

    def test_rq(self):
        from rq import Queue, SimpleWorker

        import jobs

        connection = redis.Redis.from_url(f"{self.url}/3")
        queue = Queue(connection=connection)
        queued = [queue.enqueue(jobs.add, number, 1) for number in range(JOBS)]
        queued.append(queue.enqueue_in(datetime.timedelta(0), jobs.add, JOBS, 1))
        # Its scheduler takes a lock for the queue, and releases it.
        SimpleWorker([queue], connection=connection).work(burst=True, with_scheduler=True, logging_level="ERROR")
        self.assertEqual([job.return_value() for job in queued], list(range(1, JOBS + 2)))

    @unittest.skipIf(os.path.basename(binary()) == "redis-server", "Redis has no CLOCK")
    def test_a_scheduler_of_rq_that_stood_still_is_found(self):
        from rq.scheduler import RQScheduler

        connections = [redis.Redis.from_url(f"{self.url}/8") for _ in range(2)]
        late, next_one = (RQScheduler(["letters"], connection) for connection in connections)
        self.assertEqual(late.acquire_locks(), {"letters"})
        self.assertEqual(next_one.acquire_locks(), set())
        late.heartbeat()
        self.client.execute_command("CLOCK ADVANCE", 3_600_000)
        self.assertEqual(next_one.acquire_locks(), {"letters"})
        late.heartbeat()
        self.client.execute_command("CLOCK RESUME")
        self.expected = ["expired-while-held"]

    def test_django_caches(self):
        from django.core.cache.backends.redis import RedisCache

        caches = [RedisCache(f"{self.url}/9", {}) for _ in range(3)]
        for number in range(20):
            one, other, third = caches[number % 3 :] + caches[: number % 3]
            self.assertEqual(one.get_or_set("page", lambda: f"content {number}", 60), f"content {number}")
            self.assertEqual(other.get_or_set("page", lambda: "another", 60), f"content {number}")
            other.set("page", "newer", 60)
            self.assertTrue(third.touch("page", 30))
            self.assertEqual(third.get("page"), "newer")
            third.delete("page")
            one.add("visits", 0, 60)
            other.incr("visits")
        for cache in caches:
            cache.close()

    def test_dramatiq(self):
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker
        from dramatiq.results import Results
        from dramatiq.results.backends import RedisBackend

        broker = RedisBroker(url=f"{self.url}/4")
        broker.add_middleware(Results(backend=RedisBackend(url=f"{self.url}/5")))
        dramatiq.set_broker(broker)

        @dramatiq.actor(store_results=True)
        def add(one, other):
            return one + other

        worker = dramatiq.Worker(broker, worker_threads=3)
        worker.start()
        messages = [add.send(number, 1) for number in range(JOBS)]
        results = [message.get_result(block=True, timeout=SECONDS_MAX * 1000) for message in messages]
        worker.stop()
        self.assertEqual(results, list(range(1, JOBS + 1)))

    def test_limiters_of_dramatiq(self):
        from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
        from dramatiq.rate_limits.backends import RedisBackend

        backends = [RedisBackend(url=f"{self.url}/10") for _ in range(3)]
        passed = []

        def work(backend):
            mutex = ConcurrentRateLimiter(backend, "mutex", limit=1, ttl=60_000)
            window = WindowRateLimiter(backend, "window", limit=1000, window=60)
            for _ in range(20):
                with mutex.acquire(raise_on_failure=False) as acquired, window.acquire(raise_on_failure=False):
                    passed.append(acquired)

        threads = [threading.Thread(target=work, args=(backend,)) for backend in backends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIn(True, passed)

    def test_huey(self):
        from huey import PriorityRedisHuey, RedisHuey

        for number, kind in enumerate([RedisHuey, PriorityRedisHuey]):
            huey = kind(f"app{number}", port=self.server.port, db=6)

            @huey.task()
            def add(one, other):
                return one + other

            consumer = huey.create_consumer(workers=2)
            consumer.start()
            results = [add(number, 1) for number in range(JOBS)]
            done = [one.get(blocking=True, timeout=SECONDS_MAX) for one in results]
            # The workers end with the command that they wait in; others would complain when the server stops first.
            consumer.stop(graceful=True)
            self.assertEqual(done, list(range(1, JOBS + 1)))

    def test_arq(self):
        from arq import create_pool
        from arq.connections import RedisSettings
        from arq.worker import Worker, func

        async def add(context, one, other):
            return one + other

        async def run():
            settings = RedisSettings(port=self.server.port, database=7)
            pool = await create_pool(settings)
            queued = [await pool.enqueue_job("add", number, 1) for number in range(JOBS)]
            options = {"burst": True, "poll_delay": 0.05, "handle_signals": False}
            await Worker([func(add, name="add")], redis_settings=settings, **options).main()
            return [await job.result(timeout=SECONDS_MAX) for job in queued]

        self.assertEqual(asyncio.run(run()), list(range(1, JOBS + 1)))

    def test_channels_redis(self):
        from channels_redis.core import RedisChannelLayer

        async def run():
            layer = RedisChannelLayer(hosts=[("127.0.0.1", self.server.port)])
            names = [await layer.new_channel() for _ in range(5)]
            for name in names:
                await layer.group_add("group", name)
            # One waits before anything is sent.
            waiting = asyncio.create_task(layer.receive(names[0]))
            await asyncio.sleep(0.05)
            for number in range(20):
                await layer.group_send("group", {"type": "message", "number": number})
            first = await waiting
            rest = [[await layer.receive(name) for _ in range(20 - (name == names[0]))] for name in names]
            await layer.close_pools()
            return [first, *rest[0]], rest[1:]

        first, rest = asyncio.run(run())
        for received in [first, *rest]:
            self.assertEqual([message["number"] for message in received], list(range(20)))


if __name__ == "__main__":
    unittest.main()
