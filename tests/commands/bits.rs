//! Strings as bits: flags of many users, counters of a few bits each, and where Redis draws the lines.

use support::client::{Client, Reply};
use support::server::Server;

const NOT_AN_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const NOT_A_TYPE: &str =
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";

fn client() -> Client {
    Server::start().into_client()
}

/// The integers that an array must hold; none where there is null.
#[track_caller]
fn integers(client: &mut Client, line: &str) -> Vec<Option<i64>> {
    let items = client.line(line).items().into_iter();
    let integer = |item| match item {
        Reply::Integer(integer) => Some(integer),
        Reply::Null => None,
        other => panic!("{line} was answered {other:?}"),
    };
    items.map(integer).collect()
}

marked!(also_redis: who_was_here_today_is_a_bit_each);
fn who_was_here_today_is_a_bit_each() {
    let mut client = client();
    for user in ["3", "17", "1000"] {
        client.cmd(["SETBIT", "today", user, "1"]).is(0);
    }
    client.line("SETBIT today 17 1").is(1);
    client.line("GETBIT today 17").is(1);
    client.line("GETBIT today 18").is(0);
    client.line("GETBIT today 4294967295").is(0);
    client.line("BITCOUNT today").is(3);
    client.line("STRLEN today").is(126);
    client.line("SETBIT yesterday 17 1").is(0);
    client.line("BITOP AND both today yesterday").is(126);
    client.line("BITCOUNT both").is(1);
    client.line("BITPOS both 1").is(17);
    client.line("SETBIT today 17 0").is(1);
    client.line("BITCOUNT today").is(2);
}

marked!(also_redis: a_bit_that_is_zero_makes_the_value_long_enough_all_the_same);
fn a_bit_that_is_zero_makes_the_value_long_enough_all_the_same() {
    let mut client = client();
    client.line("SETBIT key 15 0").is(0);
    client.line("GET key").is(&b"\0\0"[..]);
    client.line("OBJECT ENCODING key").is("raw");
    client.line("SETBIT key 15 0").is(0);
    client.line("STRLEN key").is(2);
}

marked!(also_redis: a_refused_bit_changes_nothing);
fn a_refused_bit_changes_nothing() {
    let mut client = client();
    for offset in ["-1", "x", "", "01", "4294967296", "9223372036854775807", "#1"] {
        client.cmd(["SETBIT", "key", offset, "1"]).is_error(NOT_AN_OFFSET);
        client.cmd(["GETBIT", "key", offset]).is_error(NOT_AN_OFFSET);
    }
    for bit in ["2", "-1", "x", "01"] {
        client.cmd(["SETBIT", "key", "0", bit]).is_error("ERR bit is not an integer or out of range");
    }
    client.line("EXISTS key").is(0);
}

marked!(also_redis: the_limit_of_offsets_follows_the_limit_of_values);
fn the_limit_of_offsets_follows_the_limit_of_values() {
    let mut client = client();
    client.line("CONFIG SET proto-max-bulk-len 1mb").is_ok();
    client.line("SETBIT key 8388608 1").is_error(NOT_AN_OFFSET);
    client.line("BITFIELD key SET u8 #1048576 1").is_error(NOT_AN_OFFSET);
    client.line("EXISTS key").is(0);
    client.line("SETBIT key 8388607 1").is(0);
    client.line("STRLEN key").is(1 << 20);
    // An integer may reach beyond the last bit that may be named.
    assert_eq!(integers(&mut client, "BITFIELD key SET u8 8388607 255"), [Some(128)]);
    client.line("STRLEN key").is((1 << 20) + 1);
}

