//! Fixes that came due with hashes, lists, sets and sorted sets, and with clients that wait for them. They
//! are of several sections of the list.

use keyfast::internals::dump::{CHECKSUM, VERSION};

use support::client::{Client, Reply, request};
use support::server::{Server, wait_until};

#[track_caller]
pub(super) fn lives(server: &Server, client: &mut Client) {
    client.line("PING").is_simple("PONG");
    server.client().line("PING").is_simple("PONG");
}

/// RESTORE of a payload whose checksum is right, whatever is in it.
#[track_caller]
pub(super) fn is_refused(client: &mut Client, content: &[u8]) {
    let mut payload = [content, &VERSION.to_le_bytes()].concat();
    payload.extend(CHECKSUM.checksum(&payload).to_le_bytes());
    client.cmd([&b"RESTORE"[..], b"k", b"0", &payload]).is_error("ERR Bad data format");
    client.line("EXISTS k").is(0);
}

/// A string of a payload: a short length, and the string.
pub(super) fn string(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text].concat()
}

/// A listpack of short strings.
fn listpack(strings: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for text in strings {
        body.push(0x80 | u8::try_from(text.len()).unwrap());
        body.extend_from_slice(text);
        body.push(u8::try_from(text.len() + 1).unwrap());
    }
    let size = u32::try_from(body.len() + 7).unwrap();
    let count = u16::try_from(strings.len()).unwrap();
    [&size.to_le_bytes()[..], &count.to_le_bytes(), &body, &[0xff]].concat()
}

#[test]
fn d19_serving_a_client_that_is_removed_serves_the_next() {
    let server = Server::start();
    let mut waiting: Vec<Client> = (0..6).map(|_| server.client()).collect();
    let mut client = server.client();
    for (number, blocked) in waiting.iter_mut().enumerate() {
        blocked.send(&request(["BLPOP", "k", "0"]));
        wait_until("it waits", || client.info("blocked_clients") == (number + 1).to_string());
    }
    client.line("CLIENT LIST").ignored();
    // In one step with what ends the wait of some of them.
    for line in ["MULTI", "RPUSH k 1", "CLIENT KILL TYPE normal SKIPME yes", "RPUSH k 2", "EXEC"] {
        client.line(line).ignored();
    }
    wait_until("no client that is gone waits", || client.info("blocked_clients") == "0");
    assert!((0..=2).contains(&client.line("LLEN k").integer()));
    lives(&server, &mut client);
}

#[test]
fn d20_half_a_request_behind_a_wait_is_completed_after_it() {
    let server = Server::start();
    let mut client = server.client();
    let (wait, ping) = (request(["BLPOP", "k", "0"]), request(["PING"]));
    let (first, second) = ping.split_at(6);
    client.send(&[&wait, first].concat());
    let mut other = server.client();
    wait_until("it waits", || other.info("blocked_clients") == "1");
    other.line("RPUSH k v").is(1);
    assert_eq!(client.reply_bytes(), b"*2\r\n$1\r\nk\r\n$1\r\nv\r\n");
    client.send(second);
    client.reply().is_simple("PONG");
    // And with the whole request behind it.
    client.send(&[wait, ping].concat());
    wait_until("it waits", || other.info("blocked_clients") == "1");
    other.line("RPUSH k w").is(1);
    assert_eq!(client.reply_bytes(), b"*2\r\n$1\r\nk\r\n$1\r\nw\r\n");
    client.reply().is_simple("PONG");
}

#[test]
fn d21_a_client_that_waits_for_the_end_of_a_pause_is_not_unblocked() {
    let server = Server::start();
    let (mut client, mut paused) = (server.client(), server.client());
    let id = paused.line("CLIENT ID").integer().to_string();
    client.line("CLIENT PAUSE 500 WRITE").is_ok();
    paused.send(&request(["BLPOP", "k", "0"]));
    wait_until("it waits", || client.info("blocked_clients") == "1");
    client.cmd(["CLIENT", "UNBLOCK", &id]).is(0);
    client.line("CLIENT UNPAUSE").is_ok();
    // Whether it waits by then or not.
    client.line("RPUSH k v").is(1);
    assert_eq!(paused.reply_bytes(), b"*2\r\n$1\r\nk\r\n$1\r\nv\r\n");
}

