//! Replays conversations that were observed with redis-server 7.0.15, Redis 8.6.3 and Valkey 9.1.
//!
//! `observed.jsonl`, `types.jsonl` and `types-ids.jsonl` hold them byte for byte and are never edited; the
//! fields are described at [`Step`]. Where versions differ, the reply of Redis 8.6.3 is right, and for what
//! only Valkey has, that of Valkey 9.1: a step names its judge where it is another one. In those of
//! `types-ids.jsonl` a client names another one, by the id that it was given in this replay. [`differences`]
//! lists the steps to which Keyfast replies otherwise.

mod differences;
mod stores;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::Value;

use differences::DIFFERENT;
use stores::{differs, goes_late};
use support::client::{Client, request, words};
use support::server::{Server, is_redis, store};
use support::store::cluster::eventually;

/// A step that takes longer is slow, …
const SLOW: Duration = Duration::from_millis(5);
/// … and a case with slow steps that differs is replayed again, so often at most.
const ATTEMPTS_MAX: usize = 50;
/// The same for a timed case in memory.
const TIMED_ATTEMPTS_MAX: usize = 2;
/// How soon a client waits that has sent a blocking command.
const WAITS_WITHIN: Duration = Duration::from_secs(2);
/// How long nothing must come where nothing may.
const SILENCE: Duration = Duration::from_secs(1);

marked!(also_redis: setnx_answers_as_observed);
fn setnx_answers_as_observed() {
    replay("setnx");
}

marked!(also_redis: the_protocol_is_as_observed);
fn the_protocol_is_as_observed() {
    replay("protocol");
}

marked!(also_redis: connections_behave_as_observed);
fn connections_behave_as_observed() {
    replay("connection");
}

marked!(also_redis: strings_behave_as_observed);
fn strings_behave_as_observed() {
    replay("strings");
}

marked!(also_redis: keys_behave_as_observed);
fn keys_behave_as_observed() {
    replay("keys");
}

marked!(also_redis: expiry_behaves_as_observed);
fn expiry_behaves_as_observed() {
    replay("expiry");
}

marked!(also_redis: transactions_behave_as_observed);
fn transactions_behave_as_observed() {
    replay("transactions");
}

marked!(also_redis: pubsub_behaves_as_observed);
fn pubsub_behaves_as_observed() {
    replay("pubsub");
}

marked!(also_redis: scripting_behaves_as_observed);
fn scripting_behaves_as_observed() {
    replay("scripting");
}

marked!(also_redis: hashes_behave_as_observed);
fn hashes_behave_as_observed() {
    replay("hashes");
}

marked!(also_redis: sets_behave_as_observed);
fn sets_behave_as_observed() {
    replay("sets");
}

marked!(also_redis: lists_behave_as_observed);
fn lists_behave_as_observed() {
    replay("lists");
}

marked!(also_redis: clients_wait_as_observed);
fn clients_wait_as_observed() {
    replay("blocking");
}

marked!(also_redis: clients_that_wait_are_named_and_woken_as_observed);
fn clients_that_wait_are_named_and_woken_as_observed() {
    replay("blocking-ids");
}

marked!(also_redis: dumps_are_as_observed);
fn dumps_are_as_observed() {
    replay("dump");
}

marked!(also_redis: scripts_see_types_as_observed);
fn scripts_see_types_as_observed() {
    replay("scripting-types");
}

marked!(also_redis: sorted_sets_behave_as_observed);
fn sorted_sets_behave_as_observed() {
    replay("sortedsets");
}

marked!(also_redis: places_are_found_as_observed);
fn places_are_found_as_observed() {
    replay("geo");
}

marked!(also_redis: hyperloglogs_are_as_observed);
fn hyperloglogs_are_as_observed() {
    replay("hyperloglog");
}

marked!(also_redis: newer_commands_behave_as_observed);
fn newer_commands_behave_as_observed() {
    replay("newer");
}

marked!(also_redis: commands_of_newer_redis_behave_as_observed);
fn commands_of_newer_redis_behave_as_observed() {
    replay("newer-redis");
}

