//! Requests that a client sends without waiting for replies travel together, and are done in their order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Kind, pair};
use support::client::{Client, Reply};

on_both! {
    requests_that_are_sent_together_travel_together
    long_values_are_changed_together_after_one_wrong_guess
    each_request_sees_what_those_before_it_have_done
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Sends these lines at once, and returns the replies.
fn pipeline(client: &mut Client, lines: &[String]) -> Vec<Reply> {
    client.send((lines.join("\r\n") + "\r\n").as_bytes());
    lines.iter().map(|_| client.reply().reply()).collect()
}

fn requests_that_are_sent_together_travel_together(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "together") else { return };
    let mut client = one.client();
    client.line("SET first 1").is_ok();
    let before = number(&client.info("store_batches"));
    let names = || (0..100).map(|index| format!("key:{index}"));
    let sets: Vec<_> = names().map(|name| format!("SET {name} {name}")).collect();
    let stored = pipeline(&mut client, &sets);
    assert_eq!(stored, vec![Reply::Simple("OK".into()); 100]);
    let gets: Vec<_> = names().map(|name| format!("GET {name}")).collect();
    let values: Vec<_> = names().map(|name| Reply::from(name.as_str())).collect();
    assert_eq!(pipeline(&mut client, &gets), values);
    let batches = number(&client.info("store_batches")) - before;
    assert!(batches < 50, "{batches} batches for 200 requests");
    // Another front-end has guessed nothing of them.
    assert_eq!(pipeline(&mut other.client(), &gets), values);
    // An error is the reply of its own request, and what is no plain request is done in turn.
    let lines = [
        "SET a 1",
        "LPUSH a x",
        "SET a",
        "NOSUCH a",
        "INCR a",
        "SELECT 1",
        "INCR a",
        "MULTI",
        "INCR a",
        "EXEC",
        "SELECT 0",
        "EVAL \"return redis.call('incr', KEYS[1])\" 1 a",
        "INCR a",
        "PING",
        "BLPOP b 0.01",
        "RPUSH b e",
        "BLPOP b 0",
        "GET a",
    ];
    let replies = pipeline(&mut client, &lines.map(str::to_owned));
    let texts: Vec<_> = replies.iter().map(Reply::to_string).collect();
    assert!(
        texts[1].contains("WRONGTYPE") && texts[2].contains("wrong number") && texts[3].contains("unknown")
    );
    let texts: Vec<_> = [0, 4, 6, 9, 11, 12, 14, 16, 17].map(|index| texts[index].as_str()).into();
    let counts = ["(integer) 2", "(integer) 1", "[(integer) 2]", "(integer) 3", "(integer) 4"];
    assert_eq!((texts[0], &texts[1..6]), ("OK", &counts[..]));
    // A client that waits for a key does not get what it pushes later itself.
    assert_eq!(texts[6..], ["(nil)", r#"["b", "e"]"#, r#""4""#]);
}

/// No front-end keeps a long value, so the first guess of all keys is wrong, but not the second one.
fn long_values_are_changed_together_after_one_wrong_guess(kind: Kind) {
    let Some((_cluster, one, _)) = pair(kind, "long") else { return };
    let mut client = one.client();
    let long = "x".repeat(100_000);
    client.cmd(["HSET", "hash", "long", &long]).is(1);
    client.cmd(["RPUSH", "list", &long]).is(1);
    let before = number(&client.info("store_overtaken"));
    let lines: Vec<_> =
        (0..10).flat_map(|n| [format!("HSET hash {n} {n}"), format!("RPUSH list {n}")]).collect();
    let expected: Vec<_> = (0..10).flat_map(|n| [Reply::from(1), Reply::from(n + 2)]).collect();
    assert_eq!(pipeline(&mut client, &lines), expected);
    // On a slow machine, each of them travels alone, after one wrong guess for all that are left.
    let overtaken = number(&client.info("store_overtaken")) - before;
    assert!(overtaken <= (lines.len() * lines.len()) as u64, "{overtaken} times");
}

/// What a client expects of its own keys.
#[derive(Default)]
struct Model(HashMap<String, String>);

impl Model {
    /// A random request, and its reply.
    fn request(&mut self, random: &mut fastrand::Rng, client: usize) -> (String, Reply) {
        let (key, value) = (format!("own:{client}:{}", random.u32(..3)), random.u32(..1000).to_string());
        let old = self.0.get(&key).cloned();
        let old_reply = || old.as_deref().map_or(Reply::Null, Reply::from);
        let line = match random.u32(..6) {
            0 => (format!("SET {key} {value}"), Reply::Simple("OK".into())),
            1 => (format!("SETNX {key} {value}"), Reply::from(i64::from(old.is_none()))),
            2 => (format!("GETSET {key} {value}"), old_reply()),
            3 => (format!("DEL {key}"), Reply::from(i64::from(old.is_some()))),
            4 => {
                let text = old.clone().unwrap_or_default() + &value;
                (format!("APPEND {key} {value}"), Reply::from(text.len() as i64))
            }
            _ => (format!("GET {key}"), old_reply()),
        };
        match line.0.split(' ').next() {
            Some("SET" | "GETSET") => drop(self.0.insert(key, value)),
            Some("SETNX") => drop(self.0.entry(key).or_insert(value)),
            Some("DEL") => drop(self.0.remove(&key)),
            Some("APPEND") => self.0.entry(key).or_default().push_str(&value),
            _ => {}
        }
        line
    }
}

fn each_request_sees_what_those_before_it_have_done(kind: Kind) {
    const CLIENTS: usize = 4;
    const PIPELINES: usize = 25;
    let Some((_cluster, one, other)) = pair(kind, "order") else { return };
    let fronts = [&one, &other];
    one.client().line("MSET early 0 late 0 shared 0").is_ok();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|index| {
            let mut client = fronts[index % 2].client();
            scope.spawn(move || {
                let (mut random, mut model) = (fastrand::Rng::with_seed(index as u64), Model::default());
                let mut added = 0;
                for round in 1..=PIPELINES {
                    let (mut lines, mut expected) = (Vec::new(), Vec::new());
                    for _ in 0..1 + random.u32(..20) {
                        let (line, reply) = model.request(&mut random, index);
                        lines.push(line);
                        expected.push(Some(reply));
                        // All clients change this one, so many guesses are wrong.
                        if random.u32(..8) == 0 {
                            lines.push("INCR shared".to_owned());
                            expected.push(None);
                            added += 1;
                        }
                        if index == 0 && random.u32(..2) == 0 {
                            let value = round * 1000 + lines.len();
                            lines.extend([format!("SET early {value}"), format!("SET late {value}")]);
                            expected
                                .extend([Some(Reply::Simple("OK".into())), Some(Reply::Simple("OK".into()))]);
                        }
                    }
                    let replies = pipeline(&mut client, &lines);
                    for ((line, reply), expected) in lines.iter().zip(replies).zip(expected) {
                        if let Some(expected) = expected {
                            assert_eq!(reply, expected, "{line} in {lines:?}");
                        }
                    }
                }
                added
            })
        });
        let clients: Vec<_> = clients.collect();
        let (is_over, fronts) = (&is_over, &fronts);
        let reader = scope.spawn(move || {
            let mut reader = fronts[1].client();
            while !is_over.load(Ordering::Relaxed) {
                let values = reader.line("MGET late early").items();
                let [late, early] =
                    [0, 1].map(|index: usize| number(values[index].to_string().trim_matches('"')));
                assert!(early >= late, "{early} was written before {late}");
            }
        });
        let added: i64 = clients.into_iter().map(|client| client.join().expect("a count")).sum();
        is_over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader");
        one.client().line("GET shared").is(added.to_string().as_str());
    });
}
