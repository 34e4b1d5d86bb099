"""One server process that a test class owns.

The binary comes from KEYFAST_BIN and may be Keyfast or redis-server: both understand the
arguments below and both announce "Ready to accept connections" on standard output. A port
is found once and kept, so that a restarted server is where its clients look for it.
"""

import os
import socket
import subprocess
import tempfile
import threading

START_SECONDS_MAX = 10  # a cold start on a loaded machine; both servers need far less
STOP_SECONDS_MAX = 2  # what Keyfast promises for SIGTERM
READY = "Ready to accept connections"


def binary():
    path = os.environ.get("KEYFAST_BIN", "")
    if not os.path.isabs(path) or not os.access(path, os.X_OK):
        raise RuntimeError(f"KEYFAST_BIN must be the absolute path of the server binary, not {path!r}")
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, *arguments):
        self.port = free_port()
        self.command = [binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *arguments]
        self.process = None

    def start(self):
        # A directory of its own: nothing to load at the start, nothing left behind.
        self.directory = tempfile.TemporaryDirectory(prefix="keyfast-clients-")
        self.process = subprocess.Popen(
            self.command,
            cwd=self.directory.name,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.output = []
        self.ready_or_gone = threading.Event()
        self.reader = threading.Thread(target=self._read_output, daemon=True)
        self.reader.start()
        self.ready_or_gone.wait(START_SECONDS_MAX)
        if not any(READY in line for line in self.output):
            self.kill()
            complaint = f"{self.command} ended or was not ready within {START_SECONDS_MAX} s"
            raise RuntimeError(f"{complaint}. It said:\n{self.said()}")
        return self

    def stop(self):
        """Ends the server by SIGTERM and insists on a prompt and clean end; one that was killed has had its complaint."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            complaint = f"still running {STOP_SECONDS_MAX} s after SIGTERM"
            raise AssertionError(f"{complaint}. It said:\n{self.said()}")
        said = self.said()
        self.kill()
        assert code == 0, f"exit code {code} after SIGTERM. It said:\n{said}"

    def kill(self):
        """Leaves nothing behind, whatever state the server is in; harmless when it has stopped."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.directory.cleanup()
        self.process = None

    def said(self):
        return "".join(self.output)

    def _read_output(self):
        # To the end of the stream, so that the pipe never fills and stops the server.
        for line in self.process.stdout:
            self.output.append(line)
            if READY in line:
                self.ready_or_gone.set()
        self.ready_or_gone.set()
