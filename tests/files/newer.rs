//! Commands and options that Redis has since 8.8 and 8.10.

use support::client::{Client, request};
use support::folder::Folder;
use support::log::ALWAYS;
use support::replies::talk;
use support::server::{Server, wait_until};

#[test]
fn a_counter_stays_within_its_bounds() {
    let mut client = Server::start().into_client();
    talk(
        &mut client,
        &[
            ("INCREX n", "[(integer) 1, (integer) 1]"),
            ("INCREX n BYINT 5 UBOUND 5", "[(integer) 1, (integer) 0]"),
            ("INCREX n BYINT 5 UBOUND 5 SATURATE", "[(integer) 5, (integer) 4]"),
            ("INCREX n BYINT -9 LBOUND -2 SATURATE", "[(integer) -2, (integer) -7]"),
            ("INCREX absent BYINT 9 UBOUND 5", "[(integer) 0, (integer) 0]"),
            ("EXISTS absent", "(integer) 0"),
            ("SET n 9223372036854775807", "OK"),
            ("INCREX n", "[(integer) 9223372036854775807, (integer) 0]"),
            ("INCREX n SATURATE", "[(integer) 9223372036854775807, (integer) 0]"),
            // The step from one end to the other is no integer of 64 bits.
            ("INCREX n UBOUND -9223372036854775808 SATURATE", "(error) ERR applied increment would overflow"),
            ("INCREX n LBOUND 2 UBOUND 1", "(error) ERR LBOUND can't be greater than UBOUND"),
            ("INCREX n BYINT 1.5", "(error) ERR Increment is not an integer or out of range"),
            ("INCREX n LBOUND x", "(error) ERR LBOUND is not an integer or out of range"),
            ("INCREX n BYFLOAT 1 UBOUND x", "(error) ERR UBOUND is not a valid float"),
            ("INCREX n SATURATE SATURATE", "(error) ERR syntax error"),
            ("INCREX n BYINT", "(error) ERR syntax error"),
            ("INCREX n BYINT 1 BYFLOAT 1", "(error) ERR syntax error"),
            ("INCREX n ENX", "(error) ERR ENX flag requires an expiration"),
            ("INCREX n PERSIST EX 5", "(error) ERR syntax error"),
            ("INCREX n PERSIST ENX", "(error) ERR syntax error"),
            ("INCREX n EX 0", "(error) ERR invalid expire time in 'increx' command"),
            ("SET f 1.5", "OK"),
            ("INCREX f BYFLOAT 0.25", "[\"1.75\", \"0.25\"]"),
            ("INCREX f BYFLOAT 9 UBOUND 2.5", "[\"1.75\", \"0\"]"),
            ("INCREX f BYFLOAT 9 UBOUND 2.5 SATURATE", "[\"2.5\", \"0.75\"]"),
            ("INCREX f BYINT 1", "(error) ERR value is not an integer or out of range"),
            ("INCREX f BYFLOAT inf", "(error) ERR BYFLOAT increment cannot be Infinity"),
            ("INCREX f BYFLOAT x", "(error) ERR Increment is not a valid float"),
            ("SET i inf", "OK"),
            ("INCREX i BYFLOAT 1", "(error) ERR value cannot be Infinity"),
            ("SET i hello", "OK"),
            ("INCREX i BYFLOAT 1", "(error) ERR value is not a valid float"),
            ("RPUSH list a", "(integer) 1"),
            ("INCREX list", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
            // When it expires.
            ("INCREX t EX 100 ENX", "[(integer) 1, (integer) 1]"),
            ("INCREX t EX 7 ENX", "[(integer) 2, (integer) 1]"),
            ("TTL t", "(integer) 100"),
            ("INCREX t EX 7", "[(integer) 3, (integer) 1]"),
            ("INCREX t", "[(integer) 4, (integer) 1]"),
            ("TTL t", "(integer) 7"),
            // What is not done does not touch it.
            ("INCREX t EX 70 UBOUND 4", "[(integer) 4, (integer) 0]"),
            ("TTL t", "(integer) 7"),
            ("INCREX t PERSIST", "[(integer) 5, (integer) 1]"),
            ("TTL t", "(integer) -1"),
        ],
    );
    client.line("HELLO 3").ignored();
    client.send(&request(["INCREX", "f", "BYFLOAT", "1"]));
    assert_eq!(client.reply_bytes(), b"*2\r\n,3.5\r\n,1\r\n");
}

#[test]
fn members_of_unions_and_differences_are_counted() {
    let mut client = Server::start().into_client();
    talk(
        &mut client,
        &[
            ("SADD a 1 2 3 x", "(integer) 4"),
            ("SADD b 3 4 x", "(integer) 3"),
            ("SUNIONCARD 3 a b absent", "(integer) 5"),
            ("SUNIONCARD 2 a b LIMIT 3", "(integer) 3"),
            ("SUNIONCARD 2 a b APPROX LIMIT 0", "(integer) 5"),
            ("SUNIONCARD 2 a b LIMIT 2 APPROX", "(integer) 2"),
            ("SDIFFCARD 2 a b", "(integer) 2"),
            ("SDIFFCARD 2 absent b", "(integer) 0"),
            ("SDIFFCARD 2 a b LIMIT 1", "(integer) 1"),
            ("SDIFFCARD 2 a b APPROX", "(error) ERR syntax error"),
            ("SUNIONCARD 2 a b LIMIT -1", "(error) ERR LIMIT can't be negative"),
            ("SUNIONCARD 0 a b", "(error) ERR numkeys should be greater than 0"),
            ("SUNIONCARD 3 a b", "(error) ERR Number of keys can't be greater than number of args"),
            ("COMMAND GETKEYS SDIFFCARD 2 a b LIMIT 1", "[\"a\", \"b\"]"),
        ],
    );
    let all: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    for part in all.chunks(5000) {
        client.cmd(["SADD", "many"].into_iter().chain(part.iter().map(String::as_str))).is(5000);
    }
    let count = client.line("SUNIONCARD 2 many a APPROX").integer();
    assert!((19_000..21_000).contains(&count), "{count}");
    client.line("PFADD p x").is(1);
    client.cmd(["PFADD", "p"].into_iter().chain(all.iter().map(String::as_str))).is(1);
    client.line("PFCOUNT p").is(count);
}

#[test]
fn inputs_that_have_a_member_are_counted() {
    let mut client = Server::start().into_client();
    talk(
        &mut client,
        &[
            ("ZADD a 5 x 7 y", "(integer) 2"),
            ("ZADD b -3 y 9 z", "(integer) 2"),
            ("SADD s y", "(integer) 1"),
            ("ZUNION 3 a b s AGGREGATE COUNT WITHSCORES", "[\"x\", \"1\", \"z\", \"1\", \"y\", \"3\"]"),
            ("ZUNIONSTORE u 2 a b WEIGHTS 10 0.5 AGGREGATE count", "(integer) 3"),
            ("ZRANGE u 0 -1 WITHSCORES", "[\"z\", \"0.5\", \"x\", \"10\", \"y\", \"10.5\"]"),
            ("ZINTER 2 a b AGGREGATE COUNT WITHSCORES", "[\"y\", \"2\"]"),
            ("ZINTERSTORE i 2 a b WEIGHTS 2 3 AGGREGATE COUNT", "(integer) 1"),
            ("ZSCORE i y", "\"5\""),
            ("ZUNION 2 a b AGGREGATE COUNTS", "(error) ERR syntax error"),
        ],
    );
}

#[test]
fn several_elements_move_in_either_order_and_the_log_has_them() {
    let folder = Folder::new("newer-moving");
    let lists = ["LRANGE l 0 -1", "LRANGE m 0 -1", "LRANGE k 0 -1"];
    let before = {
        let mut client = folder.serve(ALWAYS).into_client();
        talk(
            &mut client,
            &[
                ("RPUSH l 1 2 3 4 5 6 7 8", "(integer) 8"),
                ("LMOVEM l m LEFT LEFT", "[\"1\"]"),
                ("LMOVEM l m LEFT LEFT COUNT 2 OBO", "[\"3\", \"2\"]"),
                ("LMOVEM l m RIGHT LEFT COUNT 2 BULK", "[\"7\", \"8\"]"),
                ("LMOVEM l m RIGHT RIGHT EXACTLY 2 OBO", "[\"6\", \"5\"]"),
                ("LRANGE m 0 -1", "[\"7\", \"8\", \"3\", \"2\", \"1\", \"6\", \"5\"]"),
                ("LMOVEM l m LEFT RIGHT EXACTLY 2 BULK", "(nil)"),
                ("LMOVEM l m LEFT RIGHT COUNT 2 BULK", "[\"4\"]"),
                ("EXISTS l", "(integer) 0"),
                ("LMOVEM l m LEFT RIGHT COUNT 2 BULK", "[]"),
                ("LMOVEM l m LEFT RIGHT EXACTLY 2 BULK", "(nil)"),
                // Within one list.
                ("RPUSH k a b c d", "(integer) 4"),
                ("EXPIRE k 1000", "(integer) 1"),
                ("LMOVEM k k LEFT LEFT EXACTLY 2 OBO", "[\"b\", \"a\"]"),
                ("LMOVEM k k LEFT LEFT EXACTLY 2 BULK", "[\"b\", \"a\"]"),
                ("LMOVEM k k RIGHT RIGHT COUNT 9 OBO", "[\"d\", \"c\", \"a\", \"b\"]"),
                ("LMOVEM k k LEFT RIGHT COUNT 3 BULK", "[\"d\", \"c\", \"a\"]"),
                ("LRANGE k 0 -1", "[\"b\", \"d\", \"c\", \"a\"]"),
                ("LMOVEM k k RIGHT LEFT COUNT 4 OBO", "[\"b\", \"d\", \"c\", \"a\"]"),
                ("LMOVEM k k LEFT LEFT COUNT 0 OBO", "(error) ERR count should be greater than 0"),
                ("LMOVEM k k LEFT LEFT COUNT 1", "(error) ERR syntax error"),
                ("LMOVEM k k LEFT UP", "(error) ERR syntax error"),
                ("SET s v", "OK"),
                (
                    "LMOVEM k s LEFT LEFT",
                    "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
                ),
                ("LLEN k", "(integer) 4"),
            ],
        );
        lists.map(|line| client.line(line).reply().to_string())
    };
    let mut client = folder.serve(ALWAYS).into_client();
    assert_eq!(lists.map(|line| client.line(line).reply().to_string()), before);
    assert!(client.line("TTL k").integer() > 900);
}

#[test]
fn a_client_waits_until_there_are_enough_elements() {
    let server = Server::start();
    let (mut client, mut many, mut few) = (server.client(), server.client(), server.client());
    let waits = |client: &mut Client, count: &str| client.info("blocked_clients") == count;
    many.send(&request("BLMOVEM l m LEFT RIGHT 0 EXACTLY 3 BULK".split(' ')));
    wait_until("the first waits", || waits(&mut client, "1"));
    few.send(&request("BLMOVEM l m LEFT LEFT 0 COUNT 2 OBO".split(' ')));
    wait_until("the second waits", || waits(&mut client, "2"));
    // Too few for the first, who does not stand in the way of the second.
    client.line("RPUSH l 1 2").is(2);
    assert_eq!(few.reply().reply().to_string(), "[\"2\", \"1\"]");
    client.line("RPUSH l 3 4").is(2);
    client.line("RPUSH l 5 6").is(4);
    assert_eq!(many.reply().reply().to_string(), "[\"3\", \"4\", \"5\"]");
    client.line("LRANGE m 0 -1").reply().to_string();
    assert_eq!(client.line("LRANGE l 0 -1").reply().to_string(), "[\"6\"]");
    talk(
        &mut client,
        &[
            ("BLMOVEM l m LEFT RIGHT 0.01 EXACTLY 2 BULK", "(nil)"),
            ("MULTI", "OK"),
            ("BLMOVEM l m LEFT RIGHT 0 EXACTLY 2 BULK", "QUEUED"),
            ("EXEC", "[(nil)]"),
            ("BLMOVEM l m LEFT RIGHT 0 EXACTLY 1 BULK", "[\"6\"]"),
            ("BLMOVEM l m LEFT RIGHT x EXACTLY 1 BULK", "(error) ERR timeout is not a float or out of range"),
        ],
    );
}

/// A hash whose values stand in a listpack behind the number of a template: 5 and 6 for the template 7.
const BY_NUMBER: &[u8] = b"\x0d\x0d\0\0\0\x03\0\x07\x01\x05\x01\x06\x01\xff";
/// The template of the fields `age` and `name`, as a payload has it: packed, or one behind the other.
const TEMPLATES: [&[u8]; 2] =
    [b"\0\x12\x12\0\0\0\x02\0\x83age\x04\x84name\x05\xff", b"\x01\x02\x03age\x04name"];

#[test]
fn hashes_of_a_template_are_plain_hashes_here() {
    let folder = Folder::new("newer-templates");
    let hashes = [b"\xf2\x07\x02\x03age\x04name\x20\x01a\x07\x0242\x03ada\x1e\x01b", BY_NUMBER].concat();
    let file = [b"REDIS0015\xfe\0", &hashes[..], b"\0\x05plain\x01v\xff", &[0; 8]].concat();
    std::fs::write(folder.file("dump.rdb"), &file).unwrap();
    let mut client = folder.serve(&[]).into_client();
    talk(
        &mut client,
        &[
            ("HGETALL a", "[\"age\", \"42\", \"name\", \"ada\"]"),
            ("HGETALL b", "[\"age\", \"5\", \"name\", \"6\"]"),
            ("HSET b city x", "(integer) 1"),
            ("GET plain", "\"v\""),
        ],
    );
    let mut restore = |kind: u8, value: &[&[u8]]| {
        let payload = [&[kind], &value.concat()[..], &15_u16.to_le_bytes(), &[0; 8]].concat();
        client.cmd([&b"RESTORE"[..], b"r", b"0", &payload, b"REPLACE"]).reply().to_string()
    };
    for template in TEMPLATES {
        assert_eq!(restore(29, &[template, BY_NUMBER]), "OK");
        assert_eq!(restore(31, &[template, b"\x015\x016"]), "OK");
        // A template of a file, fields without values, and values without fields.
        for (kind, value) in [
            (30, &[BY_NUMBER][..]),
            (32, &[b"\x07\x015\x016"]),
            (29, &[template, b"\x0b\x0b\0\0\0\x02\0\x07\x01\x05\x01\xff"]),
            (29, &[template, b"\x0f\x0f\0\0\0\x04\0\x07\x01\x05\x01\x06\x01\x06\x01\xff"]),
            (29, &[template, b"\x07\x07\0\0\0\0\0\xff"]),
            (29, &[template, b"\x0e\x0e\0\0\0\x03\0\x81x\x02\x05\x01\x06\x01\xff"]),
            (31, &[b"\x01\0", b""]),
            (31, &[b"\x02\x01", b"\x01f\x015"]),
            (31, &[b"\x01\x02\x01f\x01f", b"\x015\x016"]),
            (31, &[template, b"\x015"]),
        ] {
            assert_eq!(restore(kind, value), "(error) ERR Bad data format", "{kind} {value:?}");
        }
    }
    talk(&mut client, &[("HGETALL r", "[\"age\", \"5\", \"name\", \"6\"]")]);
}

#[test]
fn files_of_newer_servers_are_loaded_or_named() {
    let folder = Folder::new("newer-files");
    let path = folder.file("dump.rdb");
    for signature in ["REDIS0013", "REDIS0016", "VALKEY080", "VALKEY081"] {
        std::fs::write(&path, [signature.as_bytes(), b"\xfe\0\0\x01k\x01v\xff", &[0; 8]].concat()).unwrap();
        folder.serve(&[]).client().line("GET k").is("v");
    }
    let redis = |content: &[u8]| [&b"REDIS0016\xfe\0"[..], content, b"\xff", &[0; 8]].concat();
    let envelope = |head: [u8; 4]| [&b"VKCS"[..], &head, b"\x04\x22\x4d\x18 and more"].concat();
    for (file, why) in [
        (redis(b"\x21\x01k\0"), "key 'k' in database 0 is a bitmap of Redis 8.12, which is not supported"),
        (redis(b"\x1c\x01k\0"), "key 'k' in database 0 is an array, which is not supported"),
        (redis(b"\x20\x01k\x05\x011"), "Invalid hash template ID"),
        (redis(b"\xf2\x05\0"), "a template of hashes has zero fields"),
        (redis(b"\xf2\x05\x01\x01f\xf2\x05\x01\x01f"), "Duplicate hash template ID"),
        (redis(b"\xf2\x05\xbf"), "Unknown length encoding"),
        (
            b"VALKEY081\xfe\0\x17\x01k\0".to_vec(),
            "key 'k' in database 0 is a hash of paths, which is not supp",
        ),
        (
            envelope([1, 1, 1, 0]),
            "compressed as a whole with LZ4, as Valkey 9.2 can do it; Keyfast reads it when",
        ),
        (envelope([1, 2, 0, 0]), "'tail -c +9 FILE | zstd -d > NEW'"),
        (envelope([1, 9, 0, 0]), "compressed as a whole by an unknown codec (9)"),
        (envelope([2, 1, 0, 0]), "compressed as a whole in an unknown version (2)"),
        (envelope([1, 1, 1, 1]), "the file is a compressed stream for a replica, not a snapshot"),
        (b"VKCS\x01".to_vec(), "Unexpected EOF reading RDB file"),
    ] {
        std::fs::write(&path, &file).unwrap();
        let text = support::log::refused(folder.command().args(["--port", "0", "--bind", "127.0.0.1"]));
        assert!(text.contains(why), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), file);
    }
}
