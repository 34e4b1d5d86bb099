"""Changes hashes with expiring fields of two servers at random, and compares all that clients see.

The second server is Redis 8.6 or Valkey 9.1. Replies are those of Redis, so the texts of errors, and the times that
Valkey rounds down, are only compared with Redis. Both servers expire fields by the same clock, so a round sets moments
a little in the future, waits until they have passed, and compares again. The third argument is the dialect (redis or
valkey), the fourth the seed, the fifth the number of rounds.
"""

import random
import socket
import sys
import time

ROUNDS = 15
COMMANDS = 400  # of a round
DIFFERENCES_MAX = 10
FAR_MS = 33_177_117_420_123
KEYS = ["a", "b", "c", "large"]
FIELDS = [f"field:{number}" for number in range(12)]
MANY = [f"field:{number}" for number in range(700)]
SOON_MS = 700  # those commands take less, on a busy machine, too
one_of = random.choice


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 18)

    def send(self, words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def reply(self):
        line = self.file.readline()
        if not line:
            raise EOFError("the server has closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"$":
            return None if text == b"-1" else self.file.read(int(text) + 2)[:-2]
        if kind == b"*":
            return None if text == b"-1" else [self.reply() for _ in range(int(text))]
        return int(text) if kind == b":" else (kind.decode(), text.decode())

    def command(self, *words):
        self.send(words)
        return self.reply()


class Pair:
    """Both servers, with a listener to the events of each."""

    def __init__(self, ports, dialect):
        self.dialect = dialect
        self.servers = [Connection(port) for port in ports]
        self.listeners = [Connection(port) for port in ports]
        self.differences = 0
        for server in self.servers:
            server.command("CONFIG", "SET", "notify-keyspace-events", "KEA")
        for listener in self.listeners:
            listener.command("PSUBSCRIBE", "__keyevent@*")

    def events(self):
        """What has come so far, without the names of events that the two give to a field that is gone at once."""
        told = []
        for listener in self.listeners:
            listener.send(["PING"])
            events = []
            while (message := listener.reply())[0] != b"pong":
                events.append((message[2].split(b":")[1].decode(), message[3].decode()))
            told.append(events)
        return told

    def check(self, what, ours, theirs):
        if ours == theirs:
            return
        self.differences += 1
        print(f"{what}\n  keyfast: {ours!r}\n  {self.dialect}: {theirs!r}", file=sys.stderr)
        if self.differences >= DIFFERENCES_MAX:
            sys.exit("too many differences")

    def command(self, *words, is_ordered=True):
        ours, theirs = [server.command(*words) for server in self.servers]
        if self.dialect == "valkey" and words[0] == "HTTL":
            return ours  # it rounds down
        if self.dialect == "valkey" and all(isinstance(r, tuple) and r[0] == "-" for r in (ours, theirs)):
            ours = theirs  # other words
        if not is_ordered and isinstance(ours, list) and isinstance(theirs, list):
            ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
        self.check(words, ours, theirs)
        told = self.events()
        if self.dialect == "redis":
            self.check(("events of", *words), *told)
        return ours

    def compare(self, key):
        for words in (["EXISTS", key], ["TYPE", key], ["HLEN", key]):
            self.command(*words)
        self.command("HKEYS", key, is_ordered=False)
        fields = MANY if key == "large" else FIELDS
        self.command("HMGET", key, *fields)
        self.command("HPEXPIRETIME", key, "FIELDS", len(fields), *fields)


def fields(count=None):
    chosen = [one_of(FIELDS) for _ in range(count or random.randint(1, 4))]
    return ["FIELDS", len(chosen), *chosen]


def pairs():
    chosen = [one_of(FIELDS) for _ in range(random.randint(1, 4))]
    return ["FIELDS", len(chosen), *(part for field in chosen for part in (field, random.randint(0, 99)))]


def moment(soon_ms):
    return one_of([soon_ms, soon_ms, FAR_MS, FAR_MS + random.randint(0, 5), 1, 0])


def change(key, soon_ms, dialect):
    """A command that changes a hash, or fails. Moments are absolute: two servers read a clock at two times."""
    at_ms = moment(soon_ms)
    expiry = one_of([[], ["PXAT", at_ms], ["EXAT", FAR_MS // 1000], ["EX", 0], ["PX", 0]])
    keys = [[], [], ["FNX"], ["FXX"]]
    two = [one_of(FIELDS), one_of(FIELDS)]
    return one_of(
        [
            ["HSET", key, one_of(FIELDS), random.randint(0, 99), one_of(FIELDS), "text"],
            ["HSETNX", key, one_of(FIELDS), random.randint(0, 99)],
            ["HDEL", key, one_of(FIELDS), one_of(FIELDS)],
            ["HINCRBY", key, one_of(FIELDS), random.randint(-9, 9)],
            ["HINCRBYFLOAT", key, one_of(FIELDS), 0.5],
            ["HPEXPIREAT", key, at_ms, *one_of([[], ["NX"], ["XX"], ["GT"], ["LT"]]), *fields()],
            ["HPEXPIREAT", key, at_ms, *fields()],
            ["HEXPIREAT", key, FAR_MS // 1000, *fields()],
            ["HEXPIRE", key, 0, *fields()],
            ["HPERSIST", key, *fields()],
            ["HGETDEL", key, *fields()],
            ["HGETEX", key, *one_of([expiry, ["PERSIST"]]), *fields()],
            ["HSETEX", key, *one_of(keys), *one_of([expiry, ["KEEPTTL"]]), *pairs()],
            ["HSETEX", key, *one_of([expiry, ["KEEPTTL"]]), *one_of(keys), *pairs()],
            ["COPY", key, one_of(KEYS[:3]), "REPLACE"],
            ["RENAME", key, one_of(KEYS[:3])],
            ["HEXPIREAT", key, one_of(["x", -1, FAR_MS // 1000]), "FIELDS", one_of([0, -1, 1, 2, 3]), *two],
            ["HTTL", key, "FIELDS", one_of([0, -1, 1, 2, 3]), one_of(FIELDS), one_of(FIELDS)],
            ["HGETEX", key, one_of(["EX", "PERSIST", "KEEPTTL", "FNX"]), "FIELDS", one_of([0, 1, 2]), one_of(FIELDS)],
            ["HSETEX", key, one_of(["EX", "PERSIST", "FNX"]), "FIELDS", one_of([0, 1, 2]), one_of(FIELDS), "v"],
        ]
    )


def fill_large(pair, soon_ms):
    """A hash that is not packed; a part of it expires soon."""
    for start in range(0, len(MANY), 100):
        some = MANY[start : start + 100]
        pair.command("HSET", "large", *(part for field in some for part in (field, "v")))
        pair.command("HPEXPIREAT", "large", one_of([soon_ms, FAR_MS]), "FIELDS", 50, *some[:50])


def exchange(pair):
    """DUMP and RESTORE, from each to itself and, of Redis's form, to the other."""
    ours, theirs = pair.servers
    for key in KEYS:
        payloads = [server.command("DUMP", key) for server in pair.servers]
        if None in payloads:
            continue
        ways = [(payloads[0], ours), (payloads[1], theirs), (payloads[1], ours)]
        ways += [(payloads[0], theirs)] if pair.dialect == "redis" else []
        for payload, server in ways:
            server.command("DEL", "restored")
            pair.check(("RESTORE", key), server.command("RESTORE", "restored", 0, payload), ("+", "OK"))
        pair.events()
        pair.compare("restored")
        pair.command("DEL", "restored")


def main():
    ports, dialect = [int(port) for port in sys.argv[1:3]], sys.argv[3]
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else ROUNDS
    random.seed(seed)
    pair = Pair(ports, dialect)
    for _ in range(rounds):
        pair.command("FLUSHALL")
        soon_ms = int(time.time() * 1000) + 60_000
        fill_large(pair, soon_ms)
        for _ in range(COMMANDS):
            key = one_of(KEYS)
            words = change(key, soon_ms, dialect)
            if key == "large" and words[0] in ("COPY", "RENAME"):
                continue
            pair.command(*words)
        for key in KEYS:
            pair.compare(key)
        exchange(pair)
        # All that was to expire in a minute does so in a moment.
        soon_ms = int(time.time() * 1000) + SOON_MS
        for key in KEYS:
            chosen = random.sample(MANY if key == "large" else FIELDS, 9)
            pair.command("HPEXPIREAT", key, soon_ms, "FIELDS", len(chosen), *chosen)
        while time.time() * 1000 < soon_ms + 5:
            time.sleep(0.01)
        # The other server shows some of them until it has freed them.
        deadline = time.time() + 30
        while len({tuple(server.command("HLEN", key) for key in KEYS) for server in pair.servers}) > 1:
            if time.time() > deadline:
                break
            time.sleep(0.01)
        pair.events()
        for key in KEYS:
            pair.compare(key)
    if pair.differences:
        sys.exit(f"{pair.differences} differences from {dialect}, seed {seed}")
    print(f"fields: {rounds} rounds of {COMMANDS} commands as {dialect}, seed {seed}")


main()