marked!(also_redis: ranges_count_bytes_or_bits_from_either_end);
fn ranges_count_bytes_or_bits_from_either_end() {
    let mut client = client();
    client.line("SET key foobar").is_ok();
    client.line("BITCOUNT key 0 0").is(4);
    client.line("BITCOUNT key 1 1 BYTE").is(6);
    client.line("BITCOUNT key -2 -1").is(7);
    client.line("BITCOUNT key 5 30 BIT").is(17);
    client.line("BITCOUNT key -100 100").is(26);
    client.line("BITCOUNT key -9223372036854775808 9223372036854775807 bit").is(26);
    client.line("BITCOUNT key 4 2").is(0);
    client.line("BITCOUNT key 6 100").is(0);
    // There is no start without an end.
    for start in ["0", "1", "x"] {
        client.line(&format!("BITCOUNT key {start}")).is_error("ERR syntax error");
    }
    client.line("BITCOUNT key 0 1 nibble").is_error("ERR syntax error");
    client.line("BITCOUNT key -1 -2 nibble").is_error("ERR syntax error");
    client.line("BITCOUNT key -1 -2").is(0);
    // The arguments are judged also where the key is absent.
    client.line("BITCOUNT nosuch x y nibble").is_error("ERR value is not an integer or out of range");
}

marked!(also_redis: the_first_zero_may_lie_beyond_the_end);
fn the_first_zero_may_lie_beyond_the_end() {
    let mut client = client();
    client.line("SETBIT ones 15 1").is(0);
    client.line("BITFIELD ones SET u16 0 65535").items();
    client.line("BITPOS ones 0").is(16);
    client.line("BITPOS ones 0 1").is(16);
    // Who says where to stop means it.
    client.line("BITPOS ones 0 0 -1").is(-1);
    client.line("BITPOS ones 0 0 -1 BIT").is(-1);
    client.line("BITPOS ones 1 9 12 BIT").is(9);
    client.line("BITPOS ones 0 2").is(-1);
    client.line("BITPOS nosuch 0").is(0);
    client.line("BITPOS nosuch 1").is(-1);
    client.line("SET empty \"\"").is_ok();
    client.line("BITPOS empty 0").is(-1);
}

marked!(also_redis: bitpos_judges_the_bit_then_how_many_arguments_there_are_then_the_key);
fn bitpos_judges_the_bit_then_how_many_arguments_there_are_then_the_key() {
    let mut client = client();
    client.line("SET key abc").is_ok();
    client.line("BITPOS key 2 x y z w").is_error("ERR The bit argument must be 1 or 0.");
    client.line("BITPOS key x").is_error("ERR value is not an integer or out of range");
    client.line("BITPOS nosuch 1 x y z w").is_error("ERR syntax error");
    client.line("BITPOS key 1 x y z w").is_error("ERR syntax error");
    client.line("BITPOS key 1 x y nibble").is_error("ERR value is not an integer or out of range");
    client.line("BITPOS key 1 0 y nibble").is_error("ERR syntax error");
    client.line("BITPOS key 1 0 y bit").is_error("ERR value is not an integer or out of range");
}

marked!(also_redis: combining_pads_the_shorter_with_zeros);
fn combining_pads_the_shorter_with_zeros() {
    let mut client = client();
    client.line("MSET one abcd other ab").is_ok();
    client.line("BITOP AND target one other").is(4);
    client.line("GET target").is(&b"ab\0\0"[..]);
    client.line("BITOP OR target one other nosuch").is(4);
    client.line("GET target").is("abcd");
    client.line("BITOP XOR target one one other").is(4);
    client.line("GET target").is(&b"ab\0\0"[..]);
    client.line("BITOP NOT one one").is(4);
    client.line("GET one").is(&[!b'a', !b'b', !b'c', !b'd'][..]);
    let refused = "ERR BITOP NOT must be called with a single source key.";
    client.line("BITOP NOT target one other").is_error(refused);
    client.line("BITOP NAND target one other").is_error("ERR syntax error");
}

marked!(also_redis: the_target_of_a_combination_begins_anew);
fn the_target_of_a_combination_begins_anew() {
    let mut client = client();
    client.line("SET source 12").is_ok();
    client.line("SET target old EX 1000").is_ok();
    client.line("BITOP OR target source").is(2);
    client.line("TTL target").is(-1);
    client.line("GET target").is("12");
    client.line("OBJECT ENCODING target").is("raw");
    client.line("BITOP AND target nosuch").is(0);
    client.line("EXISTS target").is(0);
    // A single bit is a change of what is there, which keeps its expiry.
    client.line("SET key old EX 1000").is_ok();
    client.line("SETBIT key 0 1").is(0);
    assert!(client.line("TTL key").integer() > 900);
}