/// Redis has most of them not.
#[test]
fn commands_of_newer_valkey_behave_as_observed() {
    for is_monitored in [false, true] {
        replay_beside(&as_keyfast(cases("newer-valkey")), "newer-valkey", is_monitored, NEVER_SLOW);
    }
}

marked!(also_redis: streams_behave_as_observed);
fn streams_behave_as_observed() {
    replay("streams");
}

marked!(also_redis: sorting_is_as_observed);
fn sorting_is_as_observed() {
    replay("sort");
}

/// A difference that no step meets would be a mistake, or one that is mended.
#[test]
fn every_difference_is_one_of_some_step() {
    let all = [include_str!("observed.jsonl"), include_str!("types.jsonl")].concat();
    let cases: Vec<Case> =
        all.lines().map(|line| Case::parse(&serde_json::from_str(line).unwrap())).collect();
    for (name, request, reply) in DIFFERENT {
        let is_it = |step: &&Step| step.send.as_deref() == Some(request.as_bytes());
        let mut steps = cases.iter().filter(|case| case.name == *name).flat_map(|case| &case.steps);
        let observed = steps.find(is_it).unwrap_or_else(|| panic!("no step {request:?} in {name}"));
        assert!(!observed.replies.contains(&reply.as_bytes().to_vec()), "{name} is no different");
    }
}

/// Commands that may wait.
const BLOCKING: &[&str] =
    &["blpop", "brpop", "blmove", "brpoplpush", "blmpop", "bzpopmin", "bzpopmax", "bzmpop", "block"];

/// One recorded conversation: requests and expected replies.
struct Case {
    name: String,
    protocol: u64,
    steps: Vec<Step>,
}

impl Case {
    fn parse(value: &Value) -> Case {
        Case {
            name: value["case"].as_str().expect("a name").to_owned(),
            protocol: value["resp"].as_u64().expect("a protocol"),
            steps: value["steps"].as_array().expect("steps").iter().map(Step::parse).collect(),
        }
    }

    /// Whether its replies depend on how much time passes between its requests.
    fn is_timed(&self) -> bool {
        let is_log = |subject: &String| subject == "slowlog" || subject == "commandlog";
        self.steps.iter().any(|step| !step.wait.is_zero() || step.subjects().iter().any(is_log))
    }
}

/// One step of it.
#[derive(Clone)]
struct Step {
    /// Which of the case's connections it is on.
    connection: u64,
    /// What is sent, if anything.
    send: Option<Vec<u8>>,
    /// The words of the request that is sent instead. Names in braces stand for kept numbers.
    words: Vec<String>,
    /// The name under which the number of the reply is kept.
    keep: Option<String>,
    /// What the reply has in it, one text behind the other.
    parts: Vec<String>,
    /// What is right, by the step's judge: one reply, or two where it varies from start to start; none where
    /// the bytes vary, or nothing is read.
    replies: Vec<Vec<u8>>,
    awaits: Awaits,
    /// Whether its judge is Redis.
    is_of_redis: bool,
    /// Whether the server must have closed the connection, or must not.
    closed: Option<bool>,
    wait: Duration,
}

/// What a step waits for.
#[derive(Clone, PartialEq)]
enum Awaits {
    Nothing,
    Silence,
    AnyReply,
    Reply,
}

