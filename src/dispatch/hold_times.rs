//! How long each command holds a shard, on a large value of each type that it takes.
//!
//! The locks themselves measure it: the processor time of the thread between locking a shard and unlocking
//! it, so that a busy machine makes no difference. The requests run here one after the other, in the way in
//! which the server runs them. A command that is not in [`TABLE`] fails the test, and so does one that works
//! on a large value under its lock and is not in the list of the page on compatibility.

use super::tests::server;
use super::*;
use crate::clients::Registration;
use crate::commands::all;
use crate::commands::facts::KeySpec;
use crate::resp::OwnedRequest;
use crate::sync::longest_hold;

/// Whether this is debug code. It takes some ten times as long as the program to handle an element. So a
/// 25th of the elements takes it two fifths of the time. Digests are as fast in both.
const IS_DEBUG: bool = cfg!(debug_assertions);
/// Elements of the large values.
const ELEMENTS: usize = if IS_DEBUG { 40_000 } else { 1_000_000 };
/// The most processor time that a request may spend while it holds a shard.
const HELD_MAX: Duration = Duration::from_millis(if IS_DEBUG { 8 } else { 20 });
/// Bytes of the long string. To copy it takes both some 20 ms.
const TEXT_BYTES: usize = 64 << 20;
/// What a line begins with that may hold a shard for long: the page on compatibility names its command.
const STAR: char = '*';
/// How often a line is tried that takes too long: another process may just have taken the caches away.
const TRIES_MAX: usize = 3;

