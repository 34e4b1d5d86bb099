//! LOCK … ALSO with permits: SHARED and LIMIT of several locks by one request, all of them or none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::locks::is_found;
use support::client::{Client, Reply, request};
use support::replies::{array, integer};
use support::server::{Server, wait_until};

const CLOCK: &[&str] = &["--enable-clock-command", "yes"];
const NO_PERMITS: &str = "ERR The sorted set at this key holds no permits: its largest score is not the moment at which it expires";

/// A server whose clock stands still, and a client of it.
fn frozen() -> (Server, Client) {
    let server = Server::start_with(CLOCK);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    (server, client)
}

/// The permits of a lock, in the order of their ends.
#[track_caller]
fn tokens(client: &mut Client, key: &str) -> String {
    let items = client.cmd(["ZRANGE", key, "0", "-1"]).items();
    items.iter().map(|item| item.to_string().replace('"', "")).collect::<Vec<_>>().join(" ")
}

#[test]
fn permits_of_several_locks_have_one_end_and_one_number_or_none_is_taken() {
    let (server, mut client) = frozen();
    let mut last = 0;
    for (token, options) in [("r", "SHARED ALSO 2 b c"), ("s", "ALSO 3 b c b LIMIT 2")] {
        let number = client.line(&format!("LOCK ACQUIRE a {token} PX 60000 {options}")).integer();
        assert!(number > last);
        last = number;
        for key in ["a", "b", "c"] {
            assert!(tokens(&mut client, key).contains(token));
            client.cmd(["PTTL", key]).is(60_000);
            client.cmd(["LOCK", "FENCE", key, token]).is_nil();
        }
    }
    let ends: Vec<Reply> =
        ["a", "b", "c"].iter().map(|key| client.cmd(["ZSCORE", key, "r"]).reply()).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    // Each lock counts with the limit of the request, and a writer has one of them alone.
    client.line("LOCK ACQUIRE w w PX 60000").integer();
    client.line("LOCK RELEASE c s").is(1);
    for options in ["LIMIT 2 ALSO 1 a", "LIMIT 1 ALSO 1 d", "SHARED ALSO 2 d w", "ALSO 2 d a"] {
        client.line(&format!("LOCK ACQUIRE c t PX 60000 {options}")).is_nil();
        client.line(&format!("LOCK ACQUIRE c t PX 60000 WAIT 1 {options}")).is_nil();
        let within = format!("LOCK ACQUIRE c t PX 60000 WAIT 0 {options}");
        client.line("MULTI").is_ok();
        client.line(&within).is_simple("QUEUED");
        assert_eq!(client.line("EXEC").items(), [Reply::Null]);
    }
    client.line("EXISTS d").is(0);
    client.line("LOCK ACQUIRE d t PX 60000 LIMIT 2 ALSO 1 c").integer();
    assert_eq!(tokens(&mut client, "c"), "r t");
    assert_eq!(integer(&server.client3().line("LOCKS GET w").reply(), "refused"), 2);
    is_found(&mut client, &[]);
}

