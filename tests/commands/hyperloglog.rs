//! HyperLogLogs: how many different visitors there were.

use support::client::{Client, Reply};
use support::folder::Folder;
use support::log::serve;
use support::server::Server;

fn client() -> Client {
    Server::start().into_client()
}

fn add(client: &mut Client, key: &str, elements: std::ops::Range<usize>) {
    let words = elements.map(|element| format!("visitor {element}"));
    client.cmd(["PFADD".to_owned(), key.to_owned()].into_iter().chain(words)).ignored();
}

fn value(client: &mut Client, key: &str) -> Vec<u8> {
    match client.cmd(["GET", key]).reply() {
        Reply::Bulk(bytes) => bytes,
        other => panic!("{key} is {other:?}"),
    }
}

#[test]
fn visitors_are_counted_once_however_often_they_come() {
    let mut client = client();
    add(&mut client, "monday", 0..1000);
    add(&mut client, "monday", 0..1000);
    add(&mut client, "tuesday", 500..1500);
    let counted = client.line("PFCOUNT monday").integer();
    assert!((980..=1020).contains(&counted), "{counted}");
    let both = client.line("PFCOUNT monday tuesday").integer();
    assert!((1460..=1540).contains(&both), "{both}");
    client.line("PFMERGE days monday tuesday").is_ok();
    client.line("PFCOUNT days").is(both);
    client.line("PFCOUNT monday").is(counted);
}

#[test]
fn a_sparse_one_becomes_dense_at_the_limit_and_counts_the_same() {
    let mut client = client();
    let mut counts = Vec::new();
    for bytes_max in [0, 100, 3000, 20_000] {
        client.cmd(["CONFIG", "SET", "hll-sparse-max-bytes", &bytes_max.to_string()]).is_ok();
        client.line("DEL h").ignored();
        let mut was_dense = false;
        for batch in 0..40 {
            add(&mut client, "h", batch * 25..(batch + 1) * 25);
            let bytes = client.line("STRLEN h").integer();
            let is_dense = client.line("PFDEBUG ENCODING h").text() == "dense";
            assert!(if is_dense { bytes == 12_304 } else { bytes <= bytes_max }, "{bytes} of {bytes_max}");
            assert!(is_dense || !was_dense, "it became sparse");
            was_dense = is_dense;
        }
        assert_eq!(was_dense, bytes_max < 3000, "{bytes_max}");
        counts.push(client.line("PFCOUNT h").integer());
        client.line("PFDEBUG TODENSE h").ignored();
        // Two keys are counted anew.
        counts.push(client.line("PFCOUNT h h").integer());
    }
    // The same registers, whatever the form.
    assert!(
        (980..=1020).contains(&counts[0]) && counts.iter().all(|count| *count == counts[0]),
        "{counts:?}"
    );
}

#[test]
fn an_expiry_stays() {
    let mut client = client();
    client.line("PFADD h a").is(1);
    client.line("EXPIRE h 1000").is(1);
    add(&mut client, "h", 0..300);
    client.line("PFMERGE h h").is_ok();
    client.line("PFDEBUG TODENSE h").is(1);
    add(&mut client, "h", 300..600);
    assert!((990..=1000).contains(&client.line("TTL h").integer()));
}

#[test]
fn a_new_count_breaks_a_watch_and_a_known_one_does_not() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    for (line, is_broken) in [
        ("PFCOUNT h", true),
        ("PFCOUNT h", false),
        ("PFADD h a", false),
        ("PFADD h c", true),
        ("PFCOUNT h h", false),
    ] {
        other.line("PFADD h a b").ignored();
        client.line("WATCH h").is_ok();
        other.line(line).ignored();
        client.line("MULTI").is_ok();
        client.line("PING").is_simple("QUEUED");
        let result = client.line("EXEC").reply();
        assert_eq!(result == Reply::Null, is_broken, "{line}: {result:?}");
    }
}

/// Redis 8.6 can do without these instructions of the processor.
#[test]
fn instructions_are_not_to_be_chosen() {
    let mut client = Server::start().into_client();
    client.line("PFDEBUG SIMD ON").is_simple("enabled");
    client.line("PFDEBUG simd off").is_simple("disabled");
    client.line("PFDEBUG SIMD maybe").is_error("ERR Argument must be ON or OFF");
}

#[test]
fn every_change_comes_back_from_the_log() {
    let folder = Folder::new("aof-hyperloglog");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    for (number, key) in ["sparse", "dense", "merged", "expiring"].into_iter().enumerate() {
        add(&mut client, key, 0..100);
        if key == "dense" {
            client.line("PFDEBUG TODENSE dense").is(1);
        }
        if key == "expiring" {
            client.line("EXPIRE expiring 10000").is(1);
        }
        for batch in 0..10 {
            add(&mut client, key, batch * 40 + number..batch * 40 + 60);
            client.cmd(["PFCOUNT", key]).ignored();
        }
    }
    client.line("PFMERGE merged sparse dense").is_ok();
    client.line("PFADD empty").is(1);
    let keys = ["sparse", "dense", "merged", "expiring", "empty"];
    let before = keys.map(|key| value(&mut client, key));
    drop(client);
    drop(server);
    let server = serve(&folder, &[]);
    let mut client = server.client();
    assert_eq!(keys.map(|key| value(&mut client, key)), before);
    assert!(client.line("TTL expiring").integer() > 9000);
}
