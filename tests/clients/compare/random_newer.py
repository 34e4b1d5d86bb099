"""Changes streams and strings of Keyfast and Redis 8.6 at random, by what redis-server 7.0 does not know yet.

A round sends some thousand commands to both servers on the ports given, Keyfast's first, and compares the replies, then
what each server has, and whether a stream that one server dumps is the same when the other restores it. Streams begin
with an entry of the far future, so the IDs that the servers choose are the same. Times are blanked. The third argument
is the seed, the fourth the number of rounds. XNACK comes in if both servers know it (Redis since 8.8), and so do
MAXCOUNT and MAXSIZE (since 8.10).
"""

import random
import sys

from random_types import Connection, is_error

ROUNDS = 12
COMMANDS = 1_500  # of a round
DIFFERENCES_MAX = 10
FUTURE = 33_177_117_420_000  # of the IDs, in milliseconds

KEYS = ["a", "b"]
GROUPS = ["g", "h"]
CONSUMERS = ["c1", "c2", "c3"]
STRINGS = ["s", "t"]
one_of = random.choice
KNOWS_XNACK = KNOWS_LIMITS = False  # Whether both servers do.


def entry_id():
    return f"{FUTURE}-{random.randint(1, 60)}"


def policy():
    return one_of([[], [], ["KEEPREF"], ["DELREF"], ["ACKED"], ["acked"], ["ACKED", "KEEPREF"]])


def trim():
    rule = one_of([["MAXLEN", random.randint(0, 30)], ["MINID", entry_id()], ["MAXLEN", "=", random.randint(0, 30)],
                   ["MAXLEN", "~", random.randint(0, 30)], ["MINID", "~", entry_id()],
                   ["MAXLEN", "~", random.randint(0, 30), "LIMIT", random.randint(0, 20)]])
    where = policy()
    return rule + where if random.random() < 0.5 else where + rule


def ids():
    several = [entry_id() for _ in range(random.randint(1, 4))]
    number = len(several) if random.random() < 0.95 else random.randint(-1, 5)
    return ["IDS", number] + several


def idmp():
    producer = one_of(["p1", "p2", "p3"])
    return one_of([["IDMP", producer, f"m{random.randint(1, 20)}"], ["IDMPAUTO", producer], ["IDMP", "", "x"]])


def digest_like():
    return one_of(["0000000000000000", "short", "zzzzzzzzzzzzzzzz"])


def condition():
    value = one_of(["x", "y", "1"])
    return one_of([["IFEQ", value], ["IFNE", value], ["IFDEQ", digest_like()], ["IFDNE", digest_like()], []])