/// Requests of each command that names keys, or goes over the data. These words are keys with a fresh copy of
/// a large value: `text` has a long string, and `list`, `set`, `zset`, `geo`, `hash` and `stream` have many
/// elements. `text2` and its like are second copies, `any` stands for each of them in turn, `page` for a
/// string of a page, and `twins` for a list of two elements in turn. All other keys are absent. `{text}` is
/// as long as the long string, `{any}` what DUMP makes of the key, `{all}` the number of elements, `{most}`
/// one less, `{half}` half of it. `{few}` are 5,000 of a million: XAUTOCLAIM claims no more at once.
const TABLE: &str = "
APPEND text x
APPEND d {text}
BITCOUNT text
BITCOUNT text 0 -2
BITFIELD text SET u8 0 1
BITFIELD_RO text GET u8 0
BITOP NOT d text
BITOP OR d text text2
BITPOS text 1
BLMOVE list d LEFT RIGHT 1
*BLMOVEM list d LEFT RIGHT 1 COUNT {all} BULK
BLMPOP 1 1 list LEFT COUNT {all}
BLPOP list 1
BRPOP list 1
BRPOPLPUSH list d 1
BZMPOP 1 1 zset MIN COUNT {all}
BZPOPMAX zset 1
BZPOPMIN zset 1
CLUSTERSCAN 0 COUNT {all}
COPY any d
DBSIZE
DECR text
DECRBY text 1
DEL any
DELEX any
DELEX text IFEQ {text}
DELEX text IFDEQ 0000000000000000
DELIFEQ text {text}
DIGEST text
DUMP any
EXISTS any
EXPIRE any 100
EXPIREAT any 9999999999
EXPIRETIME any
GEOADD geo 1 1 new
GEODIST geo m1 m2
GEOHASH geo m1
GEOPOS geo m1
GEORADIUS geo 0 0 30000 km
GEORADIUS geo 0 0 30000 km STORE d
GEORADIUSBYMEMBER geo m1 30000 km
GEORADIUSBYMEMBER geo m1 30000 km STORE d
GEORADIUSBYMEMBER_RO geo m1 30000 km
GEORADIUS_RO geo 0 0 30000 km
GEOSEARCH geo FROMLONLAT 0 0 BYRADIUS 30000 km ASC
GEOSEARCHSTORE d geo FROMLONLAT 0 0 BYRADIUS 30000 km
GET text
GETBIT text 9
GETDEL text
GETEX text EX 100
GETRANGE text 0 -1
GETSET text x
GETSET d {text}
HDEL hash m1
HEXISTS hash m1
HEXPIRE hash 100 FIELDS 1 m1
HEXPIREAT hash 9999999999 FIELDS 1 m1
HEXPIRETIME hash FIELDS 1 m1
HGET hash m1
HGETALL hash
HGETDEL hash FIELDS 1 m1
HGETEX hash EX 100 FIELDS 1 m1
HINCRBY hash new 1
HINCRBYFLOAT hash new 1.5
HKEYS hash
HLEN hash
HMGET hash m1 m2
HMSET hash m1 x
HPERSIST hash FIELDS 1 m1
HPEXPIRE hash 100000 FIELDS 1 m1
HPEXPIREAT hash 9999999999999 FIELDS 1 m1
HPEXPIRETIME hash FIELDS 1 m1
HPTTL hash FIELDS 1 m1
HRANDFIELD hash {all}
HRANDFIELD hash -{all} WITHVALUES
HSCAN hash 0 COUNT {all}
HSET hash m1 x
HSETEX hash EX 100 FIELDS 1 m1 x
HSETNX hash m1 x
HSTRLEN hash m1
HTTL hash FIELDS 1 m1
HVALS hash
INCR text
INCRBY text 1
INCRBYFLOAT text 1.5
INCREX text
KEYS *
LCS page page2 LEN
LINDEX list 50000
LINSERT list BEFORE absent x
LLEN list
LMOVE list d LEFT RIGHT
*LMOVEM list d LEFT RIGHT COUNT {all} BULK
LMPOP 1 list LEFT COUNT {all}
LMPOP 1 list RIGHT COUNT {most}
LOCK|ACQUIRE text a PX 1000
LOCK|ACQUIRE d {text} PX 1000
LOCK|ACQUIRE d a PX 1000 ALSO 1 text
LOCK|BREAK text
LOCK|EXTEND text {text} PX 1000
LOCK|FENCE text {text}
LOCK|RELEASE text {text}
LOCK|RELEASE d a ALSO 1 text
LOCKS|GET text
LPOP list {all}
LPOP list {most}
LPOS list absent
LPUSH list x
LPUSHX list x
LRANGE list 0 -1
LREM list 0 absent
*LREM twins 0 a
LSET list 50000 x
LTRIM list 1 0
LTRIM list 1 -2
MEMORY|USAGE any SAMPLES 0
MGET text text2
MOVE any 1
MSET d {text}
MSETEX 1 d {text}
MSETNX d {text}
OBJECT|ENCODING any
OBJECT|FREQ any
OBJECT|IDLETIME any
OBJECT|REFCOUNT any
PERSIST any
PEXPIRE any 100000
PEXPIREAT any 9999999999999
PEXPIRETIME any
PFADD text x
PFADD d {text}
PFADD d x {text}
PFCOUNT text
PFDEBUG ENCODING text
PFMERGE d text
PSETEX d 100000 {text}
PTTL any
RANDOMKEY
RENAME any d
RENAMENX any d
RESTORE d 0 {any}
RESTORE-ASKING d 0 {list}
RPOP list {all}
RPOPLPUSH list d
RPUSH list x
RPUSHX list x
SADD set new
SCAN 0 COUNT {all}
SCARD set
SDIFF set d
SDIFFCARD 2 set d
SDIFFSTORE d set absent
SET text x
SET text x GET
SET text x IFEQ {text}
SET d {text}
SET d {text} NX
SETBIT text 7 1
SETEX d 100 {text}
SETNX d {text}
SETRANGE text 5 x
SETRANGE d 67108863 x
SINTER set set2
SINTERCARD 2 set set2
SINTERSTORE d set set2
SISMEMBER set m1
SMEMBERS set
SMISMEMBER set m1 m2
SMOVE set d m1
SORT list ALPHA
SORT list ALPHA STORE d
SORT set BY w* GET # ALPHA
SORT set STORE d
SORT zset ALPHA LIMIT 0 10 STORE d
SORT_RO list ALPHA
SPOP set {all}
SPOP set {most}
SRANDMEMBER set {all}
SRANDMEMBER set -{all}
SREM set m1
SSCAN set 0 COUNT {all}
STRLEN text
SUBSTR text 0 -1
SUNION set set2
SUNIONCARD 2 set set2
SUNIONSTORE d set set2
TOUCH any
TTL any
TYPE any
UNLINK any
WATCH any
XACK stream g 1-1
XACKDEL stream g IDS 1 1-1
XADD stream * f v
XADD stream MAXLEN 1 * f v
*XADD stream DELREF MAXLEN 1 * f v
XAUTOCLAIM stream g other 0 0 COUNT {few}
XCFGSET stream IDMP-MAXSIZE 10
XCLAIM stream g other 0 1-1
XDEL stream 1-1
XDELEX stream IDS 1 1-1
XGROUP|CREATE stream new 0
XGROUP|CREATECONSUMER stream g new
XGROUP|DELCONSUMER stream g c
XGROUP|DESTROY stream g
XGROUP|SETID stream g 0
XIDMPRECORD stream a b 1-1
XINFO|CONSUMERS stream g
XINFO|GROUPS stream
XINFO|STREAM stream FULL COUNT 0
XLEN stream
XNACK stream g FAIL IDS 1 1-1
XPENDING stream g - + {all}
XPENDING stream g
XRANGE stream - +
XREAD STREAMS stream 0
*XREADGROUP GROUP g c STREAMS stream 0
*XREADGROUP GROUP fresh c STREAMS stream >
XREVRANGE stream + -
XSETID stream 999999999-1
XTRIM stream MAXLEN 1
XTRIM stream MAXLEN 1 ACKED
*XTRIM stream MAXLEN 1 DELREF
ZADD zset 1 new
ZCARD zset
ZCOUNT zset -inf +inf
ZDIFF 2 zset d
ZDIFFSTORE d 2 zset absent
ZINCRBY zset 1 m1
ZINTER 2 zset zset2
ZINTERCARD 2 zset zset2
ZINTERSTORE d 2 zset zset2
ZLEXCOUNT zset - +
ZMPOP 1 zset MIN COUNT {all}
ZMSCORE zset m1
ZPOPMAX zset {all}
ZPOPMAX zset {most}
ZPOPMIN zset {all}
ZPOPMIN zset {half}
ZRANDMEMBER zset {all}
ZRANDMEMBER zset -{all} WITHSCORES
ZRANGE zset 0 -1 WITHSCORES
ZRANGE zset -inf +inf BYSCORE
ZRANGEBYLEX zset - +
ZRANGEBYSCORE zset -inf +inf
ZRANGESTORE d zset 0 -1
ZRANK zset m1
ZREM zset m1
ZREMRANGEBYLEX zset - +
ZREMRANGEBYRANK zset 0 -1
ZREMRANGEBYRANK zset 0 -2
ZREMRANGEBYSCORE zset -inf +inf
ZREMRANGEBYSCORE zset {half} +inf
ZREVRANGE zset 0 -1
ZREVRANGEBYLEX zset + -
ZREVRANGEBYSCORE zset +inf -inf
ZREVRANK zset m1
ZSCAN zset 0 COUNT {all}
ZSCORE zset m1
ZUNION 2 zset zset2
ZUNIONSTORE d 2 zset zset2
SWAPDB 0 1
SWAPDB 0 1
FLUSHDB
FLUSHALL
";