impl Step {
    fn parse(value: &Value) -> Step {
        let bytes =
            |value: &Value| value.as_str().map(|text| text.chars().map(|c| c as u8).collect::<Vec<u8>>());
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        let judge = text("judge").unwrap_or("redis-8.6");
        // What the judge has replied is compared even where `compare` is false.
        let (right, is_judged) = match value.get(judge) {
            Some(reply) => (Some(reply), true),
            None => (value.get("reply"), false),
        };
        let awaits = match right {
            None => Awaits::Nothing,
            Some(Value::Null) => Awaits::Silence,
            Some(_) if !is_judged && value.get("compare") == Some(&Value::Bool(false)) => Awaits::AnyReply,
            Some(reply) if reply.as_str() == Some("") => Awaits::Nothing,
            Some(_) => Awaits::Reply,
        };
        let other = value.get("or").filter(|_| judge == "any");
        let word = |value: &Value| value.as_str().expect("a word").to_owned();
        let words = value.get("args").and_then(Value::as_array).into_iter().flatten().map(word);
        Step {
            connection: value.get("conn").and_then(Value::as_u64).unwrap_or(0),
            send: value.get("send").and_then(bytes),
            words: words.collect(),
            keep: text("keep").map(str::to_owned),
            // The observed patterns are texts with anything between them.
            parts: text("match").unwrap_or_default().split(".*").map(str::to_owned).collect(),
            replies: right.into_iter().chain(other).filter_map(bytes).collect(),
            awaits,
            is_of_redis: ["redis-8.6", "any"].contains(&judge),
            closed: value.get("closed").and_then(Value::as_bool),
            wait: Duration::from_millis(value.get("wait_ms").and_then(Value::as_u64).unwrap_or(0)),
        }
    }

    /// The step with kept numbers in place of their names.
    fn with_numbers(&self, kept: &BTreeMap<String, String>) -> Step {
        let number = |word: &String| match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
            Some(name) => kept.get(name).expect("a number was kept").clone(),
            None => word.clone(),
        };
        let made = (!self.words.is_empty()).then(|| request(self.words.iter().map(number)));
        Step { send: self.send.clone().or(made), ..self.clone() }
    }

    /// Whether it sends a blocking command and does not read its reply: behind a PING, or none.
    fn begins_to_wait(&self) -> bool {
        let text = String::from_utf8_lossy(self.send.as_deref().unwrap_or_default()).to_lowercase();
        let reads = if text.starts_with("*1\r\n$4\r\nping\r\n*") { 1 } else { 0 };
        let requests = text.split("\r\n").filter(|line| line.starts_with('*')).count();
        let reads_all = requests <= reads || reads == 0 && self.awaits != Awaits::Nothing;
        !reads_all && BLOCKING.iter().any(|command| text.contains(&format!("\r\n{command}\r\n")))
    }

    /// Whether a reply has in it what it must.
    fn matches(&self, reply: &[u8]) -> bool {
        let reply = String::from_utf8_lossy(reply);
        let mut rest = &*reply;
        self.parts.iter().all(|part| {
            let found = rest.split_once(part.as_str()).map(|(_, behind)| rest = behind);
            found.is_some()
        })
    }

    /// What the step's first request is about: its command, its subcommand, its parameter, as in `config`,
    /// `config|get`, `config maxmemory`.
    fn subjects(&self) -> Vec<String> {
        let Some(send) = &self.send else { return Vec::new() };
        let text = String::from_utf8_lossy(send).to_lowercase();
        let words: Vec<String> = match text.strip_prefix('*') {
            Some(array) => array.split("\r\n").skip(2).step_by(2).map(str::to_owned).collect(),
            None => words(text.lines().next().unwrap_or_default()),
        };
        let Some(command) = words.first() else { return Vec::new() };
        let Some(subcommand) = words.get(1).map(|word| format!("{command}|{word}")) else {
            return vec![command.clone()];
        };
        let parameter = words.get(2).map(|word| format!("{command} {word}"));
        [Some(command.clone()), Some(subcommand), parameter].into_iter().flatten().collect()
    }
}

/// The cases of a group.
fn cases(group: &str) -> Vec<Case> {
    let files =
        [include_str!("observed.jsonl"), include_str!("types.jsonl"), include_str!("types-ids.jsonl")];
    let values = files
        .into_iter()
        .flat_map(str::lines)
        .map(|line| serde_json::from_str::<Value>(line).expect("a case"));
    let cases: Vec<Case> =
        values.filter(|value| value["group"] == group).map(|value| Case::parse(&value)).collect();
    assert!(!cases.is_empty(), "no case in group {group}");
    cases
}

