"""Starts Keyfast and redis-server with the same arguments and files, and compares what becomes of it: the
parameters that both have, or else the complaint and the exit code, and what CONFIG REWRITE makes of a file.

A complaint about a file is the same, but for the name of the server and of an included file. A complaint about an
option is one line here, with the reason that Redis gives; Redis names a line of a file that there is not."""

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time

KEYFAST, REDIS = sys.argv[1:]

FILES = {
    "stock.conf": "../../server/stock.conf",
    "bad.conf": "port 1\n\nfoo bar\n",
    "outer.conf": "timeout 1\ninclude inner.conf\n",
    "inner.conf": "# one\n\nport abc\n",
    "quotes.conf": 'port "1\n',
    "good.conf": "  TimeOut 5\r\n\t# comment\n\nrequirepass \"a\\x41 \\\"b'\"\nmaxmemory 100MB\nbind 127.0.0.1 -::1\n"
    "client-output-buffer-limit pubsub 1mb 1 1\nlua-time-limit 7\nnotify-keyspace-events 'KEA'\n"
    "include parts/*.conf\ninclude nosuch/*.conf\nuser default on nopass ~* &* +@all\nunixsocketperm 0700\n",
    "parts/1.conf": "tcp-keepalive 1\n",
    "parts/2.conf": "tcp-keepalive 2\n",
    "rewrite.conf": "# mine\n  TIMEOUT 5\n\n\n# the rest\ninclude nosuch/*.conf\nrename-command KEYS \"\"\ntimeout 6\n"
    "maxmemory 104857600\nlua-time-limit 7\nlogfile \"\"\nclient-output-buffer-limit pubsub 1mb 1 1\n"
    "user bob on >secret ~* +get\nnotify-keyspace-events KEA\nsave \"\"\nunixsocketperm 700\nport 1\n"
    "requirepass gone\nuser default on nopass ~* &* +@all\n",
}

# What makes both fail.
FAILURES = """
--foo bar
--port
--port x
--port 70000
--port 1 2
--port ''
-p 1
bad.conf
outer.conf
quotes.conf
bad.conf -
--timeout 3 - 5
--requirepass
'--requirepass x y'
--maxmemory 100xb
--loglevel loud
--timeout '1 2'
--Port 99999
--list-max-ziplist-entries 3 --foo 1
--hz
--hz 10 20
--rename-command nosuch x
--rename-command get set
--rename-command get '' --rename-command get x
--user
--user x on --user x off
--a.b
--logfile /nosuch/dir/x
--client-output-buffer-limit normal 1
--client-output-buffer-limit other 1 1 1
--client-output-buffer-limit normal x 1 1
--notify-keyspace-events xyz
--supervised maybe
--daemonize maybe
--unixsocketperm 8
--unixsocketperm 1000
--include a b
--include
--maxclients 0
--maxmemory-policy x
--tls-auth-clients x
--protected-mode 1
--port '"1'
'--port "1'
"""

# What starts both.
STARTS = """
good.conf
good.conf --timeout 11 --requirepass ''
stock.conf
good.conf --maxmemory 1gb -
-
'--timeout 3' --tcp-keepalive 7
--save --loglevel verbose
--timeout 1 --timeout 2
--requirepass --timeout
--client-output-buffer-limit 'normal 1 2 3 pubsub 4 5 6'
--client-output-buffer-limit normal 1 2 3 --client-output-buffer-limit replica 4kb 5mb 6
--bind '127.0.0.1 -::1'
--lua-time-limit 9
--hz 20 --replica-priority 3 --hash-max-ziplist-entries 7
--maxmemory 1k --slowlog-log-slower-than -1
--list-max-ziplist-entries 3
"""

# Parameters whose values differ for a reason: one a core by default; one for each server; none by default.
OWN = {"io-threads", "port", "save"}


def folder():
    path = tempfile.TemporaryDirectory(prefix="keyfast-starting-")
    for name, text in FILES.items():
        target = os.path.join(path.name, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if text.startswith("../"):
            text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), text)).read()
            paths = f"daemonize no\ndir {path.name}\nlogfile {path.name}/log\npidfile {path.name}/pid\n"
            text = re.sub(r"^(daemonize|dir|logfile|pidfile) .*\n", "", text, flags=re.M) + paths
        with open(target, "w") as file:
            file.write(text)
    return path


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def fail(program, arguments, where):
    ended = subprocess.run(
        [program, *arguments], cwd=where, stdin=subprocess.DEVNULL, capture_output=True, timeout=20
    )
    return ended.returncode, ended.stderr.decode()


