//! Fixes that came due with streams. They are of several sections of the list.

use support::client::{Client, Reply, request};
use support::server::{Server, wait_until};

use super::types::{is_refused, lives, string};

/// An element of a listpack: a small integer or a short text.
fn element(text: &str) -> Vec<u8> {
    match text.parse::<u8>() {
        Ok(small) => vec![small, 1],
        Err(_) => {
            let length = u8::try_from(text.len()).unwrap();
            [&[0x80 | length], text.as_bytes(), &[length + 1]].concat()
        }
    }
}

fn listpack(elements: &str) -> Vec<u8> {
    let count = elements.split(' ').count() as u16;
    let body = elements.split(' ').map(element).collect::<Vec<_>>().concat();
    let size = (body.len() + 7) as u32;
    [&size.to_le_bytes()[..], &count.to_le_bytes(), &body, &[0xff]].concat()
}

/// The ID 1-1, in its bytes.
const ID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
/// A block with the entry 1-1: live, deleted, names, their end, the entry.
const BLOCK: &str = "1 0 1 f 0 2 0 0 v 4";

/// A stream of one block, with these numbers behind it and these groups.
fn stream(block: &[u8], numbers: [u8; 8], groups: &[u8]) -> Vec<u8> {
    let start = [&[19, 1, 16][..], &ID, &string(block)].concat();
    [&start[..], &numbers, groups].concat()
}

/// The length, the last ID, the first ID, the highest deleted ID, and the number of all entries.
const NUMBERS: [u8; 8] = [1, 1, 1, 1, 1, 0, 0, 1];

/// One group with the pending entry 1-1, and two consumers with so many of these IDs.
fn groups(pending: &[[u8; 16]], first: &[[u8; 16]], second: &[[u8; 16]]) -> Vec<u8> {
    let moment = 1_000_u64.to_le_bytes();
    let mut bytes = b"\x01\x01g\x01\x01\x01".to_vec();
    bytes.push(pending.len() as u8);
    for id in pending {
        bytes.extend([&id[..], &moment, &[1]].concat());
    }
    bytes.push(2);
    for (name, own) in [(b"\x01a", first), (b"\x01b", second)] {
        bytes.extend([&name[..], &moment, &[own.len() as u8]].concat());
        bytes.extend(own.concat());
    }
    bytes
}

#[track_caller]
fn is_restored(client: &mut Client, content: &[u8]) {
    let mut payload = [content, &keyfast::internals::dump::VERSION.to_le_bytes()].concat();
    payload.extend(keyfast::internals::dump::CHECKSUM.checksum(&payload).to_le_bytes());
    client.cmd([&b"RESTORE"[..], b"k", b"0", &payload]).is_ok();
    client.line("DEL k").is(1);
}

#[test]
fn e4_a_group_called_streams_hides_no_key() {
    let server = Server::start();
    let mut client = server.client();
    client.line("ACL SETUSER alice on nopass ~open* +@all").is_ok();
    for line in [
        "XREADGROUP GROUP STREAMS c STREAMS secret >",
        "XREADGROUP COUNT 1 GROUP STREAMS STREAMS STREAMS secret >",
        "XREADGROUP GROUP g STREAMS STREAMS secret >",
        "XREADGROUP GROUP STREAMS open NOACK STREAMS secret >",
        "XREAD STREAMS open secret 0 0",
    ] {
        let refusal = "User alice has no permissions to access the 'secret' key";
        client.line(&format!("ACL DRYRUN alice {line}")).is(refusal);
    }
    client.line("ACL DRYRUN alice XREADGROUP GROUP STREAMS secret STREAMS open >").is_ok();
}

#[test]
fn f3_two_consumers_do_not_share_a_pending_entry() {
    let server = Server::start();
    let mut client = server.client();
    let of = |groups: &[u8]| stream(&listpack(BLOCK), NUMBERS, groups);
    is_restored(&mut client, &of(&groups(&[ID], &[ID], &[])));
    is_refused(&mut client, &of(&groups(&[ID], &[ID], &[ID])));
    is_refused(&mut client, &of(&groups(&[ID], &[ID, ID], &[])));
    is_refused(&mut client, &of(&groups(&[ID], &[], &[])));
    is_refused(&mut client, &of(&groups(&[], &[ID], &[])));
    is_refused(&mut client, &of(&groups(&[ID, ID], &[ID], &[])));
    lives(&server, &mut client);
}