def command():
    key, group, consumer = one_of(KEYS), one_of(GROUPS), one_of(CONSUMERS)
    fields = ["f", random.randint(0, 3)] + (["other", "x"] if random.random() < 0.3 else [])
    name = one_of(STRINGS)
    kind = random.random()
    if KNOWS_XNACK and random.random() < 0.08:
        retries = ["RETRYCOUNT", random.randint(-1, 9)] if random.random() < 0.3 else []
        force = ["FORCE"] if random.random() < 0.3 else []
        words = one_of([ids() + retries + force, retries + force + ids(), force + ids() + retries + ids()])
        return ["XNACK", key, group, one_of(["SILENT", "FAIL", "fatal", "FORCE"])] + words
    if kind < 0.22:
        # Entries come and go.
        return ["XADD", key] + (trim() if random.random() < 0.3 else policy()) + ["*"] + fields
    if kind < 0.32:
        return ["XADD", key] + idmp() + ["*" if random.random() < 0.95 else entry_id()] + fields
    if kind < 0.38:
        return ["XTRIM", key] + trim()
    if kind < 0.46:
        return ["XDELEX", key] + policy() + ids()
    if kind < 0.54:
        return ["XACKDEL", key, group] + policy() + ids()
    if kind < 0.68:
        claim = ["CLAIM", one_of([0, 0, 1_000_000, -1, "x"])] if random.random() < 0.6 else []
        count = ["COUNT", random.randint(1, 6)] if random.random() < 0.8 else []
        noack = ["NOACK"] if random.random() < 0.1 else []
        if KNOWS_LIMITS and random.random() < 0.3:
            count += one_of([["MAXCOUNT", random.randint(0, 9)], ["MAXSIZE", random.randint(0, 900)],
                             ["MAXCOUNT", random.randint(1, 9), "MAXSIZE", random.randint(1, 900)]])
        streams = one_of([[key, ">"], [key, "0"], ["a", "b", ">", ">"], ["a", "b", "0", ">"]])
        return ["XREADGROUP", "GROUP", group, consumer] + claim + count + noack + ["STREAMS"] + streams
    if kind < 0.69:
        return ["XREAD", "COUNT", 3, "STREAMS", "a", "b", one_of(["+", "$", entry_id()]), one_of(["+", "0"])]
    if kind < 0.72:
        # Each entry gets a moment of its own, so that both servers claim in the same order.
        return ["XCLAIM", key, group, consumer, 0, entry_id(), "TIME", random.randint(1, 10**9), "FORCE"]
    if kind < 0.75:
        return ["XACK", key, group, entry_id(), entry_id()]
    if kind < 0.77:
        return ["XDEL", key, entry_id()]
    if kind < 0.79:
        return ["XGROUP", one_of(["CREATE", "DESTROY"]), key, group] + (["0"] if random.random() < 0.5 else [])
    if kind < 0.80:
        return ["XGROUP", "DELCONSUMER", key, group, consumer]
    if kind < 0.82:
        option = one_of([["IDMP-MAXSIZE", random.randint(0, 6)], ["IDMP-DURATION", random.randint(0, 3) * 100], ["X", 1],
                         ["IDMP-MAXSIZE", 3, "IDMP-DURATION", 100], ["IDMP-MAXSIZE"], []])
        return ["XCFGSET", key] + option
    if kind < 0.84:
        return ["XIDMPRECORD", key, one_of(["p1", "p4", ""]), f"m{random.randint(1, 20)}", entry_id()]
    if kind < 0.88:
        return ["XPENDING", key, group]
    if kind < 0.93:
        more = one_of([[], ["NX"], ["XX"], ["GET"], ["EX", 100]])
        words = [condition(), more] if random.random() < 0.8 else [more, condition()]
        if "short" in words[0] + words[1] and more == ["GET"]:
            return ["GET", name]  # Redis 8.6.3 replies twice.
        if ["IFEQ"] == words[0][:1] and more in (["NX"], ["XX"]):
            return ["GET", name]  # An error in Keyfast, as in Valkey.
        return ["SET", name, one_of(["x", "y", "1"])] + words[0] + words[1]
    if kind < 0.96:
        return ["DELEX", name] + condition()
    if kind < 0.98:
        return ["DIGEST", name]
    return ["MSETEX", one_of([1, 2]), "s", "x", "t", "y"] + one_of([[], ["NX"], ["XX"], ["KEEPTTL"], ["EX", 9]])


def blanked(words, reply):
    """A reply without times."""
    if words[0] == "XREADGROUP" and isinstance(reply, list):
        for stream in reply:
            stream[1] = [item[:2] + [None] + item[3:] if len(item) == 4 else item for item in stream[1]]
    return reply