/// Commands that hold shards for as long as others say, or that need another server, each with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("MIGRATE", "It needs another server. What it sends is a copy, which tests/commands/migrating.rs shows."),
    ("EVAL EVALSHA EVAL_RO EVALSHA_RO FCALL FCALL_RO", "A script holds its keys to its end."),
];

/// The keys of large values.
const LARGE: [&str; 7] = ["text", "list", "set", "zset", "geo", "hash", "stream"];

/// A server with the large values, and a client of it.
struct Bench {
    instance: Instance,
    session: Session,
    elements: usize,
    _registration: Registration,
}

impl Bench {
    fn new(elements: usize) -> Bench {
        let (instance, session, registration) = server();
        let mut bench = Bench { instance, session, elements, _registration: registration };
        // In debug code that takes seconds.
        bench.instance.keyspace.set_compresses_dumps(false);
        bench.fill("RPUSH list.whole", |number, request| push(request, &[&format!("m{number}")]));
        bench.fill("RPUSH twins.whole", |number, request| push(request, &[["a", "b"][number % 2]]));
        bench.fill("SADD set.whole", |number, request| push(request, &[&format!("m{number}")]));
        bench.fill("ZADD zset.whole", |number, request| {
            push(request, &[&number.to_string(), &format!("m{number}")]);
        });
        bench.fill("GEOADD geo.whole", |number, request| {
            push(request, &[&(number % 170).to_string(), &(number % 80).to_string(), &format!("m{number}")]);
        });
        bench.fill("HSET hash.whole", |number, request| push(request, &[&format!("m{number}"), "v"]));
        for number in 1..=elements {
            bench.say(&format!("XADD stream.whole {number}-1 f v"));
        }
        bench.say(&format!("SETRANGE text.whole {} x", TEXT_BYTES - 1));
        bench.say("XGROUP CREATE stream.whole g 0");
        bench.say("XGROUP CREATE stream.whole fresh 0");
        bench.say("XREADGROUP GROUP g c STREAMS stream.whole >");
        bench.say(&format!("SET page.whole {}", "page".repeat(1000)));
        bench
    }