#[test]
fn f2_a_zipmap_with_a_long_form_of_a_short_length_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    is_refused(&mut client, b"\x09\x18\x02\xfe\x03\0\0\0abc\x03\0def\x03ghi\x03\0jkl\xff");
    for zipmap in
        [&b"\x01\xfe\xff\xff\xff\xffab\xff"[..], b"\x01\x01a\xfe\xff\xff\xff\xff\0b\xff", b"\x02\x01a"]
    {
        is_refused(&mut client, &[&[9][..], &string(zipmap)].concat());
    }
    lives(&server, &mut client);
}

#[test]
fn f5_a_score_that_is_no_number_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    is_refused(&mut client, &[&[17][..], &string(&listpack(&[b"a", b"nan"]))].concat());
    is_refused(&mut client, &[&[17][..], &string(&listpack(&[b"a", b"x"]))].concat());
    is_refused(&mut client, b"\x03\x01\x01a\xfd");
    is_refused(&mut client, b"\x03\x01\x01a\x03nan");
    is_refused(&mut client, &[&b"\x05\x01\x01a"[..], &f64::NAN.to_le_bytes()].concat());
    lives(&server, &mut client);
}

#[test]
fn f6_a_member_that_comes_twice_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    is_refused(&mut client, &[&[17][..], &string(&listpack(&[b"a", b"1", b"a", b"2"]))].concat());
    let score = 1.5_f64.to_le_bytes();
    is_refused(&mut client, &[&b"\x05\x02\x01a"[..], &score, b"\x01a", &score].concat());
    lives(&server, &mut client);
}

#[test]
fn f7_a_field_that_comes_twice_and_half_a_pair_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    is_refused(&mut client, b"\x04\x02\x01a\x01b\x01a\x01c");
    is_refused(&mut client, &[&[16][..], &string(&listpack(&[b"a", b"b", b"a", b"c"]))].concat());
    is_refused(&mut client, &[&[16][..], &string(&listpack(&[b"a", b"b", b"c"]))].concat());
    is_refused(&mut client, b"\x02\x02\x01a\x01a");
    is_refused(&mut client, &[&[20][..], &string(&listpack(&[b"a", b"a"]))].concat());
    lives(&server, &mut client);
}

#[test]
fn f9_an_intset_that_lies_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    client.line("CONFIG SET set-max-intset-entries 9223372036854775807").is_ok();
    for intset in [
        &b"\x02\0\0\0\xff\xff\xff\xff\x01\0"[..],
        b"\x02\0\0\0\x02\0\0\0\x02\0\x01\0",
        b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0",
        b"\x03\0\0\0\x01\0\0\0\x01\0\0",
        b"\x02\0\0\0\0\0\0\0",
        b"\x02\0\0\0\x01\0\0\0\x01",
    ] {
        is_refused(&mut client, &[&[11][..], &string(intset)].concat());
    }
    let fill = "for i = 1, 100 do local t = {} for j = 1, 1000 do t[j] = i * 1000 + j end \
                redis.call('SADD', KEYS[1], unpack(t)) end return redis.call('SCARD', KEYS[1])";
    client.cmd(["EVAL", fill, "1", "s"]).is(100_000);
    lives(&server, &mut client);
}

#[test]
fn g1_a_field_is_not_made_before_its_increment_is_valid() {
    let server = Server::start();
    let mut client = server.client();
    client.line("HSET h old 1").is(1);
    for increment in ["nan", "inf", "+inf", "-inf", "x"] {
        for field in ["new", "old"] {
            let reply = client.cmd(["HINCRBYFLOAT", "h", field, increment]).reply();
            assert!(matches!(reply, Reply::Error(_)), "{increment}: {reply}");
        }
        assert!(matches!(client.cmd(["HINCRBYFLOAT", "none", "f", increment]).reply(), Reply::Error(_)));
    }
    client.line("HGETALL h").is(Reply::Array(vec!["old".into(), "1".into()]));
    client.line("EXISTS none").is(0);
}

