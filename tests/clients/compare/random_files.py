"""Compares what Keyfast and redis-server keep on disk of the same random changes of all types.

Both servers run the rounds of random_types.py with a log. After each round Keyfast is killed and started again, and
its digest has to be that from before. Then each server starts with the log and with the snapshot of the other, and
has the same digest again. Arguments: both programs, the seed, and the number of rounds.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import random_types

# Redis logs PFADD as the client sent it. So its log does not tell in which form a value was, but this limit does.
del random_types.SETTINGS["hll-sparse-max-bytes"]

ROUNDS = 4
START_SECONDS_MAX = 30


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A server in a folder of its own, on the same port after every start."""

    def __init__(self, program, folder, log="yes"):
        self.program, self.folder, self.log = program, folder, log
        self.port = free_port()
        self.start()

    def start(self):
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder, "--save", "",
                   "--appendonly", self.log, "--appendfsync", "always", "--enable-debug-command", "yes"]
        with open(os.path.join(self.folder, "output"), "a") as output:
            self.process = subprocess.Popen([self.program, *options], stdout=output, stderr=output)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.connection = random_types.Connection(self.port)
                if self.connection.command("ping") == (b"+", b"PONG"):
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.program} does not start:\n" + self.output()[-2000:])
            time.sleep(0.02)

    def output(self):
        with open(os.path.join(self.folder, "output"), errors="replace") as output:
            return output.read()

    def kill(self):
        self.connection.close()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def digest(self):
        return self.connection.command("debug", "digest")[1]

    def groups(self):
        """What digests leave out: the counters of streams, and what their groups have read and not acknowledged.

        Blocks are left out, since requests make new ones, and so are times."""
        kept = []
        for database, name in self.streams():
            told = self.connection.command("xinfo", "stream", name, "full", "count", 0)
            told = random_types.without_times(told)
            pairs = told[1] if told and told[0] == b"%" else list(zip(told[::2], told[1::2]))
            kept.append((database, name, [pair for pair in pairs if not pair[0].startswith(b"radix")]))
        return kept

    def streams(self):
        """The databases and names of all streams, of which the database is selected meanwhile."""
        for database in random_types.DATABASES:
            self.connection.command("select", database)
            for name in sorted(self.connection.command("keys", "*")):
                if self.connection.command("type", name)[1] == b"stream":
                    yield database, name


    def forget_newer_consumers(self, servers):
        """Removes the consumers of which Redis 7.0 cannot keep all: they were heard of since they got something."""
        for database, name in self.streams():
            told = random_types.pairs_of(self.connection.command("xinfo", "stream", name, "full", "count", 0))
            for group in map(random_types.pairs_of, told[b"groups"]):
                for consumer in map(random_types.pairs_of, group[b"consumers"]):
                    if consumer[b"active-time"] != consumer[b"seen-time"]:
                        for server in servers:
                            server.connection.command("select", database)
                            server.connection.command("xgroup", "delconsumer", name, group[b"name"], consumer[b"name"])


class Crossing:
    def __init__(self, programs, root):
        self.programs, self.root, self.number = programs, root, 0
        self.servers = [Server(program, self.folder()) for program in programs]

    def folder(self):
        self.number += 1
        path = os.path.join(self.root, str(self.number))
        os.mkdir(path)
        return path

    def kill(self):
        for server in self.servers:
            server.kill()

    def rewrite(self):
        """Sometimes the log is rewritten, in one of the two forms."""
        for server in self.servers:
            server.connection.command("config", "set", "aof-use-rdb-preamble", random.choice(["yes", "no"]))
            server.connection.command("bgrewriteaof")
            deadline = time.monotonic() + START_SECONDS_MAX
            while b"aof_rewrite_in_progress:1" in (info := server.connection.command("info", "persistence")) or (
                b"aof_rewrite_scheduled:1" in info
            ):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{server.program} does not end the rewriting of its log")
                time.sleep(0.01)

    def check(self, comparison):
        """Compares the servers after a round.

        Keyfast's digest is the expected one: it keeps a score of -0 as 0, whichever server wrote the file.
        """
        keyfast = self.servers[0]
        keyfast.forget_newer_consumers(self.servers)
        if random.random() < 0.5:
            self.rewrite()
        wanted, groups = keyfast.digest(), keyfast.groups()
        keyfast.kill()
        keyfast.start()
        self.compare("Keyfast after a kill", wanted, keyfast.digest(), keyfast)
        self.compare("groups after a kill", groups, keyfast.groups(), keyfast)
        keyfast.forget_newer_consumers(self.servers)
        for server, other in zip(self.servers, reversed(self.programs)):
            server.connection.command("save")
            for name, log in [("dump.rdb", "no"), ("appendonlydir", "yes")]:
                folder = self.folder()
                source, target = os.path.join(server.folder, name), os.path.join(folder, name)
                (shutil.copytree if log == "yes" else shutil.copy)(source, target)
                loaded = Server(other, folder, log)
                self.compare(f"{other} with the {name} of {server.program}", wanted, loaded.digest(), loaded)
                # Redis does not log how often entries were read again, nor those that were deleted since.
                if name == "dump.rdb" or server is keyfast:
                    self.compare(f"groups in {other} with the {name} of {server.program}", groups, loaded.groups(),
                                 loaded)
                loaded.kill()
                shutil.rmtree(folder)
        comparison.connect()

    def compare(self, what, wanted, got, server):
        if wanted != got:
            print(what)
            if isinstance(wanted, list):
                parts = [pair for pair in zip(wanted, got) if pair[0] != pair[1]]
                print("  ", *(random_types.show(part) for part in parts[0]) if parts else (wanted, got), sep="\n   ")
                raise random_types.Differs
            self.differ(server)
            raise random_types.Differs

    def differ(self, other):
        """Prints the keys that differ from those of Keyfast."""
        for database in random_types.DATABASES:
            servers = [self.servers[0], other]
            names = [server.connection.command("select", database) and server.connection.command("keys", "*")
                     for server in servers]
            for name in sorted(set(names[0] + names[1])):
                seen = []
                for server in servers:
                    seen.append([server.connection.command(*words, name) for words in
                                 (["debug", "digest-value"], ["type"], ["pttl"], ["dump"])])
                if seen[0][0] != seen[1][0]:
                    print(f"  database {database}, key {name}")
                    for each in seen:
                        print("   ", random_types.show(each))


def main():
    programs, seed = sys.argv[1:3], sys.argv[3] if len(sys.argv) > 3 else "1"
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else ROUNDS
    with tempfile.TemporaryDirectory(prefix="keyfast-files-") as root:
        crossing = Crossing(programs, root)
        try:
            ports = [server.port for server in crossing.servers]
            comparison = random_types.Comparison(ports, seed)
            comparison.rounds(rounds, lambda: crossing.check(comparison))
        finally:
            crossing.kill()
            if "panicked" in crossing.servers[0].output():
                raise SystemExit("Keyfast panicked:\n" + crossing.servers[0].output()[-4000:])
    print(f"{comparison.sent} random commands, {rounds} rounds of files, {comparison.differences} differences "
          f"(seed {seed})")
    sys.exit(1 if comparison.differences else 0)


if __name__ == "__main__":
    main()
