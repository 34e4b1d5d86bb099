//! Replays conversations that were observed with redis-server 7.0.15 (and, where it differs, Valkey 8.1).
//!
//! `observed.jsonl`, `types.jsonl` and `types-ids.jsonl` hold them byte for byte and are never edited; the
//! fields are described at [`Step`]. Those of the types were also observed with Valkey 9.1 and Redis 8.6. In
//! those of `types-ids.jsonl` a client names another one, by the id that it was given in this replay.
//! [`missing`] lists what the server does not have yet; it must shrink as commands come.

mod missing;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Client, request, words};
use crate::server::{Server, is_redis, store};
use crate::store::cluster::eventually;
use crate::store::differs::{differs, goes_late};
use missing::{DIFFERENT, GOES_ON_WITHOUT, MISSING, MISSING_CASES, NEWER_CASES};

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

#[test]
fn setnx_answers_as_observed() {
    replay("setnx");
}

#[test]
fn the_protocol_is_as_observed() {
    replay("protocol");
}

#[test]
fn connections_behave_as_observed() {
    replay("connection");
}

#[test]
fn strings_behave_as_observed() {
    replay("strings");
}

#[test]
fn keys_behave_as_observed() {
    replay("keys");
}

#[test]
fn expiry_behaves_as_observed() {
    replay("expiry");
}

#[test]
fn transactions_behave_as_observed() {
    replay("transactions");
}

#[test]
fn pubsub_behaves_as_observed() {
    replay("pubsub");
}

#[test]
fn scripting_behaves_as_observed() {
    replay("scripting");
}

#[test]
fn hashes_behave_as_observed() {
    replay("hashes");
}

#[test]
fn sets_behave_as_observed() {
    replay("sets");
}

#[test]
fn lists_behave_as_observed() {
    replay("lists");
}

#[test]
fn clients_wait_as_observed() {
    replay("blocking");
}

#[test]
fn clients_that_wait_are_named_and_woken_as_observed() {
    replay("blocking-ids");
}

#[test]
fn dumps_are_as_observed() {
    replay("dump");
}

#[test]
fn scripts_see_types_as_observed() {
    replay("scripting-types");
}

#[test]
fn sorted_sets_behave_as_observed() {
    replay("sortedsets");
}

#[test]
fn places_are_found_as_observed() {
    replay("geo");
}

#[test]
fn hyperloglogs_are_as_observed() {
    replay("hyperloglog");
}

/// Of what newer servers have. A case needs all that it uses.
#[test]
fn newer_commands_behave_as_observed() {
    if is_redis() {
        return;
    }
    for (group, names) in NEWER_CASES {
        for is_monitored in [false, true] {
            replay_beside(group, Some(names), is_monitored);
        }
    }
}

#[test]
fn streams_behave_as_observed() {
    replay("streams");
}

#[test]
fn sorting_is_as_observed() {
    replay("sort");
}