    /// Fills a key in requests that are not long.
    fn fill(&mut self, beginning: &str, add: impl Fn(usize, &mut OwnedRequest)) {
        for from in (0..self.elements).step_by(1000) {
            let mut request = OwnedRequest::of_line(beginning.as_bytes()).expect("a line");
            (from..from + 1000).for_each(|number| add(number, &mut request));
            self.run(&request);
        }
    }

    fn say(&mut self, line: &str) -> Vec<u8> {
        self.run(&OwnedRequest::of_line(line.as_bytes()).expect("a line"))
    }

    /// Executes a request, also where that needs several threads one after the other.
    fn run(&mut self, request: &OwnedRequest) -> Vec<u8> {
        let Bench { instance, session, .. } = self;
        let (mut meter, mut out) = (Meter::new(instance), Vec::new());
        let request = request.request().expect("a request");
        loop {
            meter.reload(session);
            let plan = Plan::new(&instance.keyspace, &mut Finder::new(&instance.names), request);
            execute(instance, session, &request, &plan, &mut meter, &mut out);
            match session.wait.take() {
                None => break,
                Some(Wait::Long) => session.long.as_mut().expect("it is long").note_thread(),
                Some(Wait::Reply) => {
                    session.long.as_mut().expect("it is long").complete(&mut out);
                    break;
                }
                Some(Wait::Turn) => break,
                Some(wait) => panic!("{} waits: {wait:?}", String::from_utf8_lossy(request.name())),
            }
        }
        session.long = None;
        meter.finish(session);
        out
    }

    /// Runs one line of the table; returns how long it has held a shard.
    fn measure(&mut self, line: &str) -> std::result::Result<Duration, String> {
        let mut request = OwnedRequest::default();
        let mut keys = vec!["d".to_owned()];
        for word in line.split(' ') {
            let name = word.trim_end_matches('2');
            if LARGE.contains(&name) || ["page", "twins"].contains(&name) {
                self.say(&format!("COPY {name}.whole {word} REPLACE"));
                keys.push(word.to_owned());
            }
            let dumped = LARGE.iter().find(|name| word == format!("{{{name}}}"));
            match (word, dumped) {
                ("{text}", _) if !line.starts_with("RESTORE") => {
                    assert!(request.push(&vec![0; TEXT_BYTES]));
                }
                (_, Some(name)) => {
                    let dump = self.say(&format!("DUMP {name}.whole"));
                    let head = dump.iter().position(|byte| *byte == b'\n').expect("a reply") + 1;
                    assert!(request.push(&dump[head..dump.len() - 2]));
                }
                _ if request.bytes() == 0 => word.split('|').for_each(|part| push(&mut request, &[part])),
                _ => {
                    let (all, most, half) = (self.elements, self.elements - 1, self.elements / 2);
                    let word = word.replace("{all}", &all.to_string()).replace("{most}", &most.to_string());
                    let word = word.replace("{half}", &half.to_string());
                    push(&mut request, &[&word.replace("{few}", &(all / 200).to_string())]);
                }
            }
        }
        let mut reply = Vec::new();
        let held = longest_hold(|| reply = self.run(&request));
        self.say(&format!("DEL {}", keys.join(" ")));
        self.say("UNWATCH");
        let is_refused = ["-ERR unknown", "-ERR wrong number", "-ERR syntax"]
            .iter()
            .any(|refusal| reply.starts_with(refusal.as_bytes()));
        if is_refused { Err(String::from_utf8_lossy(&reply).into_owned()) } else { Ok(held) }
    }
}

fn push(request: &mut OwnedRequest, words: &[&str]) {
    words.iter().for_each(|word| assert!(request.push(word.as_bytes())));
}

/// Whether a command may hold a shard while it works.
fn may_hold(command: &Command) -> bool {
    let goes_over_data = matches!(command.run, Run::Read(_) | Run::Write(_));
    command.keys.iter().any(KeySpec::is_of_keys) || goes_over_data
}

/// The commands that the page on compatibility names as those that lock large values for long, in the order
/// of their names.
fn listed() -> Vec<String> {
    let page = include_str!("../guide/compatibility.md");
    let from = page.find("These lock").expect("the list");
    let list = &page[from..from + page[from..].find(".\n").expect("its end")];
    let names = list.split('`').skip(1).step_by(2);
    let mut names: Vec<String> = names.map(|name| name.replace(' ', "|").to_ascii_lowercase()).collect();
    names.sort();
    names
}

