"""A server for tests: on a free port, without files, and never left behind.

The server must end with the process that started it, also when that is killed. The kernel's own means
(PR_SET_PDEATHSIG) goes by the thread that started the server, and would need Python code between fork and
exec. So a shell starts the server: it leaves a guard in the background and then becomes the server, which
keeps the shell's process ID and so is a child of this process. The guard waits at a pipe whose other end only
this process holds. The end of this process, however it comes, closes the pipe; then the guard kills the
server and removes its folder.

A process that Python forks has that end of the pipe, too, and would keep the server alive: it closes it.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from typing import Dict, List, Optional, Tuple

from ._program import find

# SIGTERM ends the server in much less, if it is not stopped or in a long script.
STOP_SECONDS_MAX = 5.0

# How often the log is read until the server is ready, which takes some 10 ms.
POLL_SECONDS = 0.001

# What commands can undo takes a millisecond. A `CLIENT PAUSE … ALL` holds up every command, as in Redis.
RESET_SECONDS_MAX = 1.0

# How long another server may have to wait for the port of the one before.
PORT_SECONDS_MAX = 10.0

# $1 is the server's folder, the other arguments are its command. If the server has ended already, `kill`
# reaches no other process: the guard is in the session that the server led, so the system gives the session's
# number to no new process.
LAUNCH = """
exec 3<&0 </dev/null
{ read -r _ <&3; kill -KILL $$; rm -rf -- "$1"; } >/dev/null 2>&1 &
exec 3<&-
shift
exec "$@"
"""

READY = re.compile(r"Ready to accept connections (tcp|tls)")
LISTENING = re.compile(r"Listening on (\S+):(\d+)")
# What undoes most of what a test may have done to the server, in this order: a fault or a pause would hold up
# what follows.
RESET = (
    "FAULT CLEAR",
    "CLIENT UNPAUSE",
    "CLOCK RESUME",
    "FLUSHALL",
    "FUNCTION FLUSH",
    "SCRIPT FLUSH",
    "LOCKS RESET",
    "SLOWLOG RESET",
    "LATENCY RESET",
    "ACL LOG RESET",
    "HOTKEYS STOP",
    "HOTKEYS RESET",
    "CONFIG RESETSTAT",
)

# What else it may have changed: parameters, and users with their passwords and rules.
STATE = ("CONFIG GET *", "ACL LIST")

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


class StartError(RuntimeError):
    """The server could not start. The text has what it printed."""


class Server:
    """A server of its own process, for a `with` block or from start() to stop().

    The options are those of the command line: `Server("--maxmemory", "10mb")`. A configuration file may come
    first. Unless options say otherwise, the server listens on a free port of 127.0.0.1 and saves nothing.
    Options for the log have no effect: this class reads it.

    Variables of the environment that would configure a server (KEYFAST_…, REDIS_PASSWORD) do not reach it.
    """

    def __init__(self, *options: str, start_seconds_max: float = 10.0) -> None:
        self._options = options
        self._start_seconds_max = start_seconds_max
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._owner = 0
        self._folder = ""
        self._log = ""
        self._address = ("", "", 0)
        # The replies to STATE when the server was new.
        self._state: Optional[bytes] = None

    def __enter__(self) -> str:
        self.start()
        return self.url

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Server:
        """Starts the server, and returns it when clients can connect."""
        if self._process is not None:
            raise RuntimeError("this server has been started already")
        self._start([])
        return self

    def _start(self, more: List[str]) -> None:
        program = find()
        self._folder = tempfile.mkdtemp(prefix="keyfast-")
        self._log = ""
        self._owner = os.getpid()
        atexit.register(self.stop)
        try:
            with open(self._log_path(), "wb") as log:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", LAUNCH, "sh", self._folder, program, *self._arguments(), *more],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=_environment(),
                    # LAUNCH relies on it. And Ctrl-C is for the tests: they stop the server when they have
                    # cleaned up.
                    start_new_session=True,
                )
            _RUNNING.add(self)
            self._wait_until_ready(self._process)
            self._state = self._ask(STATE)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server, if it runs. Does nothing in a process forked from the one that started it."""
        self._stop(is_soon=False)

    def _stop(self, is_soon: bool) -> None:
        if not self._folder or os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        _RUNNING.discard(self)
        process, self._process = self._process, None
        if process is not None:
            if is_soon:
                process.kill()
            else:
                process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._log = self._read_log()
            # Now the guard ends, too.
            assert process.stdin is not None
            process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = ""

    @property
    def url(self) -> str:
        """Where clients connect: `redis://127.0.0.1:PORT`."""
        scheme, host, port = self._running_address()
        return f"{scheme}://{host}:{port}"

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._running_address()[2]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the server, for tests that send it signals."""
        if self._process is None:
            raise RuntimeError("this server does not run")
        return self._process

    @property
    def log(self) -> str:
        """What the server has printed since it was started."""
        return self._log if self._process is None else self._read_log()

    def reset(self) -> None:
        """Makes the server what it was when it was started, at the same address.

        Commands undo most of what a test does: keys, scripts, functions, faults, pauses, the clock, the
        records of locks. If they are refused (a test has set a password), or if parameters or users have
        changed, another server is started in place of this one, which takes some ten milliseconds. Its clients
        have to connect again, and most client libraries do so by themselves.
        """
        if self._process is None:
            raise RuntimeError("this server does not run")
        replies = self._ask(RESET)
        is_undone = replies is not None and not any(line.startswith(b"-") for line in replies.splitlines())
        if not is_undone or self._ask(STATE) != self._state:
            self._start_anew()

    def _start_anew(self) -> None:
        scheme, _, port = self._running_address()
        self._stop(is_soon=True)
        # The last value counts.
        option = ["--port" if scheme == "redis" else "--tls-port", str(port)]
        deadline = time.monotonic() + PORT_SECONDS_MAX
        while True:
            try:
                self._start(option)
                return
            except StartError as error:
                # A connection of another program may have got the port meanwhile.
                if "Address already in use" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def _ask(self, commands: Tuple[str, ...]) -> Optional[bytes]:
        """The replies to commands, as they come; None if they do not come."""
        scheme, host, port = self._running_address()
        if scheme != "redis":
            return None
        # A client library would introduce itself first, and a fault may apply to that.
        address = (host.strip("[]"), port)
        lines = "".join(f"{command}\r\n" for command in (*commands, "QUIT"))
        try:
            with socket.create_connection(address, RESET_SECONDS_MAX) as connection:
                connection.sendall(lines.encode())
                with connection.makefile("rb") as replies:
                    return replies.read()
        except OSError:
            return None

    def _arguments(self) -> List[str]:
        options = list(self._options)
        file = [options.pop(0)] if options and not options[0].startswith("-") else []
        # The last value of a parameter counts: the test's options come after what suits tests, and what this
        # class relies on comes after all.
        for_tests = [
            "--port",
            "0",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            self._folder,
        ]
        own = ["--daemonize", "no", "--logfile", "", "--loglevel", "notice", "--log-format", "redis"]
        return [*file, *for_tests, *options, *own]

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_seconds_max
        while True:
            has_ended = process.poll() is not None
            log = self._read_log()
            if has_ended:
                raise StartError(f"the server did not start. It printed:\n{log.rstrip()}")
            ready = READY.search(log)
            if ready:
                break
            if "Ready to accept connections unix" in log:
                raise StartError(
                    "the server listens on no port, only on a Unix socket: add the option --port"
                )
            if time.monotonic() > deadline:
                limit = f"the server was not ready within {self._start_seconds_max:g} s"
                raise StartError(f"{limit}. It printed:\n{log.rstrip()}")
            time.sleep(POLL_SECONDS)
        listening = LISTENING.search(log)
        if listening is None:
            raise StartError(f"the server did not print its port, but:\n{log.rstrip()}")
        host, port = listening.groups()
        scheme = "redis" if ready.group(1) == "tcp" else "rediss"
        self._address = (scheme, ANY_ADDRESS.get(host, host), int(port))

    def _running_address(self) -> Tuple[str, str, int]:
        if self._process is None:
            raise RuntimeError("this server does not run")
        return self._address

    def _log_path(self) -> str:
        return os.path.join(self._folder, "log")

    def _read_log(self) -> str:
        try:
            with open(self._log_path(), encoding="utf-8", errors="replace") as log:
                return log.read()
        except FileNotFoundError:
            return self._log


def _environment() -> Dict[str, str]:
    """The environment without what configures a server: a test must not depend on who runs it."""
    configures = ("KEYFAST_", "REDIS_PASSWORD")
    return {name: value for name, value in os.environ.items() if not name.startswith(configures)}


# The servers of this process.
_RUNNING: "weakref.WeakSet[Server]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a process that was forked: lets go of the pipes that keep servers alive."""
    for server in list(_RUNNING):
        process = server._process
        if process is not None and process.stdin is not None:
            process.stdin.close()


os.register_at_fork(after_in_child=_leave_to_parent)