class Server:
    """A server that serves; its port comes after the arguments, so that it counts."""

    def __init__(self, program, arguments, where):
        self.port = free_port()
        last = ["-"] if arguments[-1:] == ["-"] and arguments != ["-"] else []
        arguments = arguments[: len(arguments) - len(last)]
        full = [program, *arguments, "--port", str(self.port), *last]
        self.process = subprocess.Popen(
            full, cwd=where, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.process.stdin.write(b"maxclients 123\n")
        self.process.stdin.close()
        deadline = time.time() + 20
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=20)
                break
            except OSError:
                if self.process.poll() is not None or time.time() > deadline:
                    raise SystemExit(f"{full} does not serve: {self.process.stdout.read().decode()}")
                time.sleep(0.02)
        self.file = self.socket.makefile("rb")

    def ask(self, *command):
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in command]
        self.socket.sendall((f"*{len(parts)}\r\n" + "".join(parts)).encode())
        return self.read()

    def read(self):
        line = self.file.readline().decode().rstrip("\r\n")
        if line[0] == "$":
            return self.file.read(int(line[1:]) + 2)[:-2].decode()
        if line[0] == "*":
            return [self.read() for _ in range(int(line[1:]))]
        return line

    def parameters(self):
        flat = self.ask("CONFIG", "GET", "*")
        return dict(zip(flat[::2], flat[1::2]))

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=20)
        self.socket.close()


differences = []


def compare(what, keyfast, redis):
    if keyfast != redis:
        differences.append(f"{what}\n  keyfast: {keyfast!r}\n  redis:   {redis!r}")


def comparable(complaint):
    complaint = re.sub(r"CONFIG FILE ERROR \(.*\)", "CONFIG FILE ERROR", complaint)
    return re.sub(r"^(Reading the configuration file, at line \d+) of .*$", r"\1", complaint, flags=re.M)


def failures():
    for line in FAILURES.strip().splitlines():
        with folder() as where:
            ended = [fail(program, shlex.split(line), where) for program in (KEYFAST, REDIS)]
        (own_code, own), (code, redis) = ((code, comparable(complaint)) for code, complaint in ended)
        # An unknown directive is a module's to Redis 8, which says so in its log.
        own = own if redis else redis
        if own.startswith("keyfast: "):
            reason = redis.strip().splitlines()[-1]
            is_unknown = reason == "Bad directive or wrong number of arguments" and "unknown option" in own
            is_same = is_unknown or all(part.lower() in own.lower() for part in reason.split(": "))
            own = redis if is_same and own.count("\n") == 1 else own
        compare(line, (own_code, own), (code, redis))


def starts():
    for line in STARTS.strip().splitlines():
        seen = []
        with folder() as where:
            for program in (KEYFAST, REDIS):
                server = Server(program, shlex.split(line), where)
                for password in ("aA \"b'", "--timeout"):
                    if server.ask("PING").startswith("-NOAUTH"):
                        server.ask("AUTH", password)
                seen.append(server.parameters())
                server.end()
        for name in sorted((seen[0].keys() & seen[1].keys()) - OWN):
            compare(f"{line}: {name}", seen[0][name], seen[1][name])


def rewriting():
    texts = []
    for program in (KEYFAST, REDIS):
        with folder() as where:
            server = Server(program, ["rewrite.conf"], where)
            server.ask("CONFIG", "SET", "slowlog-max-len", "7", "timeout", "9", "requirepass", "a \"b")
            server.ask("AUTH", "a \"b")
            compare("CONFIG REWRITE", server.ask("CONFIG", "REWRITE"), "+OK")
            text = open(os.path.join(where, "rewrite.conf")).read()
            server.end()
            text = text.replace(str(server.port), "PORT")
            head, _, rest = text.partition("# Generated by CONFIG REWRITE\n")
            # Redis appends in the order of a table that is another one at each start, and writes more.
            more = ("dir ", "latency-tracking-info-percentiles ")
            texts.append((head, sorted(line for line in rest.splitlines() if line and not line.startswith(more))))
    compare("the rewritten file", *texts)


failures()
starts()
rewriting()
for difference in differences:
    print(difference)
if differences:
    raise SystemExit(f"{len(differences)} differences in starting")
print("both start, and fail to, in the same way")