#[test]
fn f4_numbers_of_a_stream_that_contradict_each_other_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    is_restored(&mut client, &stream(&listpack(BLOCK), NUMBERS, &[0]));
    is_refused(&mut client, &stream(&listpack(BLOCK), [1, 1, 0, 1, 1, 0, 0, 1], &[0]));
    for block in [
        "2 0 1 f 0 2 0 0 v 4",
        "1 1 1 f 0 2 0 0 v 4",
        "0 1 1 f 0 2 0 0 v 4",
        "1 0 9 f 0 2 0 0 v 4",
        "1 0 1 f 1 2 0 0 v 4",
        "1 0 1 f 0 2 0 0 v 5",
        "1 0 1 f 0 0 0 0 9 v 4",
        "1 0 1 f 0 0 0 0 100 f v 4",
        "1 0 1 f 0 2 0 0 v",
        "1 0 1 f 0 7 0 0 v 4",
        "2 0 1 f 0 2 0 0 v 4 2 0 0 v 4",
        "1 0 1 f 0",
        "1",
        "x 0 1 f 0 2 0 0 v 4",
    ] {
        is_refused(&mut client, &stream(&listpack(block), NUMBERS, &[0]));
    }
    let whole = stream(&listpack(BLOCK), NUMBERS, &groups(&[ID], &[ID], &[]));
    for bytes in 1..whole.len() {
        is_refused(&mut client, &whole[..bytes]);
    }
    lives(&server, &mut client);
}