#[test]
fn g2_the_smallest_count_is_out_of_range() {
    let mut client = Server::start().into_client();
    client.line("HSET h f v").is(1);
    client.line("ZADD z 1 m").is(1);
    for line in
        ["HRANDFIELD h -9223372036854775808 WITHVALUES", "ZRANDMEMBER z -9223372036854775808 WITHSCORES"]
    {
        let reply = client.line(line).reply().to_string();
        assert!(reply.contains("value is out of range"), "{line}: {reply}");
    }
}

#[test]
fn g3_counts_beyond_what_a_reply_can_announce_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    for line in ["SADD k m", "HSET h f v", "ZADD z 1 m"] {
        client.line(line).is(1);
    }
    let before = server.resident_bytes();
    for count in
        ["-9223372036854775808", "-9223372036854775807", "-4611686018427387905", "-4611686018427387904"]
    {
        for line in ["SRANDMEMBER k", "HRANDFIELD h", "ZRANDMEMBER z"] {
            let reply = client.line(&format!("{line} {count}")).reply();
            assert!(matches!(reply, Reply::Error(_)), "{line} {count}");
        }
    }
    wait_until("memory is given back", || server.resident_bytes() < before + (64 << 20));
    lives(&server, &mut client);
}

#[test]
fn g18_a_number_of_keys_that_overflows_is_an_error() {
    let mut client = Server::start().into_client();
    for count in ["1073741825", "9223372036854775807", "0", "-1", "18446744073709551617", "x"] {
        for line in [
            "ZUNIONSTORE d % k",
            "ZINTERSTORE d % k",
            "ZDIFFSTORE d % k",
            "ZUNION % k",
            "ZINTER % k",
            "ZDIFF % k",
            "ZINTERCARD % k",
            "SINTERCARD % k",
            "LMPOP % k LEFT",
            "ZMPOP % k MIN",
            "BLMPOP 1 % k LEFT",
            "BZMPOP 1 % k MIN",
        ] {
            let line = line.replace('%', count);
            let reply = client.line(&line).reply();
            assert!(matches!(reply, Reply::Error(_)), "{line}: {reply}");
            let keys = client.line(&format!("COMMAND GETKEYS {line}")).reply();
            let names_one = keys == Reply::Array(vec!["d".into()]);
            assert!(matches!(keys, Reply::Error(_)) || names_one, "{line}: {keys}");
        }
    }
}

#[test]
fn g19_counts_and_indexes_at_the_ends_of_64_bits_do_not_overflow() {
    const MIN: &str = "-9223372036854775808";
    const MAX: &str = "9223372036854775807";
    let server = Server::start();
    let mut client = server.client();
    for line in [
        "LINDEX l %",
        "LRANGE l % %",
        "LRANGE l % 0",
        "LRANGE l 0 %",
        "LTRIM t % %",
        "LTRIM t 0 %",
        "LREM l % x",
        "LPOS l a RANK %",
        "LPOS l a COUNT %",
        "LPOS l a MAXLEN %",
        "LSET l % x",
        "LPOP p %",
        "RPOP p %",
        "SPOP s %",
        "SRANDMEMBER s %",
        "ZRANGE z % %",
        "ZREVRANGE z % %",
        "ZREMRANGEBYRANK y % %",
        "ZPOPMIN y %",
        "ZPOPMAX y %",
        "ZRANGEBYSCORE z -inf +inf LIMIT % %",
        "ZRANGEBYLEX z - + LIMIT % %",
        "HRANDFIELD h 1",
        "LMPOP 1 p LEFT COUNT %",
    ] {
        for fill in [
            "RPUSH l a b c",
            "RPUSH t a b c",
            "RPUSH p a b c",
            "SADD s a b c",
            "HSET h f v",
            "ZADD z 1 a 2 b",
            "ZADD y 1 a 2 b",
        ] {
            client.line(fill).ignored();
        }
        for number in [MIN, MAX] {
            client.line(&line.replace('%', number)).ignored();
            lives(&server, &mut client);
        }
    }
    client.line("DEL l").ignored();
    client.line("RPUSH l a b c").is(3);
    client.cmd(["LRANGE", "l", MIN, MAX]).is(Reply::Array(vec!["a".into(), "b".into(), "c".into()]));
}

