//! Hashes, sets, lists and sorted sets, beyond what the observed conversations hold. Random comparisons with
//! redis-server (`tests/clients/compare`) have found these cases.

use crate::server::Server;

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

#[test]
fn a_scan_of_a_small_sorted_set_has_whole_scores_as_integers() {
    let mut client = Server::start().into_client();
    client.line("ZADD k 4611686018427387904 a 9223372036854775808 b 0.5 c -1e17 d").is(4);
    let scanned = client.line("ZSCAN k 0").reply().to_string();
    for score in ["-100000000000000000", "0.5", "4611686018427387904", "9.2233720368547758e+18"] {
        assert!(scanned.contains(&format!("\"{score}\"")), "{scanned}");
    }
    client.line("ZSCORE k d").is("-1e+17");
}