#[test]
fn each_command_states_what_it_costs() {
    let every = all().flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let unstated: Vec<&str> =
        every.filter(|command| !command.cost.are_stated()).map(|command| command.name).collect();
    assert!(unstated.is_empty(), "{unstated:?} state no cost");
}

#[test]
fn a_request_says_how_much_it_reads() {
    let bench = Bench::new(2000);
    let elements = |line: &str| {
        let request = OwnedRequest::of_line(line.as_bytes()).expect("a line");
        let request = request.request().expect("a request");
        let command = find(&bench.instance.names, request.name()).expect(line).command;
        let tx = bench.instance.keyspace.begin_all(0).expect("nothing is in its way");
        let cost = command.cost_on(&tx, request);
        if cost.only_reads { cost.elements } else { 0 }
    };
    for (little, much) in [
        ("LRANGE list.whole 5 903", "LRANGE list.whole 5 1004"),
        ("LRANGE list.whole -900 -1", "LRANGE list.whole 0 -1"),
        ("ZRANGE zset.whole 0 9 REV", "ZRANGE zset.whole 0 -1"),
        ("ZRANGE zset.whole 0 inf BYSCORE LIMIT 7 900", "ZRANGE zset.whole 0 9 BYSCORE"),
        ("ZRANGEBYSCORE zset.whole 0 9 limit 0 10", "ZRANGEBYSCORE zset.whole 0 9 LIMIT 0 -1"),
        ("XRANGE stream.whole - + COUNT 10", "XRANGE stream.whole - +"),
        ("HSCAN hash.whole 0", "HSCAN hash.whole 0 MATCH * COUNT 1000"),
        ("SRANDMEMBER set.whole -900", "SRANDMEMBER set.whole -1000"),
        ("SRANDMEMBER set.whole -9223372036854775808", "SRANDMEMBER set.whole -9223372036854775807"),
        ("ZRANDMEMBER zset.whole -4611686018427387904 x", "ZRANDMEMBER zset.whole -4611686018427387903 x"),
        ("XPENDING stream.whole g - + 10", "XPENDING stream.whole g - + 1000"),
        ("XPENDING stream.whole g - + 10 idle", "XPENDING stream.whole g IDLE 9 - + 10"),
        ("SORT list.whole STORE d", "SORT list.whole"),
    ] {
        assert!(elements(little) < 1000, "{little}");
        assert!(elements(much) >= 1000, "{much}");
    }
}

#[test]
fn no_command_holds_a_shard_for_long() {
    let mut lines: Vec<String> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        match line.contains("any") {
            true => lines.extend(LARGE.iter().map(|name| line.replace("any", name))),
            false => lines.push(line.to_owned()),
        }
    }
    let name = |line: &str| {
        let words = line.trim_start_matches(STAR);
        words.split(' ').next().unwrap_or_default().to_ascii_lowercase()
    };
    let mut starred: Vec<String> =
        lines.iter().filter(|line| line.starts_with(STAR)).map(|line| name(line)).collect();
    starred.sort();
    starred.dedup();
    assert_eq!(starred, listed(), "the page on compatibility has another list");
    let every = all().flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let mut wrong = Vec::new();
    for command in every.filter(|command| may_hold(command)) {
        let is_run = lines.iter().any(|line| name(line) == command.name);
        let has_reason =
            NOT_RUN.iter().any(|(names, _)| names.to_lowercase().split(' ').any(|name| name == command.name));
        if is_run == has_reason {
            wrong.push(format!("{}: on which large value does it run?", command.name));
        }
    }
    let mut bench = Bench::new(ELEMENTS);
    for line in &lines {
        let (began, may_be_long) = (Instant::now(), line.starts_with(STAR));
        let line = line.trim_start_matches(STAR);
        let tries = if may_be_long { 1 } else { TRIES_MAX };
        let mut held = Ok(Duration::MAX);
        for _ in 0..tries {
            held = bench.measure(line);
            if held.as_ref().is_ok_and(|held| *held <= HELD_MAX) {
                break;
            }
        }
        match &held {
            Err(refusal) => wrong.push(format!("{line}: {refusal}")),
            Ok(held) if *held > HELD_MAX && !may_be_long => {
                wrong.push(format!("{line} holds a shard for {held:?}"));
            }
            Ok(_) => {}
        }
        if std::env::var_os("KEYFAST_SHOW_TIMES").is_some() {
            println!("{held:?} {line}, in all {:?}", began.elapsed());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