/// Redis keeps the length that a payload names, as long as there are entries: versions up to 7.0.0 have left
/// streams that count more than they have. Nothing may rely on it.
#[test]
fn f4_a_length_that_is_not_that_of_the_entries_does_no_harm() {
    let server = Server::start();
    let mut client = server.client();
    let with_length = |length: &[u8]| {
        let start = [&[19, 1, 16][..], &ID, &string(&listpack(BLOCK))].concat();
        [&start[..], length, &NUMBERS[1..], &[0]].concat()
    };
    for (length, counted) in [
        (&[0][..], 0),
        (&[2], 2),
        (&[0x80, 0xff, 0xff, 0xff, 0xff], u32::MAX.into()),
        (&[0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MAX),
        (&[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MAX),
    ] {
        is_restored(&mut client, &with_length(length));
        let mut payload = with_length(length);
        payload.extend(keyfast::internals::dump::VERSION.to_le_bytes());
        payload.extend(keyfast::internals::dump::CHECKSUM.checksum(&payload).to_le_bytes());
        client.cmd([&b"RESTORE"[..], b"k", b"0", &payload]).is_ok();
        client.line("XLEN k").is(counted);
        client.line("XADD k 2-1 f v").is("2-1");
        for line in
            ["XTRIM k MAXLEN 1", "XLEN k", "XINFO STREAM k", "XDEL k 2-1", "XTRIM k MINID 9", "XLEN k"]
        {
            client.line(line).ignored();
        }
        client.line("COPY k copy").is(1);
        client.line("DEBUG RELOAD").ignored();
        client.line("XADD k * f v").ignored();
        client.line("DEL k copy").ignored();
    }
    lives(&server, &mut client);
}

#[test]
fn g11_commands_of_streams_refuse_other_types() {
    let mut client = Server::start().into_client();
    client.line("SET k v").is_ok();
    for line in [
        "XADD k * f v",
        "XLEN k",
        "XRANGE k - +",
        "XREVRANGE k + -",
        "XDEL k 1",
        "XTRIM k MAXLEN 0",
        "XSETID k 1",
        "XREAD STREAMS k 0",
        "XREADGROUP GROUP g c STREAMS k >",
        "XACK k g 1",
        "XPENDING k g",
        "XCLAIM k g c 0 1",
        "XAUTOCLAIM k g c 0 0",
        "XGROUP CREATE k g $",
        "XGROUP CREATE k g $ MKSTREAM",
        "XGROUP SETID k g 0",
        "XGROUP DESTROY k g",
        "XGROUP CREATECONSUMER k g c",
        "XGROUP DELCONSUMER k g c",
        "XINFO STREAM k",
        "XINFO GROUPS k",
        "XINFO CONSUMERS k g",
    ] {
        client.line(line).is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
    }
}

#[test]
fn g12_deleted_entries_count_when_they_are_claimed() {
    let server = Server::start();
    let mut client = server.client();
    for number in 1..=20 {
        client.line(&format!("XADD s {number} f v")).ignored();
    }
    client.line("XGROUP CREATE s g 0").is_ok();
    client.line("XREADGROUP GROUP g c STREAMS s >").ignored();
    client.line("XTRIM s MAXLEN 0").is(20);
    client.line("XAUTOCLAIM s g c 0 0 COUNT 1").is(Reply::Array(vec![
        "2-0".into(),
        Reply::Array(vec![]),
        Reply::Array(vec!["1-0".into()]),
    ]));
    lives(&server, &mut client);
}

#[test]
fn g13_a_count_that_overflows_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    client.line("XGROUP CREATE s g $ MKSTREAM").is_ok();
    for count in ["9223372036854775807", "4611686018427387905", "576460752303423488", "0", "-1", "x"] {
        client.line(&format!("XAUTOCLAIM s g c 0 0 COUNT {count}")).is_error("ERR COUNT must be > 0");
    }
    for line in ["XPENDING s g - + %", "XRANGE s - + COUNT %", "XREAD COUNT % STREAMS s 0"] {
        client.line(&line.replace('%', "9223372036854775807")).ignored();
        lives(&server, &mut client);
    }
}

#[test]
fn g14_trimming_a_stream_again_and_again_keeps_its_memory() {
    let server = Server::start();
    let mut client = server.client();
    let add = "for i = 1, 20000 do redis.call('XADD', KEYS[1], 'MAXLEN', 1, '*', 'f', i) end";
    client.cmd(["EVAL", add, "1", "s"]).ignored();
    let before = client.line("MEMORY USAGE s").integer();
    let resident = server.resident_bytes();
    for _ in 0..5 {
        client.cmd(["EVAL", add, "1", "s"]).ignored();
        client.line("XINFO STREAM s FULL").ignored();
    }
    assert!(client.line("MEMORY USAGE s").integer() <= 2 * before, "the stream has grown");
    wait_until("memory is given back", || server.resident_bytes() < resident + (16 << 20));
}

#[test]
fn g15_a_request_without_keys_names_none() {
    let server = Server::start();
    let mut client = server.client();
    for line in [
        "XREAD STREAMS a b",
        "XREAD BLOCK 1 COUNT 1",
        "XREAD COUNT 1 STREAMS",
        "XREADGROUP GROUP g c STREAMS STREAMS STREAMS",
        "XREADGROUP GROUP GROUP GROUP GROUP GROUP GROUP",
    ] {
        client.line(&format!("COMMAND GETKEYS {line}")).ignored();
        client.line(line).ignored();
        lives(&server, &mut client);
    }
    client
        .line("COMMAND GETKEYS XREAD STREAMS")
        .is_error("ERR Invalid number of arguments specified for command");
}

#[test]
fn g17_limits_of_trimming_do_not_overflow() {
    let mut client = Server::start().into_client();
    client.line("XADD s MAXLEN ~ 9223372036854775807 1 f v").is("1-0");
    client.line("XTRIM s MAXLEN ~ 9223372036854775807 LIMIT 9223372036854775807").is(0);
    client.line("CONFIG SET stream-node-max-entries 9223372036854775807").is_ok();
    client.line("XTRIM s MAXLEN ~ 0 LIMIT 9223372036854775807").is(1);
    client.line("XADD s MAXLEN ~ 0 2 f v").is("2-0");
    client.line("XLEN s").is(0);
}

#[test]
fn a_client_that_waits_with_a_group_learns_that_its_key_has_expired() {
    let server = Server::start();
    let (mut client, mut waiting) = (server.client(), server.client());
    client.line("XGROUP CREATE s g $ MKSTREAM").is_ok();
    waiting.send(&request(["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"]));
    wait_until("it waits", || client.info("blocked_clients") == "1");
    client.line("PEXPIRE s 1").is(1);
    let why = "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
    waiting.reply().is_error(why);
}

/// What Redis 6 and Redis 7.2 write: without counters, and with a second time of each consumer.
#[test]
fn older_and_newer_forms_are_read() {
    let mut client = Server::start().into_client();
    let moment = 1_000_u64.to_le_bytes();
    let block = string(&listpack(BLOCK));
    let pending = [&[1][..], &ID, &moment, &[1]].concat();
    let consumer = [&b"\x01\x01c"[..], &moment].concat();
    let older = [&b"\x0f\x01\x10"[..], &ID, &block, b"\x01\x01\x01\x01\x01g\x01\x01"].concat();
    let newer = [&b"\x15\x01\x10"[..], &ID, &block, &NUMBERS, b"\x01\x01g\x01\x01\x01"].concat();
    for content in [
        [&older[..], &pending, &consumer, &[1], &ID].concat(),
        [&newer[..], &pending, &consumer, &moment, &[1], &ID].concat(),
    ] {
        let mut payload = [&content[..], &keyfast::internals::dump::VERSION.to_le_bytes()].concat();
        payload.extend(keyfast::internals::dump::CHECKSUM.checksum(&payload).to_le_bytes());
        client.cmd([&b"RESTORE"[..], b"k", b"0", &payload, b"REPLACE"]).is_ok();
        let told = client.line("XINFO GROUPS k").reply().to_string();
        assert!(told.contains("\"entries-read\", (integer) 1, \"lag\", (integer) 0"), "{told}");
        let told = client.line("XPENDING k g").reply().to_string();
        assert_eq!(told, "[(integer) 1, \"1-1\", \"1-1\", [[\"c\", \"1\"]]]");
    }
}
