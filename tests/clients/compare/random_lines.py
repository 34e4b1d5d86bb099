"""Sends the same random commands to two servers on the ports given, and compares their answers byte for byte.

The commands are those whose arguments have many corners: numbers, ranges, bits, expiries, payloads. What depends
on the very millisecond, or on the order in which a server keeps its keys, is left out or allowed for. The seed is
fixed, so that a difference is found again; a third argument changes it. With `store` as the fourth, the keys of the
first server live in PostgreSQL: some commands are left out then, and fewer are sent.
"""

import random
import socket
import sys

COMMANDS = 30_000
DIFFERENCES_MAX = 10
PROTO_MAX_BULK_LEN = "1mb"  # so that limits are met
CLOCK_MS = 50  # both read the clock a moment apart
STORE_COMMANDS = 4_000
STORE_CLOCK_MS = 5_000  # PostgreSQL has a clock of its own, and is asked in between
STORE_FAR_MS = 8 * 10**15  # moments beyond those that PostgreSQL knows are as far as it can tell


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def command(self, *arguments):
        arguments = [a if isinstance(a, bytes) else a.encode("latin-1") for a in arguments]
        request = b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in arguments)
        self.socket.sendall(request)
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if line[:1] == b"$" and line[:2] != b"$-":
            return line + self.file.read(int(line[1:]) + 2)
        if line[:1] == b"*" and line[:2] != b"*-":
            return line + b"".join(self.reply() for _ in range(int(line[1:])))
        if not line:
            raise EOFError("the server has closed the connection")
        return line


one_of = random.choice


def key():
    return one_of("abcde")


def integer():
    return one_of([
        str(random.randint(-20, 20)), str(random.randint(-10**6, 10**6)), str(random.randint(-2**63, 2**63 - 1)),
        "9223372036854775807", "-9223372036854775808", "x", "", "01", "+1", " 1", "1.5",
    ])


def offset():
    return one_of([str(random.randint(-12, 12)), str(random.randint(0, 40)), "x", "99999999999", "-99999999999"])


def number():
    return one_of([
        str(random.randint(-1000, 1000)), "%.3f" % random.uniform(-100, 100), "%.17g" % random.uniform(-1, 1),
        "%e" % random.uniform(-1e10, 1e10), "%de%d" % (random.randint(-99, 99), random.randint(-25, 30)),
        "0x%x" % random.randint(0, 10**6), "0x1.8p%d" % random.randint(-70, 80), "inf", "-inf", "nan", "1e4000",
        "1e-4940", "1e-4951", "3.0e3", ".5", "5.", "abc", " 1", "1 ", "-0", "1e+5", "1E5", "0x.8", "0x", "1e4932",
        "123456789012345678901234567890", "0.000000000000000005", "0.000000000000000015", "1e99999999",
    ])


def value():
    return one_of([
        "", "hello", "abcabcabc", "aXbXc", "\xff\x00\x01", "123", "-5", integer(), number(),
        "x" * random.randint(1, 60), bytes(random.randrange(256) for _ in range(random.randint(0, 12))),
    ])


def long_value():
    return one_of([
        one_of(["ab", "abc", "hello world "]) * random.randint(1, 200), "x" * random.randint(1, 70_000),
        bytes(one_of(b"ab") for _ in range(random.randint(1, 400))),
        bytes(random.randrange(256) for _ in range(random.randint(1, 300))),
    ])


def expiry():
    return one_of([
        [], ["ex", one_of(["-3", "0", "1000", "x", "9223372036854775"])], ["px", one_of(["-5", "0", "100000", "x"])],
        ["exat", integer()], ["pxat", integer()], ["keepttl"], ["nx"], ["xx"], ["get"], ["persist"],
    ])


def bit_type():
    return one_of("ui") + one_of(["1", "2", "3", "5", "7", "8", "13", "16", "32", "33", "63", "64", "0", "65", "x"])


def bit_offset():
    return one_of(["0", "1", "7", "8", "13", "100", "#0", "#1", "#3", "-1", "x", "99999999999", "#x"])


def bit_operation():
    return one_of([
        ["get", bit_type(), bit_offset()], ["set", bit_type(), bit_offset(), integer()],
        ["incrby", bit_type(), bit_offset(), integer()], ["overflow", one_of(["wrap", "sat", "fail", "foo"])],
    ])


def bit_range(may_be_open):
    # BITCOUNT with a start alone is that of Valkey 8.1; redis-server 7.0 refuses it.
    ends = [[], [offset(), offset()], [offset(), offset(), one_of(["bit", "byte", "foo"])]]
    return one_of(ends + [[offset()]] * may_be_open)


