"""Sends the same bytes to Keyfast and to redis-server and compares what comes back, byte for byte.

lines.txt and scripts.txt hold commands, one a line, in the quoting of a shell with Python's escapes; they are sent
in their order, in RESP2 and again in RESP3. streams.txt holds whole streams as Python byte strings, each for a connection
of its own. What may differ is listed here, with its reason.
"""

import ast
import itertools
import pathlib
import select
import shlex
import socket
import sys
import time

HERE = pathlib.Path(__file__).parent

MAY_DIFFER = {
    "config get DATABASES": "Redis spells a name that is no pattern as it was asked for",
    "config set proto-max-bulk-len 100": "the range ends at 512 MiB here",
    "bitfield fields get u8 #4611686018427387904": "Redis multiplies to 2^65, and reads the first bits",
}
DIFFERENT_STREAMS = {
    b"PING\r\npost x\r\nPING\r\n": "Redis drops the answer to what came before the guard",
    b"client reply off\r\nfoo\r\n*x\r\n": "Redis leaves a connection open that can be neither read nor answered",
    b"client reply off\r\nquit\r\n": "the same",
    b"*1\r\n$" + b"1" * 70000: "Redis 8 waits for the end of the line",
}
SILENCE_SECONDS = 0.2  # after which two that have said the same have said everything
LATE_SECONDS_MAX = 10


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.file = self.socket.makefile("rb")

    def command(self, *arguments):
        bulks = b"".join(b"$%d\r\n%s\r\n" % (len(argument), argument) for argument in arguments)
        self.socket.sendall(b"*%d\r\n" % len(arguments) + bulks)
        return self.message()

    def message(self):
        line = self.file.readline()
        if not line:
            return b"<closed>"
        kind, count = line[:1], line[1:-2]
        if kind in b"$=":
            return line + (self.file.read(int(count) + 2) if int(count) >= 0 else b"")
        if kind in b"*~>%":
            members = max(int(count), 0) * (2 if kind == b"%" else 1)
            return line + b"".join(self.message() for _ in range(members))
        return line


def talk(ports, stream, may_differ):
    """Everything that each server answers to a stream, and whether it ends. One that says less may just be late."""
    connections = [socket.create_connection(("127.0.0.1", port), timeout=10) for port in ports]
    answers = dict.fromkeys(connections, b"")
    listening = list(connections)
    for connection in connections:
        connection.sendall(stream)
    deadline = time.monotonic() + LATE_SECONDS_MAX
    while listening:
        speaking, _, _ = select.select(listening, [], [], SILENCE_SECONDS)
        for connection in speaking:
            try:
                piece = connection.recv(1 << 16)
            except ConnectionResetError:
                piece = b""
            answers[connection] += piece or b"<closed>"
            if not piece:
                listening.remove(connection)
        is_settled = may_differ or len(set(answers.values())) == 1 or time.monotonic() > deadline
        if not speaking and is_settled:
            break
    for connection in connections:
        connection.close()
    return [answers[each] + (b"<open>" if each in listening else b"") for each in connections]


def parse(line):
    return [word.encode("latin1").decode("unicode_escape").encode("latin1") for word in shlex.split(line)]


def show(answer):
    return repr(answer if len(answer) < 600 else answer[:600] + b"...")


def main(keyfast_port, redis_port):
    differences = compared = 0

    def compare(what, ours, theirs, may_differ):
        nonlocal differences, compared
        compared += 1
        if ours != theirs and not may_differ:
            differences += 1
            print(f"{what}\n  redis-server {show(theirs)}\n  keyfast      {show(ours)}")

    for name, greeting in itertools.product(["lines.txt", "scripts.txt"], [b"2", b"3"]):
        keyfast, redis = Connection(keyfast_port), Connection(redis_port)
        for connection in [keyfast, redis]:
            connection.command(b"HELLO", greeting)
            connection.command(b"FLUSHALL")
        for line in (HERE / name).read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            ours, theirs = keyfast.command(*parse(line)), redis.command(*parse(line))
            # HELLO tells ids and versions.
            is_greeting = line.startswith("hello") and theirs[:1] in b"*%" and ours[:1] == theirs[:1]
            compare(f"RESP{greeting.decode()} {line}", ours, theirs, is_greeting or line in MAY_DIFFER)
    for line in (HERE / "streams.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            stream = eval(compile(ast.parse(line, mode="eval"), "streams.txt", "eval"), {})
            may_differ = stream in DIFFERENT_STREAMS
            ours, theirs = talk([keyfast_port, redis_port], stream, may_differ)
            compare(repr(stream[:80]), ours, theirs, may_differ)
    print(f"{compared - differences} of {compared} answers are the same, or differ for a reason")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