def described(connection, key):
    """What a server has of a stream."""
    parts = [connection.command("XRANGE", key, "-", "+")]
    groups = connection.command("XINFO", "GROUPS", key)
    # Since Redis 7.2 a consumer is there although it has got nothing, and since 8 it is estimated otherwise how much a
    # group has read.
    parts.append([group[:2] + group[4:8] for group in groups] if isinstance(groups, list) else groups)
    info = connection.command("XINFO", "STREAM", key)
    if isinstance(info, list):
        pairs = dict(zip(info[::2], info[1::2]))
        # Keyfast has the fields of producers once a stream had any.
        defaults = {b"idmp-duration": 100, b"idmp-maxsize": 100}
        names = ["idmp-duration", "idmp-maxsize", "pids-tracked", "iids-tracked", "iids-added", "iids-duplicates"]
        for name in (name.encode() for name in names):
            parts.append((name, pairs.get(name, defaults.get(name, 0))))
        for name in (b"length", b"last-generated-id", b"max-deleted-entry-id", b"entries-added"):
            parts.append((name, pairs[name]))
    for group in GROUPS:
        pending = connection.command("XPENDING", key, group, "-", "+", 1000)
        if isinstance(pending, list):
            pending = [[item[0], item[1], item[2] == -1, item[3]] for item in pending]
        parts.append((group, None if is_error(pending) else pending))
    full = connection.command("XINFO", "STREAM", key, "FULL")
    if isinstance(full, list):
        groups = dict(zip(full[::2], full[1::2]))[b"groups"]
        # Keyfast has the number while it is not 0.
        parts.append([dict(zip(group[::2], group[1::2])).get(b"nacked-count", 0) for group in groups])
    return parts


def round_of(servers, number):
    differences = 0
    for connection in servers:
        connection.command("FLUSHALL")
        connection.command("CONFIG", "SET", "stream-node-max-entries", 7)
        for key in KEYS:
            connection.command("XADD", key, f"{FUTURE}-1", "f", "v")
    for step in range(COMMANDS):
        words = command()
        replies = [blanked(words, connection.command(*words)) for connection in servers]
        if is_error(replies[0]) and is_error(replies[1]) and replies[0][1].split()[0] != b"ERR":
            replies = [reply[1].split()[0] for reply in replies]
        if replies[0] != replies[1]:
            print(f"round {number}, step {step}: {words}\n  keyfast {replies[0]}\n  redis   {replies[1]}")
            differences += 1
            if differences >= DIFFERENCES_MAX:
                return differences
    for key in KEYS:
        own, other = (described(connection, key) for connection in servers)
        for one, two in zip(own, other):
            if one != two:
                print(f"round {number}, {key}:\n  keyfast {one}\n  redis   {two}")
                differences += 1
        for source, target in (servers, servers[::-1]):
            dump = source.command("DUMP", key)
            if dump is None:
                continue
            version = int.from_bytes(dump[-10:-8], "little")
            reply = target.command("RESTORE", "restored", 0, dump, "REPLACE")
            if is_error(reply) and b"version" in reply[1] and target is servers[0]:
                continue  # RESTORE takes payloads up to its own version.
            if is_error(reply):
                print(f"round {number}: {key}, of version {version}, is not restored: {reply}")
                differences += 1
            else:
                for one, two in zip(described(source, key), described(target, "restored")):
                    if one != two:
                        print(f"round {number}, {key}, restored:\n  before {one}\n  after  {two}")
                        differences += 1
            target.command("DEL", "restored")
    return differences


def main():
    ports = [int(port) for port in sys.argv[1:3]]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else ROUNDS
    servers = [Connection(port) for port in ports]
    global KNOWS_XNACK, KNOWS_LIMITS
    KNOWS_XNACK = all(server.command("COMMAND", "INFO", "XNACK")[0] for server in servers)
    limited = [server.command("XREAD", "MAXCOUNT", 1, "MAXSIZE", 1, "STREAMS", "absent", "0") for server in servers]
    KNOWS_LIMITS = not any(is_error(reply) for reply in limited)
    differences = 0
    for number in range(rounds):
        random.seed(seed + number)
        differences += round_of(servers, number)
        if differences >= DIFFERENCES_MAX:
            break
    print(f"newer commands: seed {seed}, {number + 1} rounds, {differences} differences")
    sys.exit(differences > 0)


if __name__ == "__main__":
    main()
