"""Compares what Keyfast and a newer server, Redis 8.6 or Valkey 9.1, make of each other's payloads and files.

These two do not reply alike to random commands, so each is only compared with what the other has made of its values:
by DUMP and RESTORE, from its snapshot, and from its log. The changes are those of random_types.py and, with Redis,
those of random_newer.py. Arguments: both programs, Keyfast's first, the dialect (redis or valkey), the seed, and the
number of rounds.
"""

import os
import random
import shutil
import sys
import tempfile

import random_newer
import random_types
from random_files import Crossing, Server

ROUNDS = 6
DIFFERENCES_MAX = 10
# Redis 8 does not believe that a group has read more than was added, and cuts the index of LSET to 32 bits. Counters that
# overflow are negative in Redis, and unknown here. Some GEOADD and XSETID crash Valkey 9.1.2.
LEFT_OUT = {"redis": {"entriesread", "entriesadded", "lset"}, "valkey": {"geoadd", "xsetid"}}
OTHER_DATABASE = 9  # no command changes it
CONTENTS = {
    b"set": ["smembers"], b"hash": ["hgetall"], b"list": ["lrange", 0, -1], b"string": ["get"],
    b"zset": ["zrange", 0, -1, "withscores"], b"stream": ["xrange", "-", "+"],
}
# What XINFO STREAM tells, in both.
FACTS = [b"length", b"last-generated-id", b"max-deleted-entry-id", b"entries-added", b"recorded-first-entry-id"]
# What only Redis 8.6 tells, and Keyfast once a stream had producers. Redis also counts producers without messages.
PRODUCERS = {b"idmp-duration": 100, b"idmp-maxsize": 100, b"iids-tracked": 0, b"iids-added": 0, b"iids-duplicates": 0}


class Changes(random_types.Comparison):
    """Random changes of two servers. Their replies are not compared."""

    def __init__(self, ports, seed, dialect):
        super().__init__(ports, seed)
        self.dialect = dialect

    def pipeline(self, commands):
        super().pipeline([words for words in commands if not LEFT_OUT[self.dialect] & set(words)])

    def burst(self):
        if self.dialect == "redis" and random.random() < 0.5:
            self.pipeline([random_newer.command() for _ in range(20)])
        else:
            self.pipeline([random_types.make(self.known) for _ in range(20)])

    def check(self, *_, **__):
        pass

    check_events = check_values = check_round = check
    restore = pop_random = pick_random = scan = expire_now = check


def pairs(flat):
    return dict(zip(flat[::2], flat[1::2]))


def value(connection, name):
    """What a server has of a value. It has a name for each part, so that differences are short."""
    kind = connection.command("type", name)[1]
    words = CONTENTS[kind]
    content = random_types.flat(connection.command(words[0], name, *words[1:]))
    if kind == b"zset":
        # Newer servers print fewer digits, and Keyfast has no -0.
        content = [float(word) if place % 2 else word for place, word in enumerate(content)]
    if kind in (b"set", b"hash"):
        content = sorted(pairs(content).items() if kind == b"hash" else content)
    parts = {"type": kind, "content": content}
    if kind == b"stream":
        told = pairs(connection.command("xinfo", "stream", name, "full", "count", 0))
        parts |= {fact: told[fact] for fact in FACTS}
        parts |= {fact: told.get(fact, usual) for fact, usual in PRODUCERS.items()}
        for group in map(pairs, told[b"groups"]):
            label = group[b"name"]
            parts[label] = [group[part] for part in (b"last-delivered-id", b"entries-read", b"pending")]
            consumers = sorted(map(pairs, group[b"consumers"]), key=lambda consumer: consumer[b"name"])
            parts[label, "seen"] = [(each[b"name"], each[b"seen-time"]) for each in consumers]
            parts[label, "own"] = [(each[b"name"], each[b"pending"]) for each in consumers if each[b"pending"]]
    return parts


def values(server):
    """All values of a server, by database and name."""
    found = {}
    for database in random_types.DATABASES:
        server.connection.command("select", database)
        for name in sorted(server.connection.command("keys", "*")):
            expires_at_ms = server.connection.command("pexpiretime", name)
            found[database, name] = value(server.connection, name) | {"expiry": expires_at_ms}
    return found