marked!(also_redis: sources_are_read_and_targets_are_not);
fn sources_are_read_and_targets_are_not() {
    let mut client = client();
    client.line("SET one a").is_ok();
    client.line("CONFIG RESETSTAT").is_ok();
    client.line("BITOP OR target one nosuch").is(1);
    assert_eq!((client.info("keyspace_hits"), client.info("keyspace_misses")), ("1".into(), "1".into()));
    client.line("SETBIT one 0 1").is(0);
    client.line("BITFIELD one SET u8 0 1").items();
    assert_eq!((client.info("keyspace_hits"), client.info("keyspace_misses")), ("1".into(), "1".into()));
    client.line("BITFIELD nosuch GET u8 0").items();
    client.line("BITCOUNT one").is(1);
    assert_eq!((client.info("keyspace_hits"), client.info("keyspace_misses")), ("2".into(), "2".into()));
}

marked!(also_redis: counters_of_a_few_bits_overflow_as_they_were_told);
fn counters_of_a_few_bits_overflow_as_they_were_told() {
    let mut client = client();
    let line = "BITFIELD key INCRBY u2 #0 3 OVERFLOW SAT INCRBY u2 #1 9 OVERFLOW FAIL INCRBY u2 #1 1";
    assert_eq!(integers(&mut client, line), [Some(3), Some(3), None]);
    assert_eq!(integers(&mut client, "BITFIELD key INCRBY u2 #0 2 GET u2 #1"), [Some(1), Some(3)]);
    let line =
        "BITFIELD key SET i8 8 -128 INCRBY i8 8 -1 OVERFLOW SAT INCRBY i8 8 1000 OVERFLOW FAIL SET i8 8 200";
    assert_eq!(integers(&mut client, line), [Some(0), Some(127), Some(127), None]);
    let line = "BITFIELD key SET i64 #1 9223372036854775807 INCRBY i64 #1 1 OVERFLOW SAT INCRBY i64 #1 -1";
    assert_eq!(integers(&mut client, line), [Some(0), Some(i64::MIN), Some(i64::MIN)]);
    // A negative value for an unsigned type is a very large one.
    let line = "BITFIELD key OVERFLOW SAT SET u63 200 -1 GET u63 200";
    assert_eq!(integers(&mut client, line), [Some(0), Some(i64::MAX)]);
}

marked!(also_redis: a_value_far_below_its_type_saturates_where_redis_lets_it);
fn a_value_far_below_its_type_saturates_where_redis_lets_it() {
    let mut client = client();
    let line = "BITFIELD key OVERFLOW SAT SET i8 0 -9223372036854775680 GET i8 0";
    assert_eq!(integers(&mut client, line), [Some(0), Some(-128)]);
    let line = "BITFIELD key OVERFLOW SAT SET i8 0 -9223372036854775681 GET i8 0";
    assert_eq!(integers(&mut client, line), [Some(-128), Some(127)]);
    let line = "BITFIELD key OVERFLOW SAT INCRBY i8 0 -9223372036854775808";
    assert_eq!(integers(&mut client, line), [Some(-128)]);
}

marked!(also_redis: reading_makes_no_key_and_failing_to_write_does);
fn reading_makes_no_key_and_failing_to_write_does() {
    let mut client = client();
    assert_eq!(integers(&mut client, "BITFIELD key GET u8 0 GET i64 #9"), [Some(0), Some(0)]);
    assert_eq!(integers(&mut client, "BITFIELD key"), []);
    assert_eq!(integers(&mut client, "BITFIELD key OVERFLOW FAIL"), []);
    client.line("EXISTS key").is(0);
    assert_eq!(integers(&mut client, "BITFIELD key OVERFLOW FAIL SET u1 80 2"), [None]);
    client.line("STRLEN key").is(11);
    assert_eq!(integers(&mut client, "BITFIELD_RO key GET u8 0"), [Some(0)]);
    let refused = "ERR BITFIELD_RO only supports the GET subcommand";
    client.line("BITFIELD_RO key GET u8 0 SET u8 0 1").is_error(refused);
}