#[test]
fn what_is_listed_as_missing_is_missing() {
    if is_redis() {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for subject in MISSING {
        let answer = match *subject {
            parameter if parameter.contains(' ') => {
                client.line(&parameter.replace(' ', " get ")).reply().to_string()
            }
            command => client.cmd(command.split('|').chain(["x", "x"])).reply().to_string(),
        };
        let is_missing = answer.starts_with("(error) ERR unknown") || answer == "[]";
        assert!(is_missing, "{subject} is there: {answer}");
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
    /// What may come back; empty where the bytes vary, or nothing is read.
    replies: Vec<Vec<u8>>,
    awaits: Awaits,
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
        let awaits = match value.get("reply") {
            None => Awaits::Nothing,
            Some(Value::Null) => Awaits::Silence,
            Some(_) if value.get("compare") == Some(&Value::Bool(false)) => Awaits::AnyReply,
            Some(reply) if reply.as_str() == Some("") => Awaits::Nothing,
            Some(_) => Awaits::Reply,
        };
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        let word = |value: &Value| value.as_str().expect("a word").to_owned();
        let words = value.get("args").and_then(Value::as_array).into_iter().flatten().map(word);
        Step {
            connection: value.get("conn").and_then(Value::as_u64).unwrap_or(0),
            send: value.get("send").and_then(bytes),
            words: words.collect(),
            keep: text("keep").map(str::to_owned),
            // The observed patterns are texts with anything between them.
            parts: text("match").unwrap_or_default().split(".*").map(str::to_owned).collect(),
            replies: ["reply", "or"].iter().filter_map(|field| value.get(field).and_then(bytes)).collect(),
            awaits,
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

    /// The step as Keyfast is to reply to it.
    fn with_difference(&self, case: &str) -> Step {
        let is_it = |different: &&(&str, &str, &str)| {
            different.0 == case && self.send.as_deref() == Some(different.1.as_bytes())
        };
        let different = DIFFERENT.iter().filter(is_it).filter(|_| !is_redis());
        let replies: Vec<_> = different.map(|(_, _, reply)| reply.as_bytes().to_vec()).collect();
        Step { replies: if replies.is_empty() { self.replies.clone() } else { replies }, ..self.clone() }
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

    /// Whether the step needs a missing command: as its own, behind another one in the same write, or quoted
    /// in a script.
    fn is_missing(&self) -> bool {
        let text = String::from_utf8_lossy(self.send.as_deref().unwrap_or_default()).to_lowercase();
        let is_used = |missing: &&str| {
            let (word, quoted) = (format!("\r\n${}\r\n{missing}\r\n", missing.len()), format!("'{missing}'"));
            text.match_indices(&word).any(|(at, _)| begins_request(&text[..at])) || text.contains(&quoted)
        };
        let is_named = self.subjects().iter().any(|subject| MISSING.contains(&subject.as_str()));
        !is_redis() && (is_named || MISSING.iter().any(is_used))
    }
}

/// Whether a request's number of words has just been written: `*3`.
fn begins_request(text: &str) -> bool {
    let last_line = text.rsplit("\r\n").next().unwrap_or_default();
    last_line.strip_prefix('*').is_some_and(|count| count.bytes().all(|byte| byte.is_ascii_digit()))
}

fn cases(group: &str) -> Vec<Case> {
    let files =
        [include_str!("observed.jsonl"), include_str!("types.jsonl"), include_str!("types-ids.jsonl")];
    let values = files
        .into_iter()
        .flat_map(str::lines)
        .map(|line| serde_json::from_str::<Value>(line).expect("a case"));
    let cases: Vec<Case> = values
        .filter(|value| value["group"] == group)
        .map(|value| Case {
            name: value["case"].as_str().expect("a name").to_owned(),
            protocol: value["resp"].as_u64().expect("a protocol"),
            steps: value["steps"].as_array().expect("steps").iter().map(Step::parse).collect(),
        })
        .collect();
    assert!(!cases.is_empty(), "no case in group {group}");
    cases
}

/// Replays all cases of a group as they are, then once more beside a client that monitors: the server takes
/// other ways then, on which replies must be the same.
fn replay(group: &str) {
    replay_beside(group, None, false);
    replay_beside(group, None, true);
}

/// Replays the cases of a group with these names, or all, and reports all differences at once.
fn replay_beside(group: &str, names: Option<&[&str]>, is_monitored: bool) {
    // On a busy machine anything may take as long as what is slow by default.
    let server = Server::start_with(&["--slowlog-log-slower-than", "3600000000"]);
    let (mut failures, mut skipped, mut steps) = (String::new(), 0, 0);
    let mut cases = cases(group);
    if let Some(names) = names {
        cases.retain(|case| names.contains(&&*case.name));
        assert!(cases.len() >= names.len(), "a case of {group} has another name");
    }
    for case in &cases {
        let is_of_case = |missing: &&(&str, &str)| missing.0 == group && case.name.starts_with(missing.1);
        if !is_redis() && MISSING_CASES.iter().any(|missing| is_of_case(&missing))
            || store().is_some() && differs(group, &case.name)
        {
            (steps, skipped) = (steps + case.steps.len(), skipped + case.steps.len());
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
        (steps, skipped) = (steps + case.steps.len(), skipped + played.skipped);
        if let Some(difference) = played.difference {
            let _ = writeln!(failures, "{} (RESP{}) {difference}", case.name, case.protocol);
        }
    }
    println!(
        "{group}, monitored: {is_monitored}: {} cases, {} of {steps} steps replayed",
        cases.len(),
        steps - skipped
    );
    assert!(failures.is_empty(), "{group} differs, monitored: {is_monitored}:\n{failures}");
}

/// How a case went.
#[derive(Default)]
struct Played {
    /// Steps that were left out.
    skipped: usize,
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
    let goes_on = GOES_ON_WITHOUT.contains(&(group, case.name.as_str()));
    for (number, step) in case.steps.iter().enumerate() {
        if step.is_missing() {
            let lost = if goes_on { 1 } else { case.steps.len() - number };
            played.skipped += lost;
            println!("skipped in {group}/{}: {lost} steps without {:?}", case.name, step.subjects());
            if goes_on {
                continue;
            }
            break;
        }
        let client = connections.entry(step.connection).or_insert_with(|| match case.protocol {
            3 => server.client3(),
            _ => server.client(),
        });
        let step = &step.with_numbers(&kept).with_difference(&case.name);
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