/// The cases without what another server has said.
fn as_redis(mut cases: Vec<Case>) -> Vec<Case> {
    let elsewhere = |step: &&mut Step| !step.is_of_redis && step.awaits == Awaits::Reply;
    for step in cases.iter_mut().flat_map(|case| &mut case.steps).filter(elsewhere) {
        (step.replies, step.awaits) = (Vec::new(), Awaits::AnyReply);
    }
    cases
}

/// The cases with the replies of Keyfast where those differ.
fn as_keyfast(mut cases: Vec<Case>) -> Vec<Case> {
    for case in &mut cases {
        for step in &mut case.steps {
            let is_it = |different: &&(&str, &str, &str)| {
                different.0 == case.name && step.send.as_deref() == Some(different.1.as_bytes())
            };
            let different = DIFFERENT.iter().filter(is_it);
            let replies: Vec<_> = different.map(|(_, _, reply)| reply.as_bytes().to_vec()).collect();
            if !replies.is_empty() {
                (step.replies, step.awaits) = (replies, Awaits::Reply);
            }
        }
    }
    cases
}

/// Replays all cases of a group as they are, then once more beside a client that monitors: the server takes
/// other ways then, on which replies must be the same.
fn replay(group: &str) {
    let cases = if is_redis() { as_redis(cases(group)) } else { as_keyfast(cases(group)) };
    // A real server shows its options, and they are not those that were observed.
    let options = if is_redis() { &[] } else { NEVER_SLOW };
    replay_beside(&cases, group, false, options);
    replay_beside(&cases, group, true, options);
}

/// On a busy machine anything may take as long as what is slow by default.
const NEVER_SLOW: &[&str] = &["--slowlog-log-slower-than", "3600000000"];

/// Replays cases of a group, and reports all differences at once.
fn replay_beside(cases: &[Case], group: &str, is_monitored: bool, options: &[&str]) {
    let server = Server::start_with(options);
    let (mut failures, mut replayed) = (String::new(), 0);
    for case in cases {
        if store().is_some() && differs(group, &case.name) {
            println!("skipped in {group}: {}", case.name);
            continue;
        }
        let mut played = play(&server, group, case, is_monitored);
        // Keys of these cases live for as long as a busy store may need for a reply. In memory, the few
        // milliseconds of a timed case may pass between two requests.
        let attempts = match store() {
            Some(_) => ATTEMPTS_MAX,
            None if case.is_timed() => TIMED_ATTEMPTS_MAX,
            None => 0,
        };
        for _ in 0..attempts {
            if played.difference.is_some() && played.slowest_step > SLOW {
                played = play(&server, group, case, is_monitored);
            }
        }
        replayed += played.steps;
        if let Some(difference) = played.difference {
            let _ = writeln!(failures, "{} (RESP{}) {difference}", case.name, case.protocol);
        }
    }
    println!(
        "{group}, monitored: {is_monitored}: {} cases, {replayed} of {} steps replayed",
        cases.len(),
        cases.iter().map(|case| case.steps.len()).sum::<usize>()
    );
    assert!(failures.is_empty(), "{group} differs, monitored: {is_monitored}:\n{failures}");
}

/// How a case went.
#[derive(Default)]
struct Played {
    /// Steps that were taken.
    steps: usize,
    /// Where it differs first.
    difference: Option<String>,
    /// How long the slowest step took, without pauses.
    slowest_step: Duration,
}

