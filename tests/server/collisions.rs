//! Names that a client has chosen for their hashes cost no more than others. This holds only if the client
//! knows no number that takes part in the hash.

use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::server::Server;

/// Names in a collection. If all have one hash, the work grows with the square of this.
const NAMES: u32 = 5_000;
/// How much more processor time chosen names may take than other names. If they collided it would be a
/// hundred times as much.
const FACTOR_MAX: u32 = 10;
/// What eight bytes of a name are combined with in foldhash's `FixedState`, whatever its seed. Names that end
/// with it have one hash there.
const CONSTANT: [u8; 8] = 0x3f84_d5b5_b547_0917_u64.to_le_bytes();

/// Names of a length that differ at their beginning and have the same end.
fn names(length: usize, end: [u8; 8]) -> Vec<Vec<u8>> {
    let name = |number: u32| {
        let mut name = vec![0; length];
        name[length - 8..].copy_from_slice(&end);
        name[..4].copy_from_slice(&number.to_ne_bytes());
        name
    };
    (0..NAMES).map(name).collect()
}

/// Processor time that the server takes while the function runs.
fn processor_time(server: &Server, run: impl FnOnce()) -> Duration {
    let clock = clock_getcpuclockid(Pid::from_raw(server.process_id() as i32)).expect("a clock");
    let before = Duration::from(clock.now().expect("a time"));
    run();
    Duration::from(clock.now().expect("a time")) - before
}

/// Every way in which a large collection of these names is made, and what each takes.
fn costs(server: &Server, client: &mut Client, names: &[Vec<u8>]) -> Vec<(&'static str, Duration)> {
    let with = |command: &str, key: &str, before: &str, after: &str| {
        let mut arguments = vec![command.as_bytes(), key.as_bytes()];
        for name in names {
            arguments
                .extend([before.as_bytes(), name, after.as_bytes()].into_iter().filter(|a| !a.is_empty()));
        }
        request(arguments)
    };
    client.line("FLUSHALL").is_simple("OK");
    let mut costs = Vec::new();
    for (command, key, before, after) in
        [("SADD", "set", "", ""), ("HSET", "hash", "", "v"), ("ZADD", "zset", "1", "")]
    {
        let request = with(command, key, before, after);
        costs.push((
            command,
            processor_time(server, || {
                client.send(&request);
                client.reply().is(i64::from(NAMES));
            }),
        ));
    }
    for (key, store) in [("set", "SUNIONSTORE"), ("zset", "ZUNIONSTORE")] {
        let line = if key == "set" { format!("{store} u {key}") } else { format!("{store} u 1 {key}") };
        costs.push((store, processor_time(server, || client.line(&line).is(i64::from(NAMES)))));
    }
    for key in ["set", "hash", "zset"] {
        let Reply::Bulk(dumped) = client.cmd(["DUMP", key]).reply() else { panic!("{key} is not dumped") };
        costs.push((
            "RESTORE",
            processor_time(server, || {
                client.cmd([&b"RESTORE"[..], b"restored", b"0", &dumped, b"REPLACE"]).is_simple("OK");
            }),
        ));
    }
    client.line("DEL restored u").is(2);
    costs.push(("snapshot", processor_time(server, || client.line("DEBUG RELOAD").is_simple("OK"))));
    costs.push(("log", processor_time(server, || client.line("DEBUG LOADAOF").is_simple("OK"))));
    for (count, key) in [("SCARD", "set"), ("HLEN", "hash"), ("ZCARD", "zset")] {
        client.cmd([count, key]).is(i64::from(NAMES));
    }
    costs
}

#[test]
fn names_chosen_for_their_hashes_cost_no_more_than_others() {
    let folder = Folder::new("collisions");
    let options = ["--enable-debug-command", "yes", "--appendonly", "yes", "--aof-use-rdb-preamble", "no"];
    let server = folder.serve(&options);
    let mut client = server.client();
    let others = costs(&server, &mut client, &names(16, *b"ordinary"));
    let chosen = costs(&server, &mut client, &names(16, CONSTANT));
    for ((way, others), (_, chosen)) in others.into_iter().zip(chosen) {
        compare(way, others, chosen);
    }
    for length in [8, 12, 24, 100] {
        let mut cost = |end| {
            let request = request([&[b"SADD".to_vec(), b"key".to_vec()][..], &names(length, end)].concat());
            client.line("FLUSHALL").is_simple("OK");
            processor_time(&server, || {
                client.send(&request);
                client.reply().is(i64::from(NAMES));
            })
        };
        let (others, chosen) = (cost(*b"ordinary"), cost(CONSTANT));
        compare(&format!("SADD of {length} bytes"), others, chosen);
    }
}

#[track_caller]
fn compare(way: &str, others: Duration, chosen: Duration) {
    // What takes next to no time is measured too coarsely to compare.
    let bound = FACTOR_MAX * others.max(Duration::from_millis(20));
    assert!(chosen < bound, "{way}: {chosen:?} beside {others:?}");
}
