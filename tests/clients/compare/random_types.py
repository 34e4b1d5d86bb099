"""Changes collections, streams, places and HyperLogLogs of two servers at random, and compares all that clients see.

A round sends a few thousand commands to both servers on the ports given, Keyfast's first: alone, in pipelines, in
transactions and in scripts. Other connections receive the keyspace events, wait in blocking commands, and watch
keys. The round ends with a comparison of all values. Elements and limits are such that values cross the limits of
packed values in both directions.

Replies are compared as they are, but for the order of what has no order. A command that picks at random is checked
by what it may pick. The third argument is the seed, the fourth the number of rounds. With `postgres` or `etcd` as the
fifth, the keys of the first server live there: what differs by design is left out then.
"""

import random
import re
import select
import socket
import sys
import time

ROUNDS = 12
COMMANDS = 1_500  # of a round, about
DIFFERENCES_MAX = 10
CLOCK_MS = 500  # both read the clock a moment apart
STORE_CLOCK_MS = 8_000  # a store has a clock of its own, and etcd's counts whole seconds
LATE_SECONDS_MAX = 30
SERVED_SECONDS_MAX = 5  # by a store, where a client may also have nothing to get
DATABASES = [2, 1, 0]  # those that commands may reach

KEYS = ["a", "b", "c", "d", "e", "f"]
PLACES = ["places", "more places"]  # sorted sets of places alone, so that searches find some
COUNTED = ["visitors", "guests", "both"]  # HyperLogLogs
DAMAGED = "damaged"
ALL_KEYS = KEYS + PLACES + COUNTED + [DAMAGED]
one_of = random.choice
store = ""  # where the keys of the first server live, if not in its memory


