"""Locks of PHP under the lens: those of Symfony Lock, and those that phpredis takes for sessions. Each client is a process
of its own, which does what it reads. Debian's packages php-cli, php-redis and php-symfony-lock have them.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time
import unittest

import redis

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from server import Server, binary  # noqa: E402

SYMFONY = """
require 'Symfony/Component/Lock/autoload.php';
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $argv[1]);
$store = new Symfony\\Component\\Lock\\Store\\RedisStore($redis);
$lock = (new Symfony\\Component\\Lock\\LockFactory($store))->createLock('report', 30, false);
while ($line = fgets(STDIN)) {
    try {
        $done = match (trim($line)) {
            'acquire' => $lock->acquire() ? 'held' : 'refused',
            'read' => $lock->acquireRead() ? 'held' : 'refused',
            'refresh' => $lock->refresh() ?? 'done',
            'release' => $lock->release() ?? 'done',
        };
    } catch (Exception $error) {
        $done = (new ReflectionClass($error))->getShortName();
    }
    echo $done, "\\n";
}
"""
SESSION = """
while ($line = fgets(STDIN)) {
    if (trim($line) === 'start') {
        session_id('visitor');
        $done = session_start() ? 'held' : 'refused';
    } else {
        $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
        $visits = $_SESSION['visits'];
        $done = session_write_close() ? $visits : 'lost';
    }
    echo $done, "\\n";
}
"""
SESSION_LOCK = "PHPREDIS_SESSION:visitor_LOCK"
SESSION_OPTIONS = {
    "session.save_handler": "redis",
    "session.use_cookies": 0,
    "session.use_only_cookies": 0,
    "session.cache_limiter": "",
    "redis.session.locking_enabled": 1,
    "redis.session.lock_expire": 30,
    "redis.session.lock_wait_time": 10_000,  # microseconds
    "redis.session.lock_retries": 3,
    "display_errors": "stderr",
}


class Process:
    """A process of PHP that does a line at a time."""

    def __init__(self, code, port, options):
        flags = [flag for name, value in options.items() for flag in ("-d", f"{name}={value}")]
        command = ["php", *flags, "-r", code, "--", str(port)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def do(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@unittest.skipIf(os.path.basename(binary()) == "redis-server", "Redis has no lens")
class Php(unittest.TestCase):
    def setUp(self):
        self.server = Server("--enable-clock-command", "yes").start()
        self.client = redis.Redis(port=self.server.port, decode_responses=True)
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.end()
        self.client.close()
        self.server.stop()

    def two(self, code, options=None):
        self.processes = [Process(code, self.server.port, options or {}) for _ in range(2)]
        return self.processes

    def two_of_a_session(self):
        return self.two(SESSION, {**SESSION_OPTIONS, "session.save_path": f"tcp://127.0.0.1:{self.server.port}"})

    def rules(self):
        found = self.client.execute_command("LOCKS LOG", -1)
        fields = [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2])) for one in found]
        return [each["rule"] for each in fields]

    def test_symfony_in_correct_use(self):
        one, other = self.two(SYMFONY)
        for _ in range(3):
            self.assertEqual([one.do("acquire"), other.do("acquire")], ["held", "refused"])
            self.assertEqual(self.client.execute_command("LOCKS LIST")[0][3], "held")
            self.assertEqual([one.do("refresh"), one.do("release")], ["done", "done"])
            one, other = other, one
        self.assertEqual(self.rules(), [])

    def test_a_holder_by_symfony_that_is_late_is_found(self):
        one, other = self.two(SYMFONY)
        self.assertEqual(one.do("acquire"), "held")
        self.client.execute_command("CLOCK ADVANCE", 31_000)
        self.assertEqual(other.do("acquire"), "held")
        self.assertEqual(one.do("refresh"), "LockConflictedException")
        self.assertEqual(self.rules(), ["expired-while-held"])

    def lock(self, line):
        return self.client.execute_command("LOCK", *line.split())

    def test_readers_and_writers_by_symfony_and_by_lock_respect_each_other(self):
        one, other = self.two(SYMFONY)
        self.client.execute_command("CLOCK FREEZE")
        # Readers of both hold it together, and no writer of either.
        self.assertGreater(self.lock("ACQUIRE report ours PX 20000 SHARED"), 0)
        self.assertEqual([one.do("read"), other.do("acquire")], ["held", "refused"])
        self.assertEqual(self.client.zcard("report"), 2)
        self.assertIsNone(self.lock("ACQUIRE report writer PX 20000"))
        self.assertIsNone(self.lock("ACQUIRE report second PX 20000 LIMIT 2"))
        self.assertEqual([other.do("read"), self.client.pttl("report")], ["held", 30_000])
        self.assertIsNone(self.lock("ACQUIRE report second PX 20000 LIMIT 3"))
        # Each gives back its own.
        self.assertEqual(self.lock("RELEASE report ours"), 1)
        self.assertEqual([one.do("refresh"), one.do("release"), self.client.zcard("report")], ["done", "done", 1])
        self.assertGreater(self.lock("ACQUIRE report ours PX 40000 SHARED"), 0)
        self.assertEqual([other.do("release"), self.client.pttl("report")], ["done", 40_000])
        # Theirs ends, and is removed by a permit of ours.
        self.assertEqual(one.do("read"), "held")
        self.client.execute_command("CLOCK ADVANCE", 30_000)
        self.assertGreater(self.lock("EXTEND report ours PX 40000"), 0)
        self.assertEqual(self.client.zcard("report"), 1)
        # Ours ends, and their writer takes the lock.
        self.client.execute_command("CLOCK ADVANCE", 40_000)
        self.assertEqual(other.do("acquire"), "held")
        for mode in ("SHARED", "LIMIT 9", ""):
            self.assertIsNone(self.lock(f"ACQUIRE report ours PX 20000 {mode}"), mode)
        # A reader of ours in line is granted it when their writer releases it.
        waiting = redis.Redis(port=self.server.port)
        pool = concurrent.futures.ThreadPoolExecutor(1)
        line = "ACQUIRE report ours PX 20000 SHARED WAIT 60000"
        granted = pool.submit(waiting.execute_command, "LOCK", *line.split())
        while self.client.info("clients")["blocked_clients"] == 0:
            time.sleep(0.001)
        self.assertEqual(other.do("release"), "done")
        self.assertGreater(granted.result(), 0)
        self.assertEqual([one.do("acquire"), self.lock("RELEASE report ours")], ["refused", 1])
        # The lock of one holder refuses all of theirs.
        self.assertGreater(self.lock("ACQUIRE report writer PX 20000"), 0)
        self.assertEqual([one.do("acquire"), one.do("read")], ["refused", "refused"])
        self.assertEqual(self.lock("RELEASE report writer"), 1)
        self.assertEqual([one.do("acquire"), one.do("release")], ["held", "done"])
        pool.shutdown()
        waiting.close()
        self.assertEqual(self.rules(), [])

    def test_sessions_in_correct_use(self):
        one, other = self.two_of_a_session()
        for visits in range(1, 4):
            # The second one reads the session and does not write it: it did not get the lock.
            self.assertEqual([one.do("start"), other.do("start")], ["held", "held"])
            self.assertEqual([one.do("close"), other.do("close")], [str(visits), "1" if visits == 1 else str(visits)])
            self.assertEqual(self.client.execute_command("LOCKS GET", SESSION_LOCK)[3], "released")
            one, other = other, one
        self.assertEqual(self.rules(), [])

    def test_a_session_that_is_late_is_found(self):
        one, other = self.two_of_a_session()
        # A release compares the token, which is short: the names of the machine and of the process.
        self.assertEqual([one.do("start"), one.do("close")], ["held", "1"])
        self.assertEqual(one.do("start"), "held")
        self.client.execute_command("CLOCK ADVANCE", 31_000)
        self.assertEqual(other.do("start"), "held")
        one.do("close")
        self.assertEqual(self.rules(), ["expired-while-held"])


if __name__ == "__main__":
    unittest.main()
