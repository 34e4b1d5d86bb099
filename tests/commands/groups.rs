//! Workers that share the entries of a stream, are killed at any moment, and lose nothing.
//!
//! Producers add entries, workers read, claim and acknowledge them. A worker may leave its connection at any
//! time, and so may the server its life (`kill -9`), with a log that is synced before each reply. Each entry
//! whose ID a producer was told is processed once at least. Once a worker was told that its acknowledgement
//! counts, no request that is sent later gets this entry.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use support::client::{Client, Reply};
use support::folder::Folder;
use support::log::ALWAYS;

const WORKERS: u64 = 4;
const PRODUCERS: u64 = 2;
/// Lives of the server.
const LIVES: u64 = 5;
const LIFE: Duration = Duration::from_millis(500);

/// What all of them know.
#[derive(Default)]
struct Known {
    /// Rises with each request and each acknowledgement.
    time: AtomicU64,
    added: Mutex<HashSet<String>>,
    /// How often each entry was processed.
    processed: Mutex<HashMap<String, u64>>,
    /// When the acknowledgement of an entry was confirmed.
    acknowledged: Mutex<HashMap<String, u64>>,
    is_over: AtomicBool,
}

impl Known {
    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    /// Processes the entries of a request that was sent at a moment.
    #[track_caller]
    fn process(&self, ids: &[String], sent: u64, how: &str) {
        let acknowledged = self.acknowledged.lock().unwrap();
        let mut processed = self.processed.lock().unwrap();
        for id in ids {
            if let Some(when) = acknowledged.get(id) {
                assert!(*when > sent, "{how} got {id} although it was acknowledged before");
            }
            *processed.entry(id.clone()).or_default() += 1;
        }
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other} is no text"),
    }
}

fn items(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(items) => items,
        Reply::Null => &[],
        other => panic!("{other} is no list"),
    }
}

/// The IDs of entries, of which those that were deleted are null.
fn ids(entries: &Reply) -> Vec<String> {
    items(entries).iter().filter_map(|entry| items(entry).first()).map(text).collect()
}

/// The IDs in a reply of XREADGROUP for one stream.
fn read_ids(reply: &Reply) -> Vec<String> {
    items(reply).first().map(|stream| ids(&items(stream)[1])).unwrap_or_default()
}

fn produce(known: &Known, address: SocketAddr, number: u64) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(number);
    let mut client = Client::try_connect(address)?;
    while !known.is_over.load(Ordering::SeqCst) {
        let id = text(&client.try_line(&format!("XADD s * value {}", random.u32(..)))?);
        known.added.lock().unwrap().insert(id);
        thread::sleep(Duration::from_micros(random.u64(..1500)));
    }
    Ok(())
}

/// What a worker does until its server, or its connection, is gone.
fn work(known: &Known, address: SocketAddr, name: &str, random: &mut fastrand::Rng) -> io::Result<()> {
    let mut client = Client::try_connect(address)?;
    while !known.is_over.load(Ordering::SeqCst) {
        let (sent, count) = (known.now(), random.u32(1..6));
        let read = format!("XREADGROUP GROUP g {name} COUNT {count}");
        let got = match random.u32(..10) {
            0..4 => read_ids(&client.try_line(&format!("{read} BLOCK 20 STREAMS s >"))?),
            4 | 5 => read_ids(&client.try_line(&format!("{read} CLAIM 5 STREAMS s >"))?),
            6 => read_ids(&client.try_line(&format!("{read} STREAMS s 0"))?),
            7 => {
                let reply = client.try_line(&format!("XAUTOCLAIM s g {name} 5 0 COUNT {count}"))?;
                ids(&items(&reply)[1])
            }
            _ => {
                let pending = client.try_line(&format!("XPENDING s g - + {count}"))?;
                let pending = ids(&pending);
                // What is claimed now may have been acknowledged since it was listed: it is not pending then.
                match pending.is_empty() {
                    true => Vec::new(),
                    false => ids(&client.try_line(&format!("XCLAIM s g {name} 5 {}", pending.join(" ")))?),
                }
            }
        };
        known.process(&got, sent, name);
        if random.u32(..8) == 0 {
            // It is killed with what it has got.
            return Ok(());
        }
        for id in got {
            if client.try_line(&format!("XACK s g {id}"))? == Reply::Integer(1) {
                let when = known.now();
                known.acknowledged.lock().unwrap().insert(id, when);
            }
        }
    }
    Ok(())
}

#[test]
fn no_entry_is_lost_and_none_comes_back_when_a_client_or_the_server_is_killed() {
    let (folder, known) = (Folder::new("groups-torture"), Known::default());
    for life in 0..LIVES {
        let server = folder.serve(ALWAYS);
        let address = server.address();
        let reply = server.client().line("XGROUP CREATE s g 0 MKSTREAM").reply();
        assert!(life == 0 || matches!(reply, Reply::Error(_)), "the group is gone: {reply}");
        thread::scope(|scope| {
            for number in 0..PRODUCERS {
                let known = &known;
                scope.spawn(move || produce(known, address, life * PRODUCERS + number));
            }
            for number in 0..WORKERS {
                let known = &known;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(1000 + life * WORKERS + number);
                    while !known.is_over.load(Ordering::SeqCst) {
                        // A new connection for the one that was killed, sometimes with another name.
                        let name = format!("worker:{}", random.u64(..WORKERS));
                        if work(known, address, &name, &mut random).is_err() {
                            return;
                        }
                    }
                });
            }
            thread::sleep(LIFE);
            if life + 1 < LIVES {
                server.signal("KILL");
            }
            known.is_over.store(true, Ordering::SeqCst);
        });
        known.is_over.store(false, Ordering::SeqCst);
    }
    // What is left.
    let mut client = folder.serve(ALWAYS).into_client();
    loop {
        let sent = known.now();
        let read = read_ids(&client.line("XREADGROUP GROUP g last COUNT 100 STREAMS s >").reply());
        let claimed = client.line("XAUTOCLAIM s g last 0 0 COUNT 1000").reply();
        let got = [read, ids(&items(&claimed)[1])].concat();
        if got.is_empty() {
            break;
        }
        known.process(&got, sent, "the last one");
        for id in got {
            client.line(&format!("XACK s g {id}")).ignored();
        }
    }
    client.line("XPENDING s g").is(Reply::Array(vec![0.into(), Reply::Null, Reply::Null, Reply::Null]));
    let (added, processed) = (known.added.lock().unwrap(), known.processed.lock().unwrap());
    let lost: Vec<&String> = added.iter().filter(|id| !processed.contains_key(*id)).collect();
    assert!(lost.is_empty(), "never processed: {lost:?}");
    let again = processed.values().filter(|times| **times > 1).count();
    let confirmed = known.acknowledged.lock().unwrap().len();
    // There was something to see.
    assert!(added.len() > 100 && confirmed > 100 && again > 10, "{} {confirmed} {again}", added.len());
}