class Reply(tuple):
    """A reply that is no string, integer, null or array: its kind and its content."""


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LATE_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 18)

    def send(self, *commands):
        requests = []
        for command in commands:
            words = [word if isinstance(word, bytes) else str(word).encode("latin-1") for word in command]
            requests.append(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        self.socket.sendall(b"".join(requests))

    def command(self, *words):
        self.send(words)
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line:
            raise EOFError("the server has closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind in b"$=":
            return None if text == b"-1" else self.file.read(int(text) + 2)[:-2]
        if kind == b":":
            return int(text)
        if kind in b"*%~>":
            if text == b"-1":
                return Reply((b"*", None))
            items = [self.reply() for _ in range(int(text) * (2 if kind == b"%" else 1))]
            return items if kind == b"*" else Reply((kind, items))
        return None if kind == b"_" else Reply((kind, text))

    def close(self):
        self.socket.close()


def is_error(reply):
    return isinstance(reply, Reply) and reply[0] == b"-"


def items_of(reply):
    return reply[1] if isinstance(reply, Reply) else reply


# Words.

class Pool:
    """What a round draws elements from: how many names, and how long they are."""

    def __init__(self):
        self.names = one_of([5, 20, 140, 600, 3000])
        self.numbers = one_of([0, 0, 0.5, 1])
        self.long = one_of([0, 0.01, 0.05]) if store != "etcd" else 0  # a value there has 1.4 MiB at most
        self.has_one_score = random.random() < 0.25  # where ranges of members are defined
        self.sorts = random.random() < 0.3  # Redis 7.0 keeps a sorted set that was sorted in a skiplist
        self.streams = one_of([0, 0.2, 0.6, 0.9])
        self.shape = one_of(["%d", "n%d", "member:%06d"])

    def element(self):
        draw = random.random()
        if draw < self.long:
            return bytes([random.randrange(97, 123)]) * length()
        if draw < self.long + 0.03:
            return one_of(["", "0", "-0", "007", "9223372036854775807", "-9223372036854775808", "32767", "32768",
                           "-32768", "-32769", "2147483647", "2147483648", "9223372036854775808", "1.5", "nan",
                           " 1", "+1", "x\r\ny", bytes(random.randrange(256) for _ in range(8))])
        number = random.randrange(self.names)
        return number if random.random() < self.numbers else self.shape % number


def length():
    return one_of([63, 64, 65, 127, 128, 200, 253, 254, 255, 256, 1000, 1015, 1023, 1024, 1025, 2047, 2048, 2049, 4095,
                   4096, 8100, 8192, 16383, 16384, 65535, 65536, 70_000])


pool = Pool()


def element():
    return pool.element()


def elements(least=1):
    draw = random.random()
    if draw < 0.6:
        count = random.randint(least, 4)
    elif draw < 0.95:
        count = random.randint(least, 40)
    else:
        count = random.randint(100, 1500)
    return [element() for _ in range(max(count, least))]


def key():
    return one_of(KEYS)


def keys():
    return [key() for _ in range(one_of([1, 1, 2, 2, 3, 5]))]


def numbered_keys():
    chosen = keys()
    return [one_of([len(chosen)] * 12 + [0, -1, "x", len(chosen) + 1, 2**63 - 1]), *chosen]


EDGES = [0, 1, -1, 2, -2, 9223372036854775807, -9223372036854775808, "9223372036854775808", "x", "", "01", " 1", "1.5",
         4294967295, 4294967296, 2147483647, 2147483648, -2147483649]


def index():
    return one_of([random.randint(-6, 6), random.randint(-6, 6), random.randint(-700, 700), one_of(EDGES)])


def near(place):
    """Redis 8 takes the lower 32 bits of an index for LSET in a packed list."""
    return place if isinstance(place, str) or abs(place) < 1 << 31 else 1 << 30


def rank():
    return one_of([1, -1, 2, -3, 0, "x", 1000])  # not -2^63, which newer servers refuse


def count():
    return one_of([1, 1, 2, 3, random.randint(0, 50), random.randint(0, 2000), one_of(EDGES)])


def integer():
    return one_of([random.randint(-20, 20), random.randint(-10**6, 10**6), random.randint(-2**63, 2**63 - 1),
                   one_of(EDGES)])


def number():
    return one_of([
        random.randint(-1000, 1000), "%.3f" % random.uniform(-100, 100), "%.17g" % random.uniform(-1, 1),
        "%e" % random.uniform(-1e10, 1e10), "%de%d" % (random.randint(-99, 99), random.randint(-25, 30)),
        one_of(["inf", "-inf", "nan", "1e400", "1e-400", ".5", "5.", "abc", " 1", "1 ", "-0", "0x10", "", "1e308",
                "-1.7976931348623157e308", "4.9e-324", "123456789012345678901234567890", "+inf", "Infinity"]),
    ])


def score():
    if pool.has_one_score:
        return 0
    return number() if random.random() < 0.15 else one_of([
        random.randint(-5, 5), random.randint(-1000, 1000), random.uniform(-3, 3), "inf", "-inf", 0, "-0",
        random.randint(-2**60, 2**60)])


def bound():
    return one_of(["", "", "("]) + str(one_of([score(), "-inf", "+inf", random.randint(-10, 10)]))


def lex():
    word = element()
    word = word.decode("latin-1") if isinstance(word, bytes) else str(word)
    return one_of(["-", "+", "-", "+", "[" + word, "(" + word, "[", "(", word])


def limit():
    return one_of([[], [], [], ["limit", index(), index()], ["limit", 0], ["limit", "x", 1]])


def side():
    return one_of(["left", "right", "LEFT", "right", "left", "right", "middle"])


def end():
    return one_of(["min", "max", "min", "max", "MAX", "mid"])


def pairs():
    return [word for field in elements() for word in (field, element())]


def scored():
    return [word for member in elements() for word in (score(), member)]


def some(*words):
    """Some of these options, mostly few."""
    return [word for word in words if random.random() < 0.2]


def aggregated(chosen, with_scores=True):
    words = []
    if random.random() < 0.3 or pool.has_one_score:
        words += ["weights", *[score() for _ in range(len(chosen) - 1 + one_of([0] * 9 + [1]))]]
    if random.random() < 0.3:
        words += ["aggregate", one_of(["sum", "min", "max", "avg"])]
    return words + (some("withscores") if with_scores else [])


def zrange_options():
    kind = one_of([[], [], ["byscore"], ["bylex"], ["byscore", "bylex"]])
    ends = [bound(), bound()] if "byscore" in kind else [lex(), lex()] if "bylex" in kind else [index(), index()]
    return [*ends, *kind, *some("rev"), *limit()]


def combination(name):
    chosen = numbered_keys()
    return [name, *chosen, *aggregated(chosen)]


def stored_combination(name):
    chosen = numbered_keys()
    return [name, key(), *chosen, *aggregated(chosen, False)]


def places_key():
    return key() if random.random() < 0.05 else one_of(PLACES)


def target_key():
    return key() if random.random() < 0.8 else places_key()


def place():
    """Near few towns, so that many are near each other, or anywhere, the edges of the map included."""
    draw = random.random()
    if draw < 0.02:
        return [one_of(["180", "-180", "181", "x", "nan", "inf", 0]), one_of(["85.05112878", "-85.05112878", "86", "", 0])]
    if draw < 0.15:
        return ["%.*f" % (random.randint(0, 8), random.uniform(-180, 180)), "%.6f" % random.uniform(-85, 85)]
    if draw < 0.3:
        return [one_of([0, 1, 90, -90, 45, 179, -179]), one_of([0, 1, 45, -45, 70, -70, 84])]
    longitude, latitude, width = one_of([(13.4, 52.5, 1), (15, 37, 2), (-179.99, -17, 0.5), (179.9, 66.5, 3), (0, 0, 0.01),
                                         (-70, 80, 9), (151.2, -33.8, 0.02)])
    longitude += random.uniform(-width, width)
    digits = random.randint(1, 7)
    return ["%.*f" % (digits, (longitude + 180) % 360 - 180), "%.*f" % (digits, latitude + random.uniform(-width, width) / 2)]


def unit():
    return one_of(["m", "km", "ft", "mi", "KM", "m", "km", "ft", "mi", "KM", "yd"])


def size():
    if random.random() < 0.05:
        return number()
    return one_of([0, 10, 100, 1000, 25000, 1_000_000, random.randint(0, 500), "%.3f" % random.uniform(0, 5000),
                   10 ** random.uniform(-3, 8), 10 ** random.uniform(3, 8), 10 ** random.uniform(5, 7.5)])


def search_options():
    options = [some("withdist"), some("withcoord"), some("withhash"), one_of([[], ["asc"], ["desc"], ["ASC"]])]
    options.append(one_of([[], [], ["count", random.randint(1, 30)], ["count", count()], ["count", random.randint(1, 9), "any"],
                           ["any"]]))
    random.shuffle(options)
    return sum(options, [])


def radius_search(name):
    words = [name, places_key(), *(place() if "member" not in name else [place_name()]), size(), unit()]
    words += search_options()
    if random.random() < 0.3:
        words = [word for word in words if word not in ("withdist", "withcoord", "withhash") or random.random() < 0.1]
        words += [one_of(["store", "storedist"]), target_key()]
    return words


def area():
    center = one_of([["fromlonlat", *place()], ["fromlonlat", *place()], ["frommember", place_name()]])
    return one_of([[*center, "byradius", size(), unit()], [*center, "bybox", size(), size(), unit()],
                   ["bybox", size(), size(), unit(), *center], ["byradius", size(), unit(), *center]])


def place_name():
    return random.randrange(pool.names)


def places():
    count = one_of([1, 1, 3, 20, 150, 600])
    return [word for _ in range(count) for word in (*place(), place_name())]


def counted_key():
    return key() if random.random() < 0.05 else one_of(COUNTED)


def visitors():
    count = one_of([0, 1, 1, 3, 20, 100, 700])
    return ["v%d" % random.randrange(pool.names * 10) if random.random() < 0.95 else element() for _ in range(count)]


def damage():
    """Changes bytes of a HyperLogLog, or uses a damaged one. Elements are added one by one: if one of several finds
    the damage, Redis keeps those before it, without telling anyone."""
    return one_of([
        ["setrange", DAMAGED, one_of([0, 3, 4, 5, 7, 8, 12, 15]), one_of([b"\0", b"\1", b"\2", b"\x80", b"HYLL", b"x"])],
        ["append", DAMAGED, one_of([b"\0", b"\x80", b"\x7f\xff", b"x"])],
        ["set", DAMAGED, b"HYLL\1" + b"\0" * 10 + one_of([b"\x80", b"\0"])
         + one_of([b"\x7f\xff", b"", b"\x7f\xfe", b"\x7f\xfe\0", b"\x7f\xfe\x80", b"\x7f\xfb\x83", b"\x7f\xf9\x81\x83",
                   b"\x3f" * 256, b"\x83" * 4096, b"\xff" * 4096, b"\x40\0" * 200 + b"\x7f\x37"])],
        ["set", DAMAGED, b"HYLL\0" + b"\0" * 10 + b"\x80" + one_of([b"\0", b"\xff", b"\x41"]) * one_of([12288, 12288, 12287])],
        ["copy", counted_key(), DAMAGED, "replace"],
        *[["pfadd", DAMAGED, "v%d" % random.randrange(1000)]] * 4,
        ["pfcount", DAMAGED], ["pfcount", DAMAGED, counted_key()],
        ["pfmerge", counted_key(), DAMAGED],
        ["pfdebug", one_of(["encoding", "decode", "getreg", "todense"]), DAMAGED],
        ["get", DAMAGED],
    ])


def sort():
    words = [one_of(["sort", "sort", "sort_ro"]), key(), *some("desc")]
    # Texts that are missing are equal, and Redis leaves these in any order; numbers have one order.
    words += one_of([[], ["alpha"], ["alpha"], ["by", "w*"], ["by", "h*->f"]])
    words += one_of([[], [], ["limit", index(), count()]])
    words += one_of([[], [], ["get", "#"], ["get", "w*", "get", "#"], ["get", "h*->f"]])
    return words + one_of([[], [], [], ["store", key()]])


# Streams.

# Redis 7.0 cannot read streams with consumers that were heard of at another time than they got something.
STREAM_OF_NEWER = b"\x15"
GROUPS, CONSUMERS = ["g", "h", "group"], ["c", "d", "e", "consumer"]
moment = 0  # of the last entry: IDs mostly ascend, and are the same on both servers


def stream():
    """Streams have two keys mostly to themselves."""
    return one_of(["e", "e", "f", "f", key()])


def fields():
    names = one_of([["f"], ["f"], ["f", "g"], [element()], [element() for _ in range(random.randint(1, 30))]])
    return [word for name in names for word in (name, element())]


def new_id():
    global moment
    moment += one_of([0, 0, 0, 1, 1, 2, 1000])
    next_one, exactly = f"{moment}-*", f"{moment}-{random.randint(0, 9)}"
    return one_of([next_one, next_one, next_one, next_one, moment, exactly, entry_id()])


def entry_id():
    ms = max(0, moment - one_of([0, 0, 1, 2, 3, 5, 10, 50, 500, 5000]))
    return one_of([ms, f"{ms}-{random.randint(0, 5)}", f"{ms}-0", f"{ms}-1", f"{ms}-1", one_of(
        ["0", "0-0", "0-1", "-", "+", "$", "x", "", "1-", "1-1-1", "007", "18446744073709551615",
         "18446744073709551615-18446744073709551615", "18446744073709551616", "-1", " 1-+1", "1-*"])])


def read_id():
    """Redis reads the last entry behind "+" since 7.4 only."""
    return next(found for found in iter(entry_id, None) if found != "+")


def edge_id():
    return one_of(["-", "+", "-", "+", entry_id(), entry_id(), f"({entry_id()}"])


def trim():
    sign = one_of([[], ["="], ["~"], ["~"]])
    rule = one_of([["maxlen", *sign, one_of([0, 1, 5, 20, 100, 300, -1, "x"])], ["minid", *sign, entry_id()]])
    return rule + one_of([[], [], [], ["limit", one_of([0, 1, 10, 200, -1, "x"])]])


def group():
    return one_of(GROUPS)


def consumer():
    return one_of(CONSUMERS)


def few():
    return one_of([1, 2, 5, 100, 0, -1, "x"])


def ids():
    return [entry_id() for _ in range(one_of([1, 1, 2, 5, 40]))]


def reading(ids):
    names = [stream() for _ in range(one_of([1, 1, 1, 2]))]
    block = one_of([[], [], [], ["block", one_of([5, 5, "x", -1])]])
    return [*one_of([[], ["count", few()]]), *block, "streams", *names, *[one_of(ids)() for _ in names]]


STREAM_MAKERS = [
    lambda: ["xadd", stream(), new_id(), *fields()],
    lambda: ["xadd", stream(), new_id(), *fields()],
    lambda: ["xadd", stream(), new_id(), *fields()],
    lambda: ["xadd", stream(), *some("nomkstream"), *trim(), new_id(), *fields()],
    lambda: ["xlen", stream()],
    lambda: [one_of(["xrange", "xrevrange"]), stream(), edge_id(), edge_id(), *one_of([[], ["count", few()]])],
    lambda: ["xdel", stream(), *ids()],
    lambda: ["xtrim", stream(), *trim()],
    lambda: ["xsetid", stream(), new_id(), *sum(some(["entriesadded", count()], ["maxdeletedid", entry_id()]), [])],
    lambda: ["xread", *reading([read_id, read_id, lambda: "$", lambda: "0"])],
    lambda: ["xreadgroup", "group", group(), consumer(), *some("noack"),
             *reading([lambda: ">", lambda: ">", lambda: ">", lambda: "0", read_id])],
    lambda: ["xreadgroup", "group", group(), consumer(), *reading([lambda: ">"])],
    lambda: ["xgroup", "create", stream(), group(), one_of(["$", "0", "0", entry_id()]), *some("mkstream"),
             *one_of([[], [], ["entriesread", count()]])],
    lambda: ["xgroup", "create", stream(), group(), "0", "mkstream"],
    lambda: ["xgroup", "setid", stream(), group(), one_of(["$", "0", entry_id()]),
             *one_of([[], [], ["entriesread", count()]])],
    lambda: ["xgroup", one_of(["createconsumer", "createconsumer", "delconsumer"]), stream(), group(), consumer()],
    lambda: ["xgroup", "destroy", stream(), group()] if random.random() < 0.3 else ["xlen", stream()],
    lambda: ["xack", stream(), group(), *ids()],
    lambda: ["xpending", stream(), group()],
    lambda: ["xpending", stream(), group(), *one_of([[], [], ["idle", one_of([0, 10**9, "x"])]]), edge_id(), edge_id(),
             few(), *one_of([[], [consumer()]])],
    lambda: ["xclaim", stream(), group(), consumer(), one_of([0, 0, 0, 10**9, -1, "x"]), *ids(),
             *sum(some(["idle", one_of([0, 5, "x"])], ["time", one_of([0, 1000, 10**15])], ["retrycount", few()],
                       ["force"], ["justid"], ["lastid", entry_id()]), [])],
    lambda: ["xclaim", stream(), group(), consumer(), 0, *ids(), *some("force")],
    lambda: ["xautoclaim", stream(), group(), consumer(), one_of([0, 0, 10**9, "x"]), edge_id(),
             *sum(some(["count", few()], ["justid"]), [])],
    lambda: ["xinfo", "stream", stream(), *one_of([[], [], ["full"], ["full", "count", few()]])],
    lambda: ["xinfo", "groups", stream()],
    lambda: ["xinfo", "consumers", stream(), group()],
]


def pairs_of(reply):
    """The pairs of a map, which is a list in RESP2."""
    items = items_of(reply)
    return dict(zip(items[::2], items[1::2]))


def has_nothing_pending(item):
    """Whether a part of a reply is a consumer that has got nothing. Since Redis 7.2 there are more of them."""
    facts = items_of(item)
    if not isinstance(facts, list) or not (b"idle" in facts[::2] or b"seen-time" in facts[::2]):
        return False
    facts = pairs_of(facts)
    return facts.get(b"pending") == 0 or facts.get(b"pel-count") == 0


def without_times(reply):
    """What XPENDING and XINFO tell, without the times of deliveries and consumers, and maps in one order.

    Consumers that have got nothing are left out, too, and the numbers of consumers."""
    if isinstance(reply, Reply):
        items = without_times(reply[1])
        return (b"%", sorted(zip(items[::2], items[1::2]), key=repr)) if reply[0] == b"%" else Reply((reply[0], items))
    if not isinstance(reply, list):
        return reply
    if len(reply) in (3, 4) and isinstance(reply[-2], int) and isinstance(reply[-1], int):
        return [*reply[:-2], "time", reply[-1]]
    # Redis 7.0 has one time of a consumer.
    newer = {place for place, item in enumerate(reply) if item in (b"inactive", b"active-time") and place % 2 == 0}
    newer |= {place + 1 for place in newer}
    reply = [item for place, item in enumerate(reply) if place not in newer and not has_nothing_pending(item)]
    kept = [without_times(item) for item in reply]
    for place, item in enumerate(reply[:-1]):
        is_count = item == b"consumers" and isinstance(kept[place + 1], int)
        if place % 2 == 0 and (is_count or item in (b"idle", b"seen-time")):
            kept[place + 1] = "left out"
    return kept


MAKERS = [
    lambda: [one_of(["hset", "hset", "hset", "hmset"]), key(), *pairs()],
    lambda: ["hsetnx", key(), element(), element()],
    lambda: [one_of(["hget", "hexists", "hstrlen"]), key(), element()],
    lambda: ["hmget", key(), *elements()],
    lambda: ["hdel", key(), *elements()],
    lambda: [one_of(["hlen", "hgetall", "hkeys", "hvals", "scard", "smembers", "llen", "zcard"]), key()],
    lambda: ["hincrby", key(), element(), integer()],
    lambda: ["hincrbyfloat", key(), element(), number()],
    lambda: ["sadd", key(), *elements()],
    lambda: ["sadd", key(), *elements()],
    lambda: ["srem", key(), *elements()],
    lambda: ["sismember", key(), element()],
    lambda: ["smismember", key(), *elements()],
    lambda: ["smove", key(), key(), element()],
    lambda: [one_of(["sinter", "sunion", "sdiff"]), *keys()],
    lambda: [one_of(["sinterstore", "sunionstore", "sdiffstore"]), key(), *keys()],
    lambda: ["sintercard", *numbered_keys(), *one_of([[], [], ["limit", count()], ["limit"], ["foo", "1"]])],
    lambda: ["spop", key(), one_of([100_000, 0, -1, "x", 2**63 - 1])],
    lambda: [one_of(["lpush", "rpush", "rpush", "lpushx", "rpushx"]), key(), *elements()],
    lambda: [one_of(["lpush", "rpush"]), key(), *elements()],
    lambda: [one_of(["lpop", "rpop"]), key(), *one_of([[], [count()]])],
    lambda: ["lindex", key(), index()],
    lambda: ["lset", key(), near(index()), element()],
    lambda: ["linsert", key(), one_of(["before", "after", "AFTER", "beside"]), element(), element()],
    lambda: ["lrange", key(), index(), index()],
    lambda: ["ltrim", key(), one_of([0, 1, 2, index()]), one_of([-1, -1, -2, -3, index()])],
    lambda: ["lrem", key(), index(), element()],
    lambda: ["lpos", key(), element(), *sum(some(["rank", rank()], ["count", count()], ["maxlen", count()]), [])],
    lambda: ["lmove", key(), key(), side(), side()],
    lambda: ["rpoplpush", key(), key()],
    lambda: ["lmpop", *numbered_keys(), side(), *one_of([[], ["count", count()], ["count"], ["count", 1, "count", 2]])],
    lambda: [one_of(["blpop", "brpop"]), *keys(), one_of([0.01, 0.01, "-1", "x"])],
    lambda: ["blmove", key(), key(), side(), side(), one_of([0.01, 0.01, "-1", "x"])],
    lambda: ["brpoplpush", key(), key(), one_of([0.01, "x"])],
    lambda: ["blmpop", one_of([0.01, 0.01, "x"]), *numbered_keys(), side(), *one_of([[], ["count", count()]])],
    lambda: ["zadd", key(), *some("nx", "xx", "gt", "lt", "ch", "incr"), *scored()],
    lambda: ["zadd", key(), *scored()],
    lambda: ["zadd", key(), *scored()],
    lambda: ["zincrby", key(), score(), element()],
    lambda: ["zrem", key(), *elements()],
    lambda: [one_of(["zscore", "zrank", "zrevrank"]), key(), element()],
    lambda: ["zmscore", key(), *elements()],
    lambda: ["zrange", key(), *zrange_options(), *some("withscores")],
    lambda: ["zrangestore", key(), key(), *zrange_options()],
    lambda: ["zrevrange", key(), index(), index(), *some("withscores")],
    lambda: [one_of(["zrangebyscore", "zrevrangebyscore"]), key(), bound(), bound(), *some("withscores"), *limit()],
    lambda: [one_of(["zrangebylex", "zrevrangebylex"]), key(), lex(), lex(), *limit()],
    lambda: [one_of(["zcount", "zremrangebyscore"]), key(), bound(), bound()],
    lambda: [one_of(["zlexcount", "zremrangebylex"]), key(), lex(), lex()],
    lambda: ["zremrangebyrank", key(), index(), index()],
    lambda: [one_of(["zpopmin", "zpopmax"]), key(), *one_of([[], [count()]])],
    lambda: [one_of(["bzpopmin", "bzpopmax"]), *keys(), one_of([0.01, "x"])],
    lambda: ["zmpop", *numbered_keys(), end(), *one_of([[], ["count", count()], ["count"]])],
    lambda: ["bzmpop", one_of([0.01, "x"]), *numbered_keys(), end(), *one_of([[], ["count", count()]])],
    lambda: combination(one_of(["zunion", "zinter"])),
    lambda: ["zdiff", *numbered_keys(), *some("withscores")],
    lambda: ["zdiffstore", key(), *numbered_keys()],
    lambda: stored_combination(one_of(["zunionstore", "zinterstore"])),
    lambda: ["zintercard", *numbered_keys(), *one_of([[], ["limit", count()]])],
    lambda: ["geoadd", places_key(), *some("nx", "xx", "ch"), *places()],
    lambda: ["geoadd", places_key(), *places()],
    lambda: ["geoadd", places_key(), *places()],
    lambda: [one_of(["geopos", "geohash"]), places_key(), place_name(), place_name(), element()],
    lambda: ["geodist", places_key(), place_name(), place_name(), *one_of([[], [unit()], [unit()], ["m", "m"]])],
    lambda: ["geosearch", places_key(), *area(), *search_options()],
    lambda: ["geosearch", places_key(), *area(), *search_options()],
    lambda: ["geosearch", places_key(), *search_options(), *area()],
    lambda: ["geosearchstore", target_key(), places_key(), *area(), *one_of([[], [], search_options()]), *some("storedist")],
    lambda: radius_search(one_of(["georadius", "georadius", "georadius_ro"])),
    lambda: radius_search(one_of(["georadiusbymember", "georadiusbymember_ro"])),
    lambda: ["pfadd", counted_key(), *visitors()],
    lambda: ["pfadd", counted_key(), *visitors()],
    lambda: ["pfadd", counted_key(), *visitors()],
    lambda: ["pfcount", *[counted_key() for _ in range(one_of([1, 1, 1, 2, 3]))]],
    lambda: ["pfmerge", *[counted_key() for _ in range(one_of([1, 2, 2, 3]))]],
    lambda: ["pfdebug", one_of(["encoding", "decode", "getreg", "todense", "foo"]), counted_key()],
    lambda: [one_of(["get", "strlen", "dump"]), counted_key()],
    damage,
    lambda: [one_of(["zrange", "zrevrange"]), places_key(), index(), index(), *some("withscores")],
    lambda: ["zrem", places_key(), place_name(), place_name()],
    sort,
    lambda: ["sort", key(), "by", "nosort", *some("desc")],
    lambda: [one_of(["get", "strlen", "ttl", "pttl", "persist", "type", "incr", "getdel", "dump"]), key()],
    lambda: [one_of(["append", "getset", "setnx"]), key(), element()],
    lambda: ["set", key(), element(), *some("nx", "xx", "get", "keepttl")],
    lambda: ["setrange", key(), 1, "x"],
    lambda: ["mget", key(), key()],
    lambda: [one_of(["del", "unlink", "exists", "touch"]), *keys()],
    lambda: ["copy", key(), key(), *one_of([[], ["replace"], ["replace"], ["db", 1, "replace"], ["db", 1]])],
    lambda: [one_of(["rename", "renamenx"]), key(), key()],
    lambda: ["move", key(), 1],
    lambda: [one_of(["expire", "pexpire"]), key(), one_of([1_000_000, 2_000_000, 0, -1]), *some("nx", "xx", "gt", "lt")],
    lambda: ["expireat", key(), one_of([33177117420, 1])],
    lambda: ["swapdb", 0, 1],
    lambda: ["hscan", key(), one_of(["x", "-", "1x"])],
    lambda: [one_of(["hscan", "sscan", "zscan"]), key(), 0, *one_of([["count", 0], ["count", "x"], ["match"], ["foo"]])],
    lambda: ["hrandfield", key(), one_of([0, "x", 2**63, -2**63]), *some("withvalues")],
    lambda: ["zrandmember", key(), one_of([0, "x", 2**63, -2**63]), *some("withscores")],
    lambda: ["srandmember", key(), one_of([0, "x", 2**63])],
]

UNORDERED = {"hkeys", "hvals", "smembers", "sinter", "sunion", "sdiff", "spop"}
TIMES = {"ttl", "pttl"}
# What a change of an argument would make wait for ever or run for long.
KEPT = {"blpop", "brpop", "blmove", "brpoplpush", "blmpop", "bzpopmin", "bzpopmax", "bzmpop", "hrandfield",
        "srandmember", "zrandmember", "spop", "swapdb", "setrange", "hscan", "sscan", "zscan", "lpos",
        "zrank", "zrevrank",  # which take WITHSCORE, as in Redis 7.2
        "xread", "xreadgroup",
        "expire", "pexpire"}  # which would expire a key at any moment
# Redis searches as if all scores were the same.
BY_MEMBER = {"bylex", "zlexcount", "zrangebylex", "zrevrangebylex", "zremrangebylex"}
BLOCKING = {"blpop", "brpop", "blmove", "brpoplpush", "blmpop", "bzpopmin", "bzpopmax", "bzmpop",
            "xread", "xreadgroup"}


def can_be_in_store(command):
    """What concerns two databases, or keys that the request does not name, is refused for keys in a store.

    Where members have different scores, what their ranges are depends on the encoding, which differs there."""
    if command[0] in ("sort", "sort_ro"):
        return "nosort" in command or not {"by", "get"} & set(command)
    if pool.has_one_score and (command[0] == "geosearchstore" or {"store", "storedist"} & set(command)):
        return False
    return command[0] not in ("move", "swapdb") and not (command[0] == "copy" and "db" in command)


def make(known):
    """A random command that both servers have; sometimes with a word too much, too little or at odds."""
    while True:
        command = one_of(STREAM_MAKERS if random.random() < pool.streams else MAKERS)()
        if command[0] not in known or (not pool.has_one_score and (set(command) & BY_MEMBER)):
            continue
        if store and not can_be_in_store(command):
            continue
        if command[0] in ("sort", "sort_ro") and not pool.sorts:
            continue
        is_kept = command[0] in KEPT or DAMAGED in command or (pool.has_one_score and command[0][0] == "z")
        if not is_kept and random.random() < 0.04:
            place = random.randrange(1, len(command))
            change = random.randrange(4)
            if change == 0:
                command = command[:-1]
            elif change == 1:
                command = command + [one_of([element(), *EDGES])]
            elif change == 2:
                command = command[:place] + [one_of(EDGES)] + command[place + 1:]
            else:
                command = command[:place] + command[place:place + 1] + command[place:]
        return command


def in_script(command):
    keys = [word for word in command[1:] if word in ALL_KEYS]
    if store:  # where a script may use no other keys, and a command may be at odds
        keys = [word for word in command[1:] if len(str(word)) < 30][:50]
    call = one_of(["call", "call", "pcall"])
    body = one_of([f"return redis.{call}(unpack(ARGV))", f"redis.setresp(3) return redis.{call}(unpack(ARGV))",
                   f"local r = redis.{call}(unpack(ARGV)) return r"])
    if command[0] == "xinfo":
        body = "return redis.call(unpack(ARGV))"  # a table has no order
    return ["eval", body, len(keys), *keys, *command]


def inner(command):
    """The command that a script calls, or the command itself."""
    return command[3 + int(command[2]):] if command[0] == "eval" else command


def plain(command, reply, queued=()):
    """A reply in a form that is the same on both servers: sorted where there is no order."""
    command = inner(command)
    name = command[0]
    if name in ("xpending", "xinfo"):
        reply = without_times(reply)
    if name == "exec" and isinstance(reply, list):
        return [plain(each, part) for each, part in zip(queued, reply)]
    if name == "xgroup" and command[1] == "createconsumer" and isinstance(reply, int):
        return "made or there"  # since Redis 7.2 it may have come to be when it asked for something
    if name == "dump" and isinstance(reply, bytes):
        return "payload"  # the order of a set's members, and the pieces of a list
    if is_error(reply) or reply is None:
        return reply
    items = items_of(reply)
    if not isinstance(items, list):
        return reply
    kind = reply[0] if isinstance(reply, Reply) else b"*"
    if name == "hgetall":
        if items and isinstance(items[0], list):
            return kind, sorted(map(tuple, items))
        return kind, sorted(zip(items[::2], items[1::2]))
    is_set = name in UNORDERED or "nosort" in command
    return (kind, sorted(items, key=repr)) if is_set else reply


def numbered(reply):
    """A reply in which scores are numbers: Redis has printed fewer digits since 7.2."""
    if isinstance(reply, Reply):
        return (reply[0], numbered(reply[1]))
    if isinstance(reply, (list, tuple)):
        return [numbered(item) for item in reply]
    is_score = isinstance(reply, bytes) and re.fullmatch(rb"-?(\d+(\.\d+)?(e[+-]?\d+)?|inf)", reply)
    return float(reply) if is_score else reply


def are_alike(command, one, other):
    if one == other:
        return True
    if inner(command)[0].startswith(("z", "bz", "geo", "exec")) and numbered(one) == numbered(other):
        return True
    if inner(command)[0] in TIMES and isinstance(one, int) and isinstance(other, int):
        return min(one, other) >= 0 and abs(one - other) <= (STORE_CLOCK_MS if store else CLOCK_MS)
    return False


def sorted_alike(one, other):
    """Whether the sets are alike that two ZSCANs have found."""
    return isinstance(one, set) and isinstance(other, set) and are_alike(["zscan"], sorted(one), sorted(other))


def show(value):
    text = repr(value)
    return text if len(text) < 400 else f"{text[:300]} ... {text[-60:]} ({len(text)})"


class Differs(Exception):
    pass


# Limits of the encodings, and what they are set to at random.
SETTINGS = {
    "hash-max-listpack-entries": [0, 1, 4, 128, 512, 2000], "hash-max-listpack-value": [0, 8, 64, 1024, 5000],
    "set-max-intset-entries": [0, 4, 128, 512], "zset-max-listpack-entries": [0, 4, 128, 1000],
    "zset-max-listpack-value": [0, 8, 64, 5000],
    "set-max-listpack-entries": [0, 4, 128], "set-max-listpack-value": [0, 8, 64, 2000],
    "hll-sparse-max-bytes": [3000, 3000, 0, 100, 1000, 20_000],
    "list-max-listpack-size": [-1, -2, -2, -2, -5, 0, 1, 3, 128], "list-compress-depth": [0, 0, 1],
    "stream-node-max-entries": [1, 3, 10, 100, 0], "stream-node-max-bytes": [0, 64, 300, 4096, 100_000],
}


class Comparison:
    """Two servers, with their connections."""

    def __init__(self, ports, seed):
        self.ports, self.seed = ports, seed
        self.pairs = []
        self.history = []
        self.differences = self.sent = self.marks = 0
        self.connect()
        names = [{name.decode() for name in server.command("command", "list")} for server in self.main]
        self.known = names[0] & names[1]

    def connect(self):
        for pair in self.pairs:
            for connection in pair:
                connection.close()
        self.pairs = [[Connection(port) for port in self.ports] for _ in range(4)]
        self.main, self.events, self.watching, self.waiting = self.pairs
        for connection in self.events:
            connection.command("psubscribe", "__key*__:*")
            connection.command("subscribe", "mark")

    def both(self, *words):
        """One command on both servers; what they reply has to be alike."""
        self.history.append(words)
        self.sent += 1
        for server in self.main:
            server.send(words)
        replies = [server.reply() for server in self.main]
        self.check(list(words), replies)
        return replies

    def check(self, command, replies, queued=()):
        forms = [plain(command, reply, queued) for reply in replies]
        if command[0] == "exec" and all(isinstance(form, list) for form in forms):
            lengths = [len(form) for form in forms]
            alike = len(set(lengths)) == 1 and all(map(are_alike, queued, *forms))
        else:
            alike = are_alike(command, *forms)
        if not alike:
            self.differ(show(command), *forms)

    def differ(self, what, ours, theirs):
        if isinstance(ours, list) and isinstance(theirs, list):
            place = next((at for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), 0)
            ours, theirs = (each[max(place - 2, 0):place + 5] for each in (ours, theirs))
        print(f"{what}\n  keyfast {show(ours)}\n  redis   {show(theirs)}")
        raise Differs

    def pipeline(self, commands):
        """Commands in one write; transactions among them stay whole."""
        self.history += commands
        self.sent += len(commands)
        for server in self.main:
            server.send(*commands)
        queued, problem = [], None
        for command in commands:
            replies = [server.reply() for server in self.main]
            if command[0] == "multi":
                queued = []
            elif replies[0] == Reply((b"+", b"QUEUED")):
                queued.append(command)
            try:
                if problem is None:
                    self.check(command, replies, queued)
            except Differs as differs:
                problem = differs
        if problem:
            raise problem

    def check_events(self, is_loose=False, counts_misses=True):
        """The events since the last time, those of misses apart: an expired key is missed first here.

        After commands for one server only, misses do not count, and SPOP is the same as SREM."""
        self.marks += 1
        mark = b"%d" % self.marks
        seen = []
        for server, events in zip(self.main, self.events):
            server.command("publish", "mark", mark)
            got = []
            while True:
                message = items_of(events.reply())
                if message[-2:] == [b"mark", mark]:
                    break
                event = b" ".join(message[2:]).decode("latin-1")
                # Since Redis 7.2 a consumer comes to be when it asks for something.
                # Keys in a store expire a little later for those who hear of it.
                new_or_late = ["xgroup-createconsumer", "xgroup-delconsumer"] + ["expired"] * bool(store)
                if not any(each in event for each in new_or_late):
                    got.append(event)
            seen.append(got)
        if is_loose:
            seen = [[each.replace(":spop", ":srem").replace(" spop", " srem") for each in got] for got in seen]
        # SORT looks up what belongs to the members of a set, which are in any order.
        misses = [sorted(each for each in got if "keymiss" in each) for got in seen]
        seen = [[each for each in got if "keymiss" not in each] for got in seen]
        if seen[0] == seen[1] and counts_misses and not is_loose:
            seen = misses
        if seen[0] != seen[1]:
            place = next((at for at, pair in enumerate(zip(*seen)) if pair[0] != pair[1]), min(map(len, seen)))
            around = slice(max(place - 3, 0), place + 4)
            last = [show(command) for command in self.history[-12:]]
            self.differ("events, after ... " + "\n    ".join(last), seen[0][around], seen[1][around])

    def burst(self):
        commands = []
        for _ in range(one_of([1, 5, 20, 40])):
            command = make(self.known)
            draw = random.random()
            if draw < 0.06 and command[0] not in BLOCKING:
                commands.append(in_script(command))
            elif draw < 0.1:
                inside = [make(self.known) for _ in range(random.randint(0, 6))]
                commands += [["multi"], *inside, ["exec"]]
            else:
                commands.append(command)
        waiters = self.begin_waiting() if random.random() < 0.15 else []
        if waiters and store:
            self.one_by_one(commands)
        elif random.random() < 0.15:
            self.watched(commands if ["multi"] in commands else commands[:3])
        else:
            self.pipeline(commands)
        if waiters:
            self.end_waiting(*waiters)
        # In a store, a client that waits looks for all its keys again when one of them has changed.
        self.check_events(counts_misses=not (waiters and store))

    def one_by_one(self, commands):
        """The same, until the client that waits is served, which is a little later in a store.

        What is added and gone again at once is not seen by that client there, and left out."""
        at_once = {"multi", "exec", "maxlen", "minid"}
        for command in commands:
            if at_once & set(map(str, command)):
                continue
            self.pipeline([command])
            ours, theirs = (connection.socket for connection in self.waiting)
            if select.select([theirs], [], [], 0)[0]:
                select.select([ours], [], [], SERVED_SECONDS_MAX)
                break

    def watched(self, commands):
        """The same, while others watch a key: whether it counts as changed."""
        # LTRIM that removes nothing is no change here, as in Valkey.
        commands = [command for command in commands if inner(command)[0] != "ltrim"]
        name = key()
        for connection in self.watching:
            connection.command("watch", name)
        self.pipeline(commands)
        results = []
        for connection in self.watching:
            connection.command("multi")
            results.append(connection.command("exec"))
        # What only concerns groups and caches is no change in memory. In a store, it is one like others.
        names = {inner(command)[0] for command in commands}
        is_quiet = store and results[1] == [] and any(each[0] == "x" or each == "pfcount" for each in names)
        if results[0] != results[1] and not is_quiet:
            self.differ(f"whether {name} is changed by {show(commands)}", *results)

    def begin_waiting(self):
        name = key()
        command = one_of([
            ["blpop", name, 0], ["brpop", name, 0], ["blmove", name, key(), one_of(["left", "right"]), "left", 0],
            ["blmpop", 0, 1, name, "right", "count", 3], ["bzpopmin", name, 0], ["bzpopmax", name, 0],
            ["bzmpop", 0, 1, name, "max", "count", 3], ["brpoplpush", name, key(), 0],
            *[["xread", "block", 0, "streams", stream(), "$"],
              ["xread", "count", 2, "block", 0, "streams", "e", "f", "$", "$"],
              ["xreadgroup", "group", group(), consumer(), *some("noack"), "block", 0, "streams", stream(), ">"]] * 3,
        ])
        if command[0] not in self.known or command[0][0] == "x" and not pool.streams:
            return []
        ids = []
        for connection, main in zip(self.waiting, self.main):
            ids.append(connection.command("client", "id"))
            connection.send(command)
        deadline = time.monotonic() + 0.2
        for connection, main in zip(self.waiting, self.main):
            is_done = False
            while not is_done and time.monotonic() < deadline:
                is_done = b"blocked_clients:1" in main.command("info", "clients")
                is_done = is_done or bool(select.select([connection.socket], [], [], 0.002)[0])
        return [command, ids]

    def end_waiting(self, command, ids):
        for server, each in zip(self.main, ids):
            server.command("client", "unblock", each)
        replies = [connection.reply() for connection in self.waiting]
        has_empty = store and replies[0] == Reply((b"*", None)) and [] in flat(replies[1])  # nothing new, after COPY
        if not (has_empty or are_alike(command, *replies)):
            self.differ(f"waiting: {show(command)}", *replies)

    def restore(self):
        """A payload of one server in both."""
        source, target = key(), key()
        payload = one_of([server.command("dump", source) for server in self.main])
        if payload is not None and payload[:1] == STREAM_OF_NEWER:
            payload = self.main[1].command("dump", source)
        if payload is None:
            payload = b"nothing"
        elif random.random() < 0.1:
            payload = payload[:-1] + b"!"
        expiry = one_of([0, 0, 1_000_000])
        options = one_of([["replace"], ["replace"], [], ["replace", "freq", 3], ["absttl"], ["absttl", "replace"]])
        self.both("restore", target, expiry, payload, *options)
        self.check_values([target])

    def pop_random(self):
        """SPOP on one server, SREM of the same members on the other."""
        name = key()
        words = one_of([[], [random.randint(0, 5)], [random.randint(1, 400)]])
        first = random.randrange(2)
        one, other = self.main[first], self.main[1 - first]
        before, kind = one.command("smembers", name), one.command("type", name)
        if kind[1] != b"set":
            self.both("spop", name, *words)
            return
        popped = one.command("spop", name, *words)
        self.history.append(("spop", name, *words))
        members = list(items_of(popped)) if words else [popped]
        allowed = min(words[0] if words else 1, len(items_of(before)))
        if len(members) != allowed or len(set(members)) != allowed or not set(members) <= set(items_of(before)):
            self.differ(f"spop {name} {words} of {show(before)}", popped, first)
        if members and other.command("srem", name, *members) != len(members):
            self.differ(f"srem {name} of what was popped", members, first)
        self.check_events(is_loose=True)

    def pick_random(self):
        name = key()
        kind = self.main[0].command("type", name)[1]
        verb, option = {b"set": ("srandmember", []), b"hash": ("hrandfield", ["withvalues"]),
                        b"zset": ("zrandmember", ["withscores"])}.get(kind, ("hrandfield", []))
        if verb not in self.known:
            return
        words = one_of([[], [one_of([1, 3, 50, 3000, -1, -3, -700])]])
        words = words + option if words and random.random() < 0.4 else words
        for server in self.main:
            reply = server.command(verb, name, *words)
            if is_error(reply) or kind == b"none" or kind == b"string" or kind == b"list":
                continue
            whole = {"srandmember": ["smembers", name], "hrandfield": ["hgetall", name],
                     "zrandmember": ["zrange", name, 0, -1, "withscores"]}[verb]
            there = flat(server.command(*whole))
            members = flat(reply) if words else [reply]
            if verb != "srandmember":
                entries = set(zip(there[::2], there[1::2]))
                names = {entry[0] for entry in entries}
            else:
                entries = names = set(there)
            picked = members
            if len(words) == 2:
                picked = list(zip(members[::2], members[1::2]))
            allowed = 1 if not words else -words[0] if words[0] < 0 else min(words[0], len(names))
            is_distinct = not words or words[0] < 0 or len(set(picked)) == len(picked)
            if len(picked) != allowed or not is_distinct or not set(picked) <= (entries if len(words) == 2 else names):
                self.differ(f"{verb} {name} {words} of {show(there)}", reply, "see there")

    def scan(self):
        name = key()
        kind = self.main[0].command("type", name)[1]
        verb = {b"set": "sscan", b"hash": "hscan", b"zset": "zscan"}.get(kind, "hscan")
        if verb not in self.known:
            return
        words = one_of([[], ["count", one_of([1, 7, 1000])], ["match", "*1*"], ["match", "n*", "count", 10]])
        found = []
        for server in self.main:
            seen, cursor = set(), b"0"
            while True:
                reply = server.command(verb, name, cursor, *words)
                if is_error(reply):
                    seen = reply
                    break
                cursor, items = reply
                seen |= set(items) if verb == "sscan" else set(zip(items[::2], items[1::2]))
                if cursor == b"0":
                    break
            found.append(seen)
        # Scores have other digits where one server packs the set, and the other does not.
        if found[0] != found[1] and not (verb == "zscan" and sorted_alike(*found)):
            if isinstance(found[0], set) and isinstance(found[1], set):
                found = [sorted(found[0] - found[1]), sorted(found[1] - found[0])]
            self.differ(f"{verb} {name} {words} (what only one has)", *found)

    def expire_now(self):
        name = key()
        self.both("pexpire", name, 20)
        time.sleep(0.025)
        self.both("exists", name)
        self.check_events()

    def check_values(self, names):
        """Compares values by their digests."""
        for name in names:
            if store:
                self.check_content(name)
                continue
            digests = [server.command("debug", "digest-value", name) for server in self.main]
            if digests[0] == digests[1]:
                continue
            kinds = [server.command("type", name)[1].decode() for server in self.main]
            whole = [self.content(server, name, kind) for server, kind in zip(self.main, kinds)]
            last = "\n    ".join(show(each) for each in self.history[-12:] if name in each)
            self.differ(f"the digest of {name} {kinds}, after ... {last}", *whole)

    def content(self, server, name, kind):
        command = {"set": ["smembers", name], "hash": ["hgetall", name], "list": ["lrange", name, 0, -1],
                   "zset": ["zrange", name, 0, -1, "withscores"], "string": ["get", name],
                   "stream": ["xrange", name, "-", "+"]}.get(kind)
        reply = server.command(*command) if command else None
        return sorted(flat(reply)) if kind == "set" else reply

    def check_content(self, name):
        """Compares a value by what it holds: in a store it has no digest."""
        kind = self.both("type", name)[0][1].decode()
        whole = [self.content(server, name, kind) for server in self.main]
        whole = [plain(["hgetall"], each) if kind == "hash" else each for each in whole]
        if whole[0] != whole[1] and (kind != "zset" or numbered(whole[0]) != numbered(whole[1])):
            self.differ(f"{name} ({kind})", *whole)

    def check_round(self):
        self.check_events()
        for database in DATABASES:
            self.both("select", database)
            names = [sorted(server.command("keys", "*")) for server in self.main]
            if names[0] != names[1]:
                self.differ(f"the keys of database {database}", *names)
            self.check_values(names[0])
            for name in names[0]:
                self.both("pttl", name)
                self.check_encoding(name)
        if store:
            return
        digests = [server.command("debug", "digest") for server in self.main]
        if digests[0] != digests[1]:
            self.differ("the digest of all", *digests)

    def check_encoding(self, name):
        """Encodings, and the order of what is kept in the order of its arrival."""
        kind = self.both("type", name)[0][1]
        if kind == b"stream":
            self.both("xinfo", "stream", name, "full", "count", 0)
            self.both("xinfo", "groups", name)
        if store:
            return  # it packs a value anew for each request
        ours, theirs = (server.command("object", "encoding", name) for server in self.main)
        # Redis goes by how many elements the first request has, also where they are the same.
        packed = {b"list": {b"quicklist": b"listpack"}, b"set": {b"hashtable": b"listpack"},
                  b"zset": {b"skiplist": b"listpack"}}.get(kind, {})
        if ours != theirs and ours != packed.get(theirs):
            self.differ(f"the encoding of {name}", ours, theirs)
        if ours == theirs and theirs in (b"listpack", b"intset"):
            command = {b"hash": "hgetall", b"set": "smembers"}.get(kind)
            if command:
                replies = [server.command(command, name) for server in self.main]
                if replies[0] != replies[1]:
                    self.differ(f"the order of {name}", *replies)

    def configure(self):
        for name, values in SETTINGS.items():
            self.both("config", "set", name, values[-1] if random.random() < 0.05 else one_of(values))
        self.both("config", "set", "notify-keyspace-events", one_of(["KEA", "KEA", "KEAmn"]))

    def round(self):
        global pool, moment
        pool, moment = Pool(), 0
        protocol = one_of([2, 3])
        for server in self.main:
            server.command("hello", protocol)
        self.both("flushall")
        self.configure()
        for number in range(20 if pool.sorts else 0):
            self.both("set", f"w{number}", random.randint(-5, 5))
            self.both("hset", f"h{number}", "f", random.randint(-5, 5))
        goal = self.sent + COMMANDS
        while self.sent < goal:
            draw = random.random()
            if draw < 0.01:
                self.configure()
            elif draw < 0.7:
                self.burst()
            elif draw < 0.8:
                self.restore()
            else:
                own = [self.pop_random, self.pick_random, self.scan]
                # In etcd, a key lives for two seconds at least.
                one_of(own if store == "etcd" else [*own, self.expire_now])()
                self.check_events(is_loose=True)
        self.check_round()

    def start_over(self):
        self.connect()
        self.history.clear()
        for server in self.main:
            server.command("flushall")
            server.command("config", "resetstat")

    def rounds(self, rounds, after=lambda: None):
        """So many rounds; after a difference all begins anew."""
        for number in range(rounds):
            # Each round has a seed of its own, so that it is found again.
            random.seed(f"{self.seed}.{number}")
            try:
                self.round()
                after()
            except Differs:
                self.differences += 1
                print(f"  (seed {self.seed}, round {number}, command {self.sent})")
                if self.differences == DIFFERENCES_MAX:
                    break
                self.start_over()


def flat(reply):
    items = items_of(reply)
    if not isinstance(items, list):
        return [] if items is None else [items]
    return [part for item in items for part in (item if isinstance(item, list) else [item])]


def main():
    global store
    ports = [int(port) for port in sys.argv[1:3]]
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    store = sys.argv[5] if len(sys.argv) > 5 else ""
    comparison = Comparison(ports, seed)
    comparison.start_over()
    comparison.rounds(int(sys.argv[4]) if len(sys.argv) > 4 else ROUNDS)
    where = f" in {store}" if store else ""
    print(f"{comparison.sent} random commands on types{where}, {comparison.differences} differences (seed {seed})")
    sys.exit(1 if comparison.differences else 0)


if __name__ == "__main__":
    main()