#[test]
fn what_is_refused_for_one_key_is_refused_for_all_before_any_is_touched() {
    let (_server, mut client) = frozen();
    client.line("ZADD set 1 x").is(1);
    client.line("RPUSH list x").is(1);
    client.line("LOCK ACQUIRE r t PX 60000 SHARED").integer();
    for (line, error) in [
        ("LOCK ACQUIRE a t PX 60000 SHARED ALSO 1 set", NO_PERMITS),
        ("LOCK ACQUIRE set t PX 60000 LIMIT 1 ALSO 1 a WAIT 0", NO_PERMITS),
        (
            "LOCK ACQUIRE a __wait__ PX 60000 SHARED ALSO 1 b",
            "ERR The tokens __write__ and __wait__ are marks of writers",
        ),
        ("LOCK ACQUIRE a t PX 0 SHARED ALSO 1 b", "ERR invalid expire time in 'lock|acquire' command"),
        (
            "LOCK ACQUIRE a t PX 60000 ALSO 1 r",
            "ERR The token has a permit of this lock: release it before you take the lock for one holder",
        ),
        (
            "LOCK EXTEND r t PX 1 ALSO 1 list",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("LOCK RELEASE r t ALSO 1 list", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("LOCK EXTEND r t PX 9007199254740993", "ERR invalid expire time in 'lock|extend' command"),
    ] {
        client.line(line).is_error(error);
    }
    client.line("LOCK ACQUIRE a t PX 60000 SHARED ALSO 1 list").is_nil();
    client.line("LOCK EXTEND r t PX 1 ALSO 1 set").is_nil();
    client.line("EXISTS a b").is(0);
    client.line("PTTL r").is(60_000);
    client.line("LOCK RELEASE set t ALSO 1 r").is(1);
    client.line("EXISTS r").is(0);
}

#[test]
fn a_client_that_comes_again_keeps_its_permits_and_takes_those_that_it_lacks() {
    let (server, mut client) = frozen();
    let again =
        |lifetime: u32, options: &str| format!("LOCK ACQUIRE a t PX {lifetime} AGAIN {options} ALSO 1 b");
    let mut last = 0;
    for (lifetime, left) in [(60_000, 60_000), (100, 60_000), (90_000, 90_000)] {
        let number = client.line(&again(lifetime, "LIMIT 1")).integer();
        assert!(number > last);
        last = number;
        client.line("PTTL a").is(left);
        client.line("PTTL b").is(left);
    }
    // It lacks one that another client has, and keeps what it has, as it is.
    client.line("LOCK RELEASE b t").is(1);
    client.line("LOCK ACQUIRE b x PX 60000").integer();
    client.line(&again(120_000, "SHARED")).is_nil();
    client.line("PTTL a").is(90_000);
    // So it waits for that one. A writer in line for what it has keeps it from nothing.
    let (mut writer, mut waiting) = (server.client(), server.client());
    server.have_wait(&mut writer, "LOCK ACQUIRE a w PX 60000 WAIT 0");
    server.have_wait(&mut waiting, &again(60_000, "SHARED WAIT 0"));
    client.line("LOCK RELEASE b x").is(1);
    assert!(waiting.reply().integer() > last);
    assert_eq!((tokens(&mut client, "a").as_str(), tokens(&mut client, "b").as_str()), ("t", "t"));
    client.line(&again(60_000, "LIMIT 1")).integer();
    client.line("LOCK RELEASE a t ALSO 1 b").is(2);
    writer.reply().integer();
}

#[test]
fn permits_and_whole_locks_are_extended_together_or_not_at_all_and_each_is_given_back() {
    let (_server, mut client) = frozen();
    client.line("LOCK ACQUIRE p t PX 60000 SHARED ALSO 1 q").integer();
    client.line("LOCK ACQUIRE q u PX 90000 SHARED").integer();
    let whole = client.line("LOCK ACQUIRE l t PX 60000 ALSO 1 m").integer();
    client.line("SET other t NX PX 60000").is_ok();
    let ends = |client: &mut Client| -> Vec<i64> {
        ["p", "q", "l", "m", "other"].iter().map(|key| client.cmd(["PTTL", key]).integer()).collect()
    };
    let before = ends(&mut client);
    for lacked in ["nosuch", "q u"] {
        let keys = format!("p l m q {lacked}");
        let count = keys.split(' ').count() - 1;
        let line = format!("LOCK EXTEND {} PX 99000 ALSO {count} {}", "p t", &keys[2..]);
        client.line(&line).is_nil();
        assert_eq!(ends(&mut client), before, "{line}");
    }
    client.line("LOCK EXTEND l u PX 99000 ALSO 1 q").is_nil();
    // The number is new, since that of a permit is, and the locks keep theirs.
    let number = client.line("LOCK EXTEND l t PX 80000 ALSO 5 p m q p other").integer();
    assert!(number > whole);
    assert_eq!(ends(&mut client), [80_000, 90_000, 80_000, 80_000, 80_000]);
    client.line("LOCK FENCE m t").is(whole);
    assert!(client.line("LOCK FENCE other t").integer() > whole);
    assert!(client.line("LOCK EXTEND p t PX 70000 ALSO 1 q").integer() > number);
    client.line("LOCK RELEASE nosuch t ALSO 5 p l q p other").is(4);
    assert_eq!(ends(&mut client), [-2, 90_000, -2, 80_000, -2]);
    client.line("LOCK RELEASE q u ALSO 1 m").is(1);
}

#[test]
fn a_group_of_readers_waits_without_holding_and_is_passed_by_while_it_lacks_one() {
    let server = Server::start();
    let (mut holder, mut group, mut observer) = (server.client(), server.client(), server.client3());
    holder.line("LOCK ACQUIRE a x PX 60000").integer();
    server.have_wait(&mut group, "LOCK ACQUIRE a r PX 60000 SHARED WAIT 0 ALSO 1 b");
    // If the group kept the free b, this would be a deadlock.
    holder.line("LOCK ACQUIRE b x PX 60000 WAIT 0").integer();
    holder.line("LOCK RELEASE b x").is(1);
    let mut reader = server.client();
    reader.line("LOCK ACQUIRE b y PX 50000 LIMIT 1").integer();
    let lock = observer.line("LOCKS GET a").reply();
    assert_eq!(integer(&array(&lock, "waiting-clients")[0], "overtaken"), 2, "{lock}");
    holder.line("LOCK RELEASE a x").is(1);
    group.reply().integer();
    assert_eq!(tokens(&mut holder, "b"), "y r");
    // One of LIMIT 1 waits until it is the only one, at each of its locks.
    let mut next = server.client();
    server.have_wait(&mut next, "LOCK ACQUIRE b z PX 60000 LIMIT 1 WAIT 0 ALSO 1 a");
    for key in ["a", "b"] {
        holder.cmd(["LOCK", "RELEASE", key, "r"]).is(1);
        assert!(next.is_silent_for(Duration::from_millis(5)));
    }
    reader.line("LOCK RELEASE b y").is(1);
    next.reply().integer();
    assert_eq!((tokens(&mut holder, "a").as_str(), tokens(&mut holder, "b").as_str()), ("z", "z"));
    is_found(&mut observer, &[]);
}

/// Readers of several locks come behind those who wait for one of them before, wherever they get the last.
#[test]
fn a_group_overtakes_no_client_that_waits_for_one_of_its_locks() {
    let server = Server::start();
    let (mut holder, mut writer, mut group) = (server.client(), server.client(), server.client());
    for end in ["granted", "leaves", "asks for more"] {
        holder.line("LOCK ACQUIRE a h PX 60000 SHARED").integer();
        holder.line("LOCK ACQUIRE b h PX 60000").integer();
        server.have_wait(&mut writer, "LOCK ACQUIRE a w PX 60000 WAIT 0");
        holder.line("LOCK ACQUIRE c r PX 60000 SHARED ALSO 1 a").is_nil();
        server.have_wait(&mut group, "LOCK ACQUIRE b r PX 60000 SHARED WAIT 0 ALSO 1 a");
        holder.line("LOCK RELEASE b h").is(1);
        assert!(group.is_silent_for(Duration::from_millis(5)));
        holder.line("EXISTS b c").is(0);
        let mut more = server.client();
        match end {
            "granted" => {
                holder.line("LOCK RELEASE a h").is(1);
                writer.reply().integer();
                writer.line("LOCK RELEASE a w").is(1);
            }
            "leaves" => writer = server.client(),
            // Its next attempt takes over its place, and is for several: so it reserves none any more.
            _ => {
                more.send(&request("LOCK ACQUIRE a w PX 60000 WAIT 0 AGAIN ALSO 1 d".split(' ')));
                writer.reply().is_nil();
            }
        }
        group.reply().integer();
        drop(more);
        wait_until("none waits", || holder.info("blocked_clients") == "0");
        holder.line("FLUSHALL").is_ok();
    }
    // Of two locks that are freed by one request, too, each goes to the first in its line.
    holder.line("LOCK ACQUIRE a h PX 60000 ALSO 1 b").integer();
    server.have_wait(&mut writer, "LOCK ACQUIRE a w PX 60000 WAIT 0");
    server.have_wait(&mut group, "LOCK ACQUIRE b g PX 60000 WAIT 0 ALSO 1 a");
    holder.line("DEL b a").is(2);
    writer.reply().integer();
    assert!(group.is_silent_for(Duration::from_millis(5)));
    writer.line("LOCK RELEASE a w").is(1);
    group.reply().integer();
}

#[test]
fn whatever_makes_room_at_the_last_lock_grants_permits_of_all() {
    let (server, mut holder) = frozen();
    for way in [
        "LOCK RELEASE b h",
        "LOCK EXTEND b h PX 1",
        "LOCK BREAK b",
        "DEL b",
        "ZREM b h",
        "PEXPIRE b 0",
        "CLOCK ADVANCE 1000",
        "FLUSHALL",
        "SWAPDB 0 1",
    ] {
        for first in ["a", "b", "c"] {
            holder.line("LOCK ACQUIRE b h PX 1000 LIMIT 1 ALSO 1 c").integer();
            holder.line("LOCK RELEASE c h").is(1);
            let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|key| *key != first).collect();
            let mut waiting = server.client();
            let line = format!("LOCK ACQUIRE {first} w PX 60000 LIMIT 1 WAIT 0 ALSO 2 {}", others.join(" "));
            server.have_wait(&mut waiting, &line);
            holder.line(way).ignored();
            holder.line("CLOCK ADVANCE 1").is_ok();
            waiting.reply().integer();
            waiting.line("LOCK RELEASE a w ALSO 2 b c").is(3);
            waiting.line("FLUSHALL").is_ok();
        }
    }
}

/// The key does not change when the first of several permits ends, and no client looks at it then.
#[test]
fn a_group_is_granted_permits_when_the_first_one_of_its_last_lock_ends() {
    let server = Server::start();
    let (mut holder, mut group) = (server.client(), server.client());
    for key in ["a", "b"] {
        holder.line(&format!("LOCK ACQUIRE {key} x PX 600000 LIMIT 2")).integer();
    }
    let began = Instant::now();
    holder.line("LOCK ACQUIRE a y PX 60 LIMIT 2").integer();
    holder.line("LOCK ACQUIRE b z PX 120 LIMIT 2").integer();
    group.line("LOCK ACQUIRE a w PX 600000 LIMIT 2 WAIT 0 ALSO 1 b").integer();
    assert!(began.elapsed() >= Duration::from_millis(120));
    assert_eq!((tokens(&mut holder, "a").as_str(), tokens(&mut holder, "b").as_str()), ("x w", "x w"));
}

#[test]
fn a_client_in_line_whose_key_becomes_another_sorted_set_gets_the_sentence() {
    let server = Server::start();
    let (mut holder, mut group) = (server.client(), server.client());
    holder.line("LOCK ACQUIRE a h PX 60000 ALSO 1 b").integer();
    server.have_wait(&mut group, "LOCK ACQUIRE a r PX 60000 SHARED WAIT 0 ALSO 1 b");
    holder.line("DEL b").is(1);
    holder.line("ZADD b 1 x").is(1);
    holder.line("LOCK RELEASE a h").is(1);
    group.reply().is_error(NO_PERMITS);
    holder.line("EXISTS a").is(0);
}

#[test]
fn each_permit_is_guarded_and_all_end_with_the_connection() {
    let server = Server::start();
    let (mut holder, mut other, mut observer) = (server.client3(), server.client(), server.client());
    let options = "PX 60000 SHARED BOUND GRACE 0 NOTIFY";
    // It ends last, so the set stays one of permits without the others.
    other.line("LOCK ACQUIRE b o PX 900000 SHARED ALSO 1 a").integer();
    let number = holder.line(&format!("LOCK ACQUIRE a t {options} ALSO 3 b c b")).integer();
    let lost = |key: &str, number, why: &str| {
        Reply::Push(vec!["lock-lost".into(), key.into(), Reply::Integer(number), why.into()])
    };
    observer.line("ZREM b t").is(1);
    holder.reply().is(lost("b", number, "deleted"));
    observer.line("DEL c").is(1);
    holder.reply().is(lost("c", number, "deleted"));
    // One that comes again has its permits under the new number.
    let number = holder.line(&format!("LOCK ACQUIRE a t {options} AGAIN ALSO 1 b")).integer();
    observer.line("LOCK BREAK b").is(1);
    holder.reply().is(lost("b", number, "broken"));
    let mut next = server.client3();
    let line = "LOCK ACQUIRE a n PX 60000 LIMIT 2 BOUND GRACE 0 NOTIFY WAIT 0 ALSO 1 b";
    server.have_wait(&mut next, line);
    drop(holder);
    let number = next.reply().integer();
    assert_eq!((tokens(&mut observer, "a").as_str(), tokens(&mut observer, "b").as_str()), ("n o", "n"));
    // Another connection takes them over, and a whole lock with them.
    observer.line("LOCK ACQUIRE w n PX 60000").integer();
    assert!(observer.line("LOCK EXTEND w n PX 60000 BOUND GRACE 0 ALSO 2 a b").integer() > number);
    drop(next);
    other.line("PING").is_simple("PONG");
    other.line("EXISTS w b").is(2);
    drop(observer);
    wait_until("they are free", || other.line("EXISTS w b").integer() == 0);
    assert_eq!(tokens(&mut other, "a"), "o");
}

const KEYS: [&str; 3] = ["a", "b", "c"];
const TOKENS: usize = 6;
const LIFETIME_MS: i64 = 1000;

/// A request for some of the locks: for permits beside less than `limit` others, or for the whole locks.
#[derive(Clone, Debug)]
struct Asked {
    token: usize,
    limit: Option<usize>,
    is_again: bool,
    keys: Vec<usize>,
    lifetime_ms: i64,
}

impl Asked {
    fn random(random: &mut fastrand::Rng) -> Asked {
        let mut keys: Vec<usize> = (0..KEYS.len()).collect();
        random.shuffle(&mut keys);
        keys.truncate(random.usize(1..=KEYS.len()));
        let limit = [None, Some(usize::MAX), Some(usize::MAX), Some(1), Some(2)][random.usize(..5)];
        let (token, is_again) = (random.usize(..TOKENS), random.u8(..3) == 0);
        Asked { token, limit, is_again, keys, lifetime_ms: random.i64(1..=LIFETIME_MS) }
    }

    /// The request, with these options besides.
    fn line(&self, options: &str) -> String {
        let Asked { token, lifetime_ms, .. } = self;
        let mode = match self.limit {
            None => String::new(),
            Some(usize::MAX) => "SHARED".to_owned(),
            Some(limit) => format!("LIMIT {limit}"),
        };
        let again = if self.is_again { "AGAIN" } else { "" };
        let line =
            format!("LOCK ACQUIRE {} t{token} PX {lifetime_ms} {mode} {again} {options}", self.first());
        format!("{line} {}", self.also()).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn first(&self) -> &'static str {
        KEYS[self.keys[0]]
    }

    fn also(&self) -> String {
        let others: Vec<&str> = self.keys[1..].iter().map(|key| KEYS[*key]).collect();
        if others.is_empty() { String::new() } else { format!("ALSO {} {}", others.len(), others.join(" ")) }
    }
}

/// Who has a lock, each until its end. A writer is alone.
#[derive(Clone, Debug, Default, PartialEq)]
struct Holders {
    is_whole: bool,
    ends_ms: BTreeMap<usize, i64>,
}

/// What the commands do, step by step.
#[derive(Default)]
struct Model {
    now_ms: i64,
    locks: [Holders; KEYS.len()],
    line: Vec<Asked>,
}

impl Model {
    fn expire(&mut self) {
        let now_ms = self.now_ms;
        for lock in &mut self.locks {
            lock.ends_ms.retain(|_, end_ms| *end_ms > now_ms);
        }
    }

    fn is_own(&self, asked: &Asked, key: usize) -> bool {
        let lock = &self.locks[key];
        asked.is_again && lock.ends_ms.contains_key(&asked.token) && lock.is_whole == asked.limit.is_none()
    }

    /// Whether a request can take a lock, if these stand before it in line.
    fn can_take(&self, asked: &Asked, key: usize, before: &[Asked]) -> bool {
        let lock = &self.locks[key];
        let is_free = match asked.limit {
            None => lock.ends_ms.is_empty(),
            Some(limit) => {
                let is_whole = lock.is_whole && !lock.ends_ms.is_empty();
                !is_whole && !lock.ends_ms.contains_key(&asked.token) && lock.ends_ms.len() < limit
            }
        };
        let is_awaited = before.iter().any(|other| other.keys == [key]);
        self.is_own(asked, key) || is_free && !is_awaited
    }

    fn can_take_all(&self, asked: &Asked, before: &[Asked]) -> bool {
        asked.keys.iter().all(|key| self.can_take(asked, *key, before))
    }

    fn grant(&mut self, asked: &Asked) {
        let end_ms = self.now_ms + asked.lifetime_ms;
        for key in &asked.keys {
            let lock = &mut self.locks[*key];
            lock.is_whole = asked.limit.is_none();
            let end = lock.ends_ms.entry(asked.token).or_insert(end_ms);
            *end = end_ms.max(*end);
        }
    }

    /// Whether the token has a permit of a lock that it asks for as a whole.
    fn is_upgrade(&self, asked: &Asked) -> bool {
        let has_permit = |key: &usize| {
            let lock = &self.locks[*key];
            !lock.is_whole && lock.ends_ms.contains_key(&asked.token)
        };
        asked.limit.is_none() && asked.keys.iter().any(has_permit)
    }
}

/// The locks as the server has them.
fn seen(observer: &mut Client) -> [Holders; KEYS.len()] {
    let script = "local time, all = redis.call('TIME'), {} \
                  local now = time[1] * 1000 + math.floor(time[2] / 1000) \
                  for place, key in ipairs(KEYS) do \
                    local kind, held = redis.call('TYPE', key).ok, {} \
                    if kind == 'string' then held = {redis.call('GET', key)} \
                    elseif kind == 'zset' then \
                      held = redis.call('ZRANGE', key, '(' .. now, '+inf', 'BYSCORE') \
                    end \
                    all[place] = {kind, held} \
                  end return all";
    let all = observer.cmd(["EVAL", script, "3", KEYS[0], KEYS[1], KEYS[2]]).items();
    let holders = all.iter().map(|one| {
        let Reply::Array(parts) = one else { panic!("{one}") };
        let Reply::Array(tokens) = &parts[1] else { panic!("{one}") };
        let token = |token: &Reply| token.to_string().replace(['"', 't'], "").parse().expect("a token");
        let ends_ms = tokens.iter().map(|one| (token(one), 0)).collect();
        Holders { is_whole: parts[0] == Reply::from("string"), ends_ms }
    });
    holders.collect::<Vec<_>>().try_into().expect("three locks")
}

/// A server, its clients, and what the model says of them.
struct Walk {
    server: Server,
    observer: Client,
    clients: Vec<Client>,
    model: Model,
    last: i64,
}

impl Walk {
    /// Waits until the server has granted what it can, and checks each grant.
    fn settle(&mut self, at: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        self.model.expire();
        loop {
            let found = seen(&mut self.observer);
            // Those in line that have all of their locks now.
            let has = |asked: &Asked| {
                asked.keys.iter().all(|key| {
                    let (before, now) = (&self.model.locks[*key], &found[*key]);
                    let is_new = !before.ends_ms.contains_key(&asked.token) || self.model.is_own(asked, *key);
                    is_new && now.ends_ms.contains_key(&asked.token) && now.is_whole == asked.limit.is_none()
                })
            };
            let granted: Vec<usize> =
                self.model.line.iter().filter(|asked| has(asked)).map(|asked| asked.token).collect();
            let mut numbered: Vec<(i64, usize)> =
                granted.into_iter().map(|token| (self.clients[token].reply().integer(), token)).collect();
            numbered.sort_unstable();
            for (number, token) in numbered {
                assert!(number > self.last, "{at}: {number} after {}", self.last);
                self.last = number;
                let place =
                    self.model.line.iter().position(|asked| asked.token == token).expect("it stood in line");
                let asked = self.model.line.remove(place);
                let before = &self.model.line[..place];
                assert!(
                    self.model.can_take_all(&asked, before),
                    "{at}: {asked:?} is granted before {before:?}"
                );
                self.model.grant(&asked);
            }
            let names = |locks: &[Holders]| -> Vec<Vec<usize>> {
                locks.iter().map(|lock| lock.ends_ms.keys().copied().collect()).collect()
            };
            let line = &self.model.line;
            let is_next = |place: &usize| self.model.can_take_all(&line[*place], &line[..*place]);
            let waits_in_vain = (0..line.len()).find(is_next);
            let is_settled = waits_in_vain.is_none()
                && names(&found) == names(&self.model.locks)
                && self.observer.info("blocked_clients") == line.len().to_string();
            if is_settled {
                return;
            }
            let (locks, place) = (&self.model.locks, waits_in_vain);
            assert!(Instant::now() < deadline, "{at}: {found:?} for {locks:?}, {line:?}: {place:?}");
        }
    }

    /// A request of a client that does not wait, as the model says it ends.
    fn ask(&mut self, asked: &Asked, at: &str) {
        let reply = self.observer.line(&asked.line("")).reply();
        let model = &mut self.model;
        let is_granted = model.can_take_all(asked, &model.line);
        match reply {
            Reply::Error(_) => assert!(model.is_upgrade(asked), "{at}: {asked:?}"),
            Reply::Null => assert!(!is_granted && !model.is_upgrade(asked), "{at}: {asked:?}"),
            Reply::Integer(number) => {
                assert!(is_granted, "{at}: {asked:?}");
                let is_new = asked.limit.is_some() || !asked.keys.iter().all(|key| model.is_own(asked, *key));
                assert!(!is_new || number > self.last, "{at}: {number}");
                self.last = self.last.max(number);
                model.grant(asked);
            }
            reply => panic!("{at}: {reply}"),
        }
    }

    /// Extends or releases the locks of a request, if its token has them.
    fn end(&mut self, asked: &Asked, extends: bool, at: &str) {
        let Asked { token, lifetime_ms, .. } = *asked;
        let (first, also) = (asked.first(), asked.also());
        let has = |key: &usize| self.model.locks[*key].ends_ms.contains_key(&token);
        let held: Vec<usize> = asked.keys.iter().copied().filter(has).collect();
        if !extends {
            self.observer.line(format!("LOCK RELEASE {first} t{token} {also}").trim()).is(held.len() as i64);
            held.iter().for_each(|key| _ = self.model.locks[*key].ends_ms.remove(&token));
            return;
        }
        let line = format!("LOCK EXTEND {first} t{token} PX {lifetime_ms} {also}");
        let reply = self.observer.line(line.trim()).reply();
        let has_all = held.len() == asked.keys.len();
        assert_eq!(reply != Reply::Null, has_all, "{at}: {line}");
        if let Reply::Integer(number) = reply {
            self.last = self.last.max(number);
            let end_ms = self.model.now_ms + lifetime_ms;
            held.iter().for_each(|key| _ = self.model.locks[*key].ends_ms.insert(token, end_ms));
        }
    }
}

/// Requests of a few clients for a few locks, with all options. Whatever they do: each lock has one writer or
/// no more readers than each has allowed, none is granted before one that waits for one of its locks alone,
/// and no client waits for what it could have.
#[test]
fn whatever_clients_ask_for_together_it_is_what_the_model_says() {
    for seed in 0..4 {
        let (server, observer) = frozen();
        let mut random = fastrand::Rng::with_seed(seed);
        let clients = (0..TOKENS).map(|_| server.client()).collect();
        let mut walk = Walk { server, observer, clients, model: Model::default(), last: 0 };
        for step in 0..250 {
            let asked = Asked::random(&mut random);
            let token = asked.token;
            let waits = walk.model.line.iter().any(|other| other.token == token);
            let at = format!("seed {seed}, step {step}");
            match random.u8(..12) {
                0 | 1 => walk.ask(&asked, &at),
                2..=5 if !waits && !walk.model.is_upgrade(&asked) => {
                    let keeps_all = asked.keys.iter().all(|key| walk.model.is_own(&asked, *key));
                    if keeps_all {
                        walk.ask(&asked, &at);
                    } else {
                        walk.clients[token].send(&request(asked.line("WAIT 0").split(' ')));
                        walk.model.line.push(asked);
                    }
                }
                6 if waits => {
                    walk.clients[token] = walk.server.client();
                    walk.model.line.retain(|other| other.token != token);
                }
                7 | 8 => walk.end(&asked, false, &at),
                9 => walk.end(&asked, true, &at),
                10 if random.u8(..4) == 0 => {
                    walk.observer.cmd(["DEL", asked.first()]).ignored();
                    walk.model.locks[asked.keys[0]] = Holders::default();
                }
                _ => {
                    let span_ms = random.i64(1..=300);
                    walk.observer.line(&format!("CLOCK ADVANCE {span_ms}")).is_ok();
                    walk.model.now_ms += span_ms;
                }
            }
            walk.settle(&at);
        }
    }
}