marked!(also_redis: a_bitfield_that_is_half_wrong_does_nothing);
fn a_bitfield_that_is_half_wrong_does_nothing() {
    let mut client = client();
    for kind in ["u64", "i65", "i0", "u0", "I8", "i08", "8", "i", "\"\""] {
        client.line(&format!("BITFIELD key SET u8 0 1 GET {kind} 0")).is_error(NOT_A_TYPE);
    }
    for offset in ["-1", "#-1", "#", "##1", "x", "4294967296", "#536870912"] {
        client.line(&format!("BITFIELD key SET u8 0 1 GET u8 {offset}")).is_error(NOT_AN_OFFSET);
    }
    for end in ["GET u8", "SET u8 0", "INCRBY u8 0", "OVERFLOW", "NOSUCH"] {
        client.line(&format!("BITFIELD key SET u8 0 1 {end}")).is_error("ERR syntax error");
    }
    client.line("BITFIELD key SET u8 0 1 OVERFLOW BEND").is_error("ERR Invalid OVERFLOW type specified");
    client.line("BITFIELD key SET u8 0 x").is_error("ERR value is not an integer or out of range");
    client.line("EXISTS key").is(0);
}

marked!(also_redis: a_bitfield_writes_its_key_only_if_it_might);
fn a_bitfield_writes_its_key_only_if_it_might() {
    let mut client = client();
    let mut flags = |operations: &str| {
        client.line(&format!("COMMAND GETKEYSANDFLAGS BITFIELD key {operations}")).reply().to_string()
    };
    for reading in ["", "GET u8 0", "OVERFLOW SAT GET u8 0", "GET u8 set", "OVERFLOW set"] {
        assert_eq!(flags(reading), "[[\"key\", [RO, access]]]", "{reading}");
    }
    for writing in ["SET u8 0 1", "GET u8 0 INCRBY u8 0 1", "NOSUCH", "GET u8", "OVERFLOW", "SET"] {
        assert_eq!(flags(writing), "[[\"key\", [RW, access, update]]]", "{writing}");
    }
}

marked!(also_redis: a_bitfield_that_changes_nothing_is_no_change);
fn a_bitfield_that_changes_nothing_is_no_change() {
    let server = Server::start_with(&["--notify-keyspace-events", "KEA"]);
    let (mut client, mut watcher, mut listener) = (server.client(), server.client(), server.client());
    listener.line("SUBSCRIBE __keyevent@0__:setbit").items();
    client.line("SET k a").is_ok();
    let before = client.info("rdb_changes_since_last_save");
    watcher.line("WATCH k").is_ok();
    for line in [
        "BITFIELD k SET u8 0 97",
        "BITFIELD k INCRBY u8 0 0",
        "BITFIELD k OVERFLOW FAIL INCRBY u8 0 255",
        "BITFIELD k OVERFLOW SAT INCRBY u1 #0 0 GET u8 0",
    ] {
        client.line(line).items();
    }
    assert_eq!(client.info("rdb_changes_since_last_save"), before);
    watcher.line("MULTI").is_ok();
    watcher.line("SET other 1").is_simple("QUEUED");
    assert_eq!(watcher.line("EXEC").reply().to_string(), "[OK]", "it was not overtaken");
    client.line("BITFIELD k SET u8 0 98 SET u8 0 98 INCRBY u8 0 1").items();
    let after = client.info("rdb_changes_since_last_save").parse::<u64>().unwrap();
    assert_eq!(after, before.parse::<u64>().unwrap() + 1 + 2);
    assert_eq!(listener.reply().reply().to_string(), r#"["message", "__keyevent@0__:setbit", "k"]"#);
    // Where the value becomes longer, what is written counts even if it is zero.
    client.line("BITFIELD k SET u8 80 0").items();
    client.line("STRLEN k").is(11);
    assert_eq!(listener.reply().reply().to_string(), r#"["message", "__keyevent@0__:setbit", "k"]"#);
    assert_eq!(client.info("rdb_changes_since_last_save").parse::<u64>().unwrap(), after + 1);
}
