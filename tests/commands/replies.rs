//! Hashes, sets, lists and sorted sets, beyond what the observed conversations hold. Random comparisons with
//! redis-server (`tests/clients/compare`) have found these cases.

use support::server::Server;

#[test]
fn the_keys_of_a_blocking_command_are_checked_before_its_timeout() {
    let mut client = Server::start().into_client();
    for (command, end) in [("BLMPOP", "LEFT"), ("BZMPOP", "MIN")] {
        for (rest, error) in [
            (format!("-1 k {end}"), "ERR numkeys should be greater than 0"),
            ("1 k MIDDLE".to_string(), "ERR syntax error"),
            (format!("1 k {end} COUNT 0"), "ERR count should be greater than 0"),
            (format!("1 k {end}"), "ERR timeout is not a float or out of range"),
        ] {
            client.line(&format!("{command} soon {rest}")).is_error(error);
        }
    }
}

#[test]
fn a_hash_above_a_lowered_limit_is_a_table_as_soon_as_it_changes() {
    let mut client = Server::start().into_client();
    client.line("HSET k a 1 b 2").is(2);
    client.line("CONFIG SET hash-max-listpack-entries 1").is_ok();
    client.line("HSET k a 1").is(0);
    client.line("OBJECT ENCODING k").is("hashtable");
}

#[test]
fn a_direction_is_given_once() {
    let mut client = Server::start().into_client();
    client.line("ZRANGE k 0 -1 REV REV").is_error("ERR syntax error");
    client.line("ZRANGE k 0 -1 REV REV LIMIT x 1").is_error("ERR syntax error");
}

/// As in Redis from 7.2 on, and in Valkey. A large sorted set is scanned with all digits there.
#[test]
fn scores_have_as_few_digits_as_in_newer_servers() {
    let mut client = Server::start().into_client();
    let scores = [
        ("4611686018427387904", "4611686018427387904"),
        ("9223372036854775808", "9223372036854776000"),
        ("0.1", "0.1"),
        ("4.35", "4.35"),
        ("-1e17", "-100000000000000000"),
        ("1e22", "1e+22"),
        ("0.0000001", "1e-7"),
        ("0.00001234", "1.234e-5"),
        // The algorithm misses -857452.3526629372.
        ("-857452.3526629372", "-8.574523526629373e+5"),
        ("inf", "inf"),
    ];
    for (score, printed) in scores {
        client.line("DEL k").ignored();
        client.cmd(["ZADD", "k", score, "m"]).is(1);
        client.line("ZSCORE k m").is(printed);
        client.line("ZADD k INCR 0 m").is(printed);
        let scanned = client.line("ZSCAN k 0").reply().to_string();
        assert_eq!(scanned, format!("[\"0\", [\"m\", \"{printed}\"]]"));
        client
            .cmd(["EVAL", &format!("return redis.call('SET', 'text', {})", score.replace("inf", "1/0")), "0"])
            .is_ok();
        client.line("GET text").is(printed);
    }
    client.line("CONFIG SET zset-max-listpack-entries 0").is_ok();
    client.line("ZADD large 0.1 m").is(1);
    assert_eq!(client.line("ZSCAN large 0").reply().to_string(), "[\"0\", [\"m\", \"0.10000000000000001\"]]");
    client.line("HELLO 3").ignored();
    client.send(b"ZSCORE large m\r\n");
    assert_eq!(client.reply_bytes(), b",0.1\r\n");
}