/// A sparse HyperLogLog with these registers.
fn sparse(registers: &[u8]) -> Vec<u8> {
    [&b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80"[..], registers].concat()
}

/// What all commands about HyperLogLogs reply if the key `k` is one of the arguments.
#[track_caller]
fn pf_is_refused(client: &mut Client) {
    for line in ["PFADD k a", "PFCOUNT k", "PFCOUNT k h", "PFMERGE d k", "PFMERGE k h", "PFDEBUG TODENSE k"] {
        let reply = client.line(line).reply();
        let Reply::Error(text) = &reply else { panic!("{line} was answered {reply:?}") };
        assert!(text.starts_with("INVALIDOBJ ") || text.starts_with("WRONGTYPE "), "{line}: {text}");
    }
}

#[test]
fn g7_a_string_that_only_looks_dense_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    client.line("PFADD h a b c").is(1);
    for (offset, bytes) in [("4", &b"\0"[..]), ("0", b"HYLl"), ("4", b"\x02"), ("4", b"\xff")] {
        client.line("DEL k").ignored();
        client.line("PFADD k a b c").is(1);
        client.cmd([&b"SETRANGE"[..], b"k", offset.as_bytes(), bytes]).ignored();
        pf_is_refused(&mut client);
    }
    client.line("DEL k").is(1);
    client.line("PFADD k a").is(1);
    client.line("PFDEBUG TODENSE k").is(1);
    client.line("APPEND k x").is(12_305);
    pf_is_refused(&mut client);
    for bytes in [12_303, 6_000, 16, 15, 4, 0] {
        let value = [&b"HYLL"[..], &[0; 12_300]].concat();
        client.cmd([&b"SET"[..], b"k", &value[..bytes]]).is_ok();
        pf_is_refused(&mut client);
    }
    // Registers that no hash makes: an answer, though no good one.
    client
        .cmd([&b"SET"[..], b"k", &[&b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80"[..], &[0xff; 12_288]].concat()])
        .is_ok();
    client.line("PFADD k a").is(0);
    client.line("PFCOUNT k").ignored();
    client.line("PFMERGE d k h").is_ok();
    lives(&server, &mut client);
}

#[test]
fn g8_runs_beyond_the_last_register_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    client.line("PFADD h a b c").is(1);
    for registers in [
        &b""[..],
        b"\x7f",
        b"\x7f\xfe",
        b"\x7f\xff\x80",
        b"\x7f\xff\0",
        &b"\x7f\xff".repeat(1000),
        &b"\x83".repeat(4095),
        &b"\x83".repeat(4097),
        &b"\x40\x00".repeat(16_385),
        &b"\xff".repeat(30_000),
    ] {
        client.cmd([&b"SET"[..], b"k", &sparse(registers)]).is_ok();
        for line in [
            "PFCOUNT k",
            "PFCOUNT k h",
            "PFMERGE d k",
            "PFMERGE k h",
            "PFDEBUG TODENSE k",
            "PFDEBUG GETREG k",
        ] {
            client.line(line).is_error("INVALIDOBJ Corrupted HLL object detected");
        }
        // As in Redis, an element may find its register in front of the damage. Nothing is mended by that.
        for element in 0..50 {
            client.line(&format!("PFADD k {element}")).ignored();
        }
        client.line("PFDEBUG DECODE k").ignored();
        client.line("PFCOUNT k h").is_error("INVALIDOBJ Corrupted HLL object detected");
        lives(&server, &mut client);
    }
    // As many runs as there can be: the same registers in another form.
    client.cmd([&b"SET"[..], b"k", &sparse(&b"\x40\x00".repeat(16_384))]).is_ok();
    client.line("PFCOUNT k").is(0);
    client.line("PFADD k a b").is(1);
    client.line("PFCOUNT k").is(2);
}

#[test]
fn g9_g10_a_string_that_is_too_long_is_refused_unread() {
    let server = Server::start();
    let mut client = server.client();
    client.line("PFADD h a b c").is(1);
    let registers = [&b"\x7f\xff\x3f".repeat(5_000_000)[..], b"\x80"].concat();
    client.cmd([&b"SET"[..], b"k", &sparse(&registers)]).is_ok();
    pf_is_refused(&mut client);
    client.line("PFDEBUG DECODE k").is_error("INVALIDOBJ Corrupted HLL object detected");
    lives(&server, &mut client);
}

#[test]
fn e4_a_search_writes_only_where_it_may() {
    let server = Server::start();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.line("GEOADD ok:g 1 1 a").is(1);
    admin.line("SET secret s").is_ok();
    admin.line("ACL SETUSER limited on nopass ~ok:* +@all").is_ok();
    client.line("AUTH limited any").is_ok();
    let refused = "NOPERM No permissions to access a key";
    for form in ["GEORADIUS ok:g 1 1 9 km", "GEORADIUSBYMEMBER ok:g a 9 km"] {
        for target in [
            "STORE secret",
            "STORE ok:d STORE secret",
            "STORE ok:d STOREDIST secret",
            "STOREDIST ok:d ASC STORE secret",
            "COUNT 1 STORE secret",
            "STORE STORE STORE secret",
        ] {
            client.line(&format!("{form} {target}")).is_error(refused);
        }
        client.line(&format!("{form} STORE ok:d")).is(1);
        // A value that looks like an option.
        client
            .line(&format!("{form} COUNT STORE secret"))
            .is_error("ERR value is not an integer or out of range");
    }
    client.line("GEOSEARCHSTORE secret ok:g FROMLONLAT 1 1 BYRADIUS 9 km").is_error(refused);
    client.line("GEOSEARCHSTORE ok:d secret FROMLONLAT 1 1 BYRADIUS 9 km").is_error(refused);
    admin.line("GET secret").is("s");
    lives(&server, &mut client);
}

#[test]
fn g20_elements_whose_lengths_cross_their_form_stay_what_they_are() {
    let mut client = Server::start().into_client();
    let mut random = fastrand::Rng::with_seed(20);
    let mut model: Vec<String> = Vec::new();
    for step in 0..400 {
        let element = char::from(b'a' + (step % 26) as u8).to_string().repeat(random.usize(245..265));
        match random.usize(..4) {
            0 if !model.is_empty() => {
                let at = random.usize(..model.len());
                client.cmd(["LSET", "l", &at.to_string(), &element]).is_ok();
                model[at] = element;
            }
            1 if model.len() > 3 => {
                client.line("LPOP l").is(model.remove(0).as_str());
            }
            _ => {
                client.cmd(["RPUSH", "l", &element]).is(model.len() as i64 + 1);
                model.push(element);
            }
        }
        if step % 20 == 0 {
            let expected = model.iter().map(|element| Reply::from(element.as_str())).collect();
            client.line("LRANGE l 0 -1").is(Reply::Array(expected));
        }
    }
}

#[test]
fn g24_limits_of_packed_forms_may_be_as_large_as_any_number() {
    let server = Server::start();
    let mut client = server.client();
    for parameter in [
        "hash-max-listpack-entries",
        "hash-max-listpack-value",
        "set-max-intset-entries",
        "set-max-listpack-entries",
        "set-max-listpack-value",
        "zset-max-listpack-entries",
        "zset-max-listpack-value",
        "stream-node-max-entries",
        "stream-node-max-bytes",
    ] {
        client.cmd(["CONFIG", "SET", parameter, "9223372036854775807"]).is_ok();
    }
    client.line("CONFIG SET list-max-listpack-size 2147483647").is_ok();
    let long = "x".repeat(1 << 20);
    for (command, fill) in [
        ("HSET", "t[2 * j - 1], t[2 * j] = 'f' .. i * 1000 + j, j"),
        ("SADD", "t[j] = 'm' .. i * 1000 + j"),
        ("RPUSH", "t[j] = i * 1000 + j"),
        ("ZADD", "t[2 * j - 1], t[2 * j] = j, 'm' .. i * 1000 + j"),
        ("XADD", "t[1], t[2 * j], t[2 * j + 1] = '*', 'f', j"),
    ] {
        let script = format!(
            "for i = 1, 3 do local t = {{}} for j = 1, 1000 do {fill} end redis.call('{command}', KEYS[1], unpack(t)) end"
        );
        client.cmd(["EVAL", &script, "1", command]).ignored();
        let longest: &[&str] = match command {
            "HSET" => &[&long, &long],
            "XADD" => &["*", "f", &long],
            _ => &["1", &long],
        };
        client.cmd([&[command, command][..], longest].concat()).ignored();
        lives(&server, &mut client);
        client.cmd(["DEL", command]).is(1);
    }
}