MAKERS = [
    lambda: ["append", key(), value()],
    lambda: [one_of(["incr", "decr", "getdel", "strlen", "get", "persist", "ttl", "type", "unlink", "dump"]), key()],
    lambda: [one_of(["incrby", "decrby"]), key(), integer()],
    lambda: ["incrbyfloat", key(), number()],
    lambda: ["getex", key(), *expiry(), *one_of([[], expiry()])],
    lambda: [one_of(["getrange", "substr"]), key(), offset(), offset()],
    lambda: ["setrange", key(), offset(), value()],
    lambda: ["set", key(), value(), *expiry(), *expiry()],
    lambda: ["set", key(), one_of([number(), value(), long_value()])],
    lambda: [one_of(["setex", "psetex"]), key(), one_of(["0", "-1", "x", "100000"]), value()],
    lambda: [one_of(["mset", "msetnx"]), key(), value(), key(), value()],
    lambda: ["mget", key(), key(), "nosuch"],
    lambda: [one_of(["setnx", "getset"]), key(), value()],
    lambda: ["lcs", key(), key(), *one_of([[], ["len"], ["idx"], ["idx", "withmatchlen"], ["len", "idx"],
                                          ["idx", "minmatchlen", offset(), "withmatchlen"]])],
    lambda: ["object", one_of(["encoding", "freq", "nosuch"]), key()],
    lambda: ["copy", key(), key(), *one_of([[], ["replace"], ["db", one_of(["1", "x", "99", "0", "-1"])],
                                           ["db", "1", "replace"], ["db"], ["foo"]])],
    lambda: [one_of(["rename", "renamenx"]), key(), key()],
    lambda: ["move", key(), one_of(["1", "0", "x", "99", "-1", "99999999999"])],
    lambda: ["swapdb", one_of(["0", "1", "x", "99"]), one_of(["0", "1", "x", "-1"])],
    lambda: ["expire", key(), one_of(["-3", "0", "1000", "2000", "x", "9223372036854775807"]),
             *one_of([[], ["nx"], ["xx"], ["gt"], ["lt"], ["nx", "xx"], ["gt", "lt"], ["foo"]])],
    lambda: [one_of(["expireat", "pexpireat"]), key(), one_of([integer(), "33177117420000"]), *one_of([[], ["gt"]])],
    lambda: [one_of(["expiretime", "pexpiretime", "pttl"]), key()],
    lambda: [one_of(["exists", "touch"]), key(), key(), "nosuch"],
    lambda: ["scan", one_of(["0", "", "x"]), *one_of([[], ["count", "1000"], ["count", "0"], ["count", "x"], ["foo"],
                                                     ["type", "list"], ["match", "zzz*"]])],
    lambda: ["setbit", key(), offset(), one_of(["0", "1", "2", "x"])],
    lambda: ["getbit", key(), offset()],
    lambda: ["bitcount", key(), *bit_range(may_be_open=False)],
    lambda: ["bitpos", key(), one_of(["0", "1", "2", "x"]), *bit_range(may_be_open=True)],
    lambda: ["bitop", one_of(["and", "or", "xor", "not", "foo"]), key(), *[key() for _ in range(random.randint(1, 3))]],
    lambda: [one_of(["bitfield", "bitfield", "bitfield_ro"]), key(),
             *sum((bit_operation() for _ in range(random.randint(0, 4))), [])],
]


def restore(servers):
    """RESTORE of what one of the servers has dumped, sometimes damaged."""
    reply = one_of(servers).command("dump", key())
    payload = reply.split(b"\r\n", 1)[1][:-2] if reply[:2] != b"$-" else b"nothing"
    if random.random() < 0.1:
        payload = payload[:-1] + b"!"
    options = [[], ["replace"], ["replace", "absttl"], ["replace", "idletime", "5"], ["replace", "freq", "300"], ["foo"]]
    return ["restore", key(), one_of(["0", "100000", "-1", "x"]), payload, *one_of(options)]


def can_be_in_store(command):
    """What concerns two databases is refused there; what depends on how a value is kept, or when it was used, differs."""
    return command[0] not in ("move", "swapdb", "object", "dump") and not (command[0] == "copy" and "db" in command)


def are_alike(command, one, other, clock_ms):
    if one == other:
        return True
    if command[:2] == ["object", "encoding"]:  # Redis 8 keeps a short value beside its key and its expiry
        return {one, other} == {b"$3\r\nraw\r\n", b"$6\r\nembstr\r\n"}
    if command[0] == "dump" and one[:1] == other[:1] == b"$":  # all but the version of the form and the checksum
        return one[:-12] == other[:-12]
    if command[0] == "scan":  # in any order
        return sorted(one.split(b"\r\n")) == sorted(other.split(b"\r\n"))
    if command[0] in ("ttl", "pttl", "expiretime", "pexpiretime"):
        if one[:1] != b":" or other[:1] != b":":
            return False
        one, other = int(one[1:]), int(other[1:])
        is_far = clock_ms == STORE_CLOCK_MS and min(one, other) * (1 if command[0][0] == "p" else 1000) > STORE_FAR_MS
        return is_far or abs(one - other) <= clock_ms
    return False


def main():
    ports, seed = sys.argv[1:3], sys.argv[3] if len(sys.argv) > 3 else "1"
    servers = [Connection(int(port)) for port in ports]
    is_store = sys.argv[4:] == ["store"]
    commands, clock_ms = (STORE_COMMANDS, STORE_CLOCK_MS) if is_store else (COMMANDS, CLOCK_MS)
    random.seed(seed)
    for server in servers:
        server.command("flushall")
        server.command("config", "set", "proto-max-bulk-len", PROTO_MAX_BULK_LEN)
    differences = 0
    for _ in range(commands):
        command = restore(servers) if random.random() < 0.03 else one_of(MAKERS)()
        if is_store and not can_be_in_store(command):
            continue
        replies = [server.command(*command) for server in servers]
        if not are_alike(command, *replies, clock_ms):
            differences += 1
            print(f"{command}\n  keyfast {replies[0][:300]}\n  redis   {replies[1][:300]}")
            if differences == DIFFERENCES_MAX:
                break
    where = " on keys in a store" if is_store else ""
    print(f"{commands} random commands{where}, {differences} differences (seed {seed})")
    sys.exit(1 if differences else 0)


main()