def logged(found, is_own):
    """What logs keep: not when consumers were seen, nor consumers without entries, nor repeated messages.

    Keyfast logs the names of messages that were deleted since, and Redis refuses these."""
    dropped = {b"iids-added", b"iids-duplicates"} | ({b"iids-tracked"} if is_own else set())
    return {key: {part: what for part, what in parts.items() if part not in dropped and part[1:] != ("seen",)}
            for key, parts in found.items()}


class Exchange:
    def __init__(self, programs, root, dialect, seed):
        self.crossing = Crossing(programs, root)
        self.changes = Changes([server.port for server in self.crossing.servers], seed, dialect)
        self.differences = 0

    def round(self):
        self.changes.round()
        if random.random() < 0.5:
            self.crossing.rewrite()
        for server, other in (servers := self.crossing.servers), servers[::-1]:
            found = values(server)
            self.restore(server, other, found)
            self.load(server, other.program, found)
        self.changes.connect()

    def restore(self, server, other, found):
        for (database, name), wanted in found.items():
            server.connection.command("select", database)
            payload = server.connection.command("dump", name)
            if payload is None:
                continue  # it has expired
            other.connection.command("select", OTHER_DATABASE)
            expiry = max(wanted["expiry"], 0)
            reply = other.connection.command("restore", name, expiry, payload, "absttl", "replace")
            what = f"{other.program}, restored, {name}"
            if random_types.is_error(reply):
                self.differ(what, reply, payload)
            else:
                got = value(other.connection, name)
                got["expiry"] = other.connection.command("pexpiretime", name)
                self.compare(what, wanted, got)
            other.connection.command("del", name)

    def load(self, server, other, found):
        """Starts the other program with the files of a server. A log is held against what its author makes of it."""
        server.connection.command("save")
        self.compare_all(f"{other} with a snapshot", found, self.started(server, other, "dump.rdb"))
        is_own = server is self.crossing.servers[0]
        own, got = (self.started(server, program, "appendonlydir") for program in (server.program, other))
        self.compare_all(f"{other} with a log", logged(own, is_own), logged(got, is_own))

    def started(self, server, program, name):
        """What a program has that starts with a file, or the folder, of a server."""
        folder = self.crossing.folder()
        source, target = os.path.join(server.folder, name), os.path.join(folder, name)
        (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, target)
        loaded = Server(program, folder, "yes" if os.path.isdir(source) else "no")
        found = values(loaded)
        loaded.kill()
        shutil.rmtree(folder)
        return found

    def compare_all(self, what, wanted, got):
        for key in sorted(set(wanted) | set(got)):
            self.compare(f"{what}, {key}", wanted.get(key, {}), got.get(key, {}))

    def compare(self, what, wanted, got):
        for part in wanted | got:
            if wanted.get(part) != got.get(part):
                self.differ(f"{what}, {part}", wanted.get(part), got.get(part))

    def differ(self, what, wanted, got):
        if isinstance(wanted, list) and isinstance(got, list):
            place = next((at for at, pair in enumerate(zip(wanted, got)) if pair[0] != pair[1]), 0)
            wanted, got = wanted[place:], got[place:]
        print(f"{what}\n  before {random_types.show(wanted)}\n  after  {random_types.show(got)}")
        self.differences += 1


def main():
    programs, dialect = sys.argv[1:3], sys.argv[3]
    seed = sys.argv[4] if len(sys.argv) > 4 else "1"
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else ROUNDS
    with tempfile.TemporaryDirectory(prefix="keyfast-exchange-") as root:
        exchange = Exchange(programs, root, dialect, seed)
        try:
            for number in range(rounds):
                random.seed(f"{seed}.{number}")
                exchange.round()
                if exchange.differences >= DIFFERENCES_MAX:
                    break
        finally:
            exchange.crossing.kill()
    print(f"{exchange.changes.sent} random commands, {number + 1} rounds of files exchanged with {dialect}, "
          f"{exchange.differences} differences (seed {seed})")
    sys.exit(1 if exchange.differences else 0)


if __name__ == "__main__":
    main()