/// Replays one case.
fn play(server: &Server, group: &str, case: &Case, is_monitored: bool) -> Played {
    let mut played = Played::default();
    for preparation in ["FLUSHALL", "SCRIPT FLUSH", "CONFIG RESETSTAT"] {
        // What is not there needs no preparation.
        server.client().line(preparation).ignored();
    }
    let monitor = is_monitored.then(|| {
        let mut monitor = server.client();
        monitor.line("MONITOR").is_ok();
        let mut stream = monitor.stream().try_clone().expect("a second handle");
        std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        monitor
    });
    let (mut connections, mut kept) = (BTreeMap::new(), BTreeMap::new());
    let late = store().and_then(|store| goes_late(&store, group, &case.name));
    for (number, step) in case.steps.iter().enumerate() {
        let client = connections.entry(step.connection).or_insert_with(|| match case.protocol {
            3 => server.client3(),
            _ => server.client(),
        });
        let step = &step.with_numbers(&kept);
        played.steps += 1;
        let began = Instant::now();
        let reply = take(step, client);
        played.slowest_step = played.slowest_step.max(began.elapsed().saturating_sub(step.wait));
        if store().is_some() && step.begins_to_wait() {
            wait_until_it_waits(server, client);
        }
        if let (Some(key), false) = (late, step.wait.is_zero()) {
            // A case may have moved it.
            let (mut client, mut other) = (server.client(), server.client());
            other.line("SELECT 1").is_ok();
            let is_gone = |client: &mut Client| client.line(&format!("EXISTS {key}")).integer() == 0;
            eventually("the key expires", || is_gone(&mut client) && is_gone(&mut other));
        }
        if let (Ok(reply), Some(name)) = (&reply, &step.keep) {
            let digits = reply.iter().copied().filter(u8::is_ascii_digit).map(char::from);
            kept.insert(name.clone(), digits.collect());
        }
        if let Err(difference) = reply {
            played.difference = Some(format!("step {number}: {difference}"));
            break;
        }
    }
    if let Some(monitor) = monitor {
        // Ends its connection, and the thread that reads from it. The case may have ended it before.
        let _ = monitor.stream().shutdown(std::net::Shutdown::Both);
    }
    played
}

/// Waits until a client waits that has just sent a blocking command, or is answered: beside a store, that
/// takes a while. The case tells if it does neither.
fn wait_until_it_waits(server: &Server, client: &Client) {
    let address = format!("addr={} ", client.local_address());
    let mut other = server.client();
    let began = Instant::now();
    while began.elapsed() < WAITS_WITHIN {
        let clients = other.line("CLIENT LIST").text();
        let line = clients.lines().find(|line| line.contains(&address));
        let waits = line.is_none_or(|line| line.contains(" flags=b") || line.contains(" flags=xb"));
        client.stream().set_nonblocking(true).expect("an open connection");
        let is_answered = client.stream().peek(&mut [0]).is_ok();
        client.stream().set_nonblocking(false).expect("an open connection");
        if waits || is_answered {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes a step; returns the reply.
fn take(step: &Step, client: &mut Client) -> Result<Vec<u8>, String> {
    let mut replied = Vec::new();
    if let Some(send) = &step.send {
        client.send(send);
    }
    std::thread::sleep(step.wait);
    match step.awaits {
        Awaits::Nothing => {}
        Awaits::Silence if client.is_silent_for(SILENCE) => {}
        Awaits::Silence => return Err(format!("{} was answered", show(step.send.as_deref()))),
        Awaits::AnyReply | Awaits::Reply => {
            let reply = client.try_reply_bytes().map_err(|error| show_loss(step, error.kind()))?;
            if step.awaits == Awaits::Reply && !step.replies.contains(&reply) {
                return Err(format!(
                    "{}\n    expected {}\n    got      {}",
                    show(step.send.as_deref()),
                    step.replies.iter().map(|reply| show(Some(reply))).collect::<Vec<_>>().join(" or "),
                    show(Some(&reply))
                ));
            }
            if !step.matches(&reply) {
                return Err(format!(
                    "{}\n    expected {:?}\n    got      {}",
                    show(step.send.as_deref()),
                    step.parts,
                    show(Some(&reply))
                ));
            }
            replied = reply;
        }
    }
    match step.closed {
        Some(true) if !client.is_closed() => Err("the connection is still open".to_owned()),
        Some(false) if client.try_send(&request(["PING"])).is_err() || client.try_reply_bytes().is_err() => {
            Err("the connection is closed".to_owned())
        }
        _ => Ok(replied),
    }
}

fn show_loss(step: &Step, kind: ErrorKind) -> String {
    format!("{} was not answered: {kind}", show(step.send.as_deref()))
}

fn show(bytes: Option<&[u8]>) -> String {
    bytes.unwrap_or_default().escape_ascii().to_string()
}
