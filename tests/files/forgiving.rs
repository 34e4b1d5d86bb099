//! Files with values that are not as they should be. Redis loads them without a look, so a data folder may
//! have them, and a server must start with it. What a client restores is looked at closely.

use std::fs;

use support::client::Client;
use support::folder::Folder;
use support::replies::talk;
use support::server::Server;

/// A length below 16,384.
fn length(length: usize) -> Vec<u8> {
    match u8::try_from(length) {
        Ok(short @ 0..64) => vec![short],
        _ => vec![0x40 | (length >> 8) as u8, length as u8],
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&length(bytes.len()), bytes].concat()
}

/// A snapshot of these keys: the type of each, its name and its value.
fn snapshot(keys: &[(u8, &str, &[u8])]) -> Vec<u8> {
    let keys =
        keys.iter().flat_map(|(kind, name, value)| [&[*kind], &*string(name.as_bytes()), value].concat());
    b"REDIS0012\xfe\x00".iter().copied().chain(keys).chain([0xff]).chain([0; 8]).collect()
}

/// What RESTORE takes: no checksum is zero.
fn payload(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind], value, &12_u16.to_le_bytes(), &[0; 8]].concat()
}

/// An element of a listpack: a small number, or a text.
fn element(word: &str) -> Vec<u8> {
    let number = word.parse::<i64>().ok().filter(|number| number.to_string() == word);
    let content = match number {
        Some(small @ 0..128) => vec![small as u8],
        Some(number) => [&[0xf4], &number.to_le_bytes()[..]].concat(),
        None => [&[0x80 | word.len() as u8], word.as_bytes()].concat(),
    };
    let bytes = content.len() as u8;
    [content, vec![bytes]].concat()
}

/// A listpack of words, as a string. It announces a number of elements.
fn listpack_of(announced: usize, words: &str) -> Vec<u8> {
    let elements: Vec<u8> = words.split(' ').filter(|word| !word.is_empty()).flat_map(element).collect();
    raw_listpack(announced, &elements)
}

fn raw_listpack(announced: usize, elements: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(7 + elements.len()).unwrap();
    let header = [&bytes.to_le_bytes()[..], &u16::try_from(announced).unwrap().to_le_bytes()].concat();
    string(&[&header, elements, &[0xff]].concat())
}

fn listpack(words: &str) -> Vec<u8> {
    listpack_of(words.split(' ').count(), words)
}

fn intset(integers: &[i16]) -> Vec<u8> {
    let head = [2_u32.to_le_bytes(), u32::try_from(integers.len()).unwrap().to_le_bytes()].concat();
    string(&integers.iter().fold(head, |bytes, integer| [bytes, integer.to_le_bytes().to_vec()].concat()))
}

fn id(ms: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&ms.to_be_bytes());
    bytes
}

/// A block of a stream: its ID, and an entry with one field for each value. It announces a number of them.
fn block(ms: u64, announced: usize, values: &[&str]) -> Vec<u8> {
    let entries: String =
        values.iter().enumerate().map(|(at, value)| format!(" 2 {at} 0 {value} 4")).collect();
    [string(&id(ms)), listpack(&format!("{announced} 0 1 f 0{entries}"))].concat()
}

/// A stream of these blocks, in the form of Redis 5. It announces a number of entries.
fn stream(announced: usize, last: u8, blocks: &[Vec<u8>], groups: &[u8]) -> Vec<u8> {
    let tail = [&length(announced)[..], &[last, 0], groups].concat();
    [length(blocks.len()), blocks.concat(), tail].concat()
}

/// A group in which an entry is pending.
fn group(consumers: &[u8]) -> Vec<u8> {
    let pending = [&[1][..], &id(1), &[0; 8], &[1]].concat();
    [&[1][..], &string(b"g"), &[1, 0], &pending, consumers].concat()
}

const NO_MOMENT: [u8; 8] = [0; 8];

/// A value that is not as it should be: the number of its type, its bytes, and what is found.
type Case = (u8, Vec<u8>, &'static [(&'static str, &'static str)]);

fn cases() -> Vec<Case> {
    let late = (1_u64 << 47).to_string();
    vec![
        // The last one counts of those that have the same name.
        (20, listpack("a b a"), &[("SCARD k", "(integer) 2"), ("SISMEMBER k b", "(integer) 1")]),
        (16, listpack("f 1 g 2 f 3"), &[("HLEN k", "(integer) 2"), ("HGET k f", "\"3\"")]),
        (4, [&length(2)[..], b"\x01f\x01a\x01f\x01b"].concat(), &[("HGETALL k", "[\"f\", \"b\"]")]),
        (17, listpack("a 1 b 2 a 3"), &[("ZRANGE k 0 -1 WITHSCORES", "[\"b\", \"2\", \"a\", \"3\"]")]),
        (
            25,
            [&NO_MOMENT[..], &listpack(&format!("f 1 {late} f 2 {late}"))].concat(),
            &[("HLEN k", "(integer) 1"), ("HGET k f", "\"2\"")],
        ),
        // The number of elements is another one than the header says, or the last pair is not complete.
        (20, listpack_of(1, "a b c"), &[("SCARD k", "(integer) 3")]),
        (16, listpack_of(6, "f 1"), &[("HGETALL k", "[\"f\", \"1\"]")]),
        (16, listpack("f 1 g"), &[("HGETALL k", "[\"f\", \"1\"]")]),
        (17, listpack("a 1 b"), &[("ZRANGE k 0 -1", "[\"a\"]")]),
        (25, [&NO_MOMENT[..], &listpack("f 1 0 g 2")].concat(), &[("HGETALL k", "[\"f\", \"1\"]")]),
        (18, [&[1, 2][..], &listpack_of(9, "a b")].concat(), &[("LRANGE k 0 -1", "[\"a\", \"b\"]")]),
        // An element cannot be read.
        (20, raw_listpack(2, b"\x81a\x02\xf5\x01"), &[("SMEMBERS k", "[\"a\"]")]),
        (
            18,
            [&[1, 2][..], &raw_listpack(2, b"\x81a\x02\x8fb\x02")].concat(),
            &[("LRANGE k 0 -1", "[\"a\"]")],
        ),
        // The order is another one.
        (
            11,
            intset(&[3, 1, 2, 1]),
            &[("SCARD k", "(integer) 3"), ("SMISMEMBER k 1 2", "[(integer) 1, (integer) 1]")],
        ),
        (
            25,
            [&NO_MOMENT[..], &listpack(&format!("f 1 0 g 2 {late}"))].concat(),
            &[("HGETALL k", "[\"f\", \"1\", \"g\", \"2\"]"), ("HTTL k FIELDS 1 f", "[(integer) -1]")],
        ),
        // What should be a number is none, or too large.
        (17, listpack("a x b 1.5y"), &[("ZRANGE k 0 -1 WITHSCORES", "[\"a\", \"0\", \"b\", \"1.5\"]")]),
        (25, [&NO_MOMENT[..], &listpack("f 1 x")].concat(), &[("HTTL k FIELDS 1 f", "[(integer) -1]")]),
        (
            25,
            [&NO_MOMENT[..], &listpack(&format!("f 1 {}", 1_u64 << 50))].concat(),
            &[("HTTL k FIELDS 1 f", "[(integer) -1]")],
        ),
        // Streams.
        (15, stream(2, 2, &[block(1, 9, &["a", "b"])], &[0]), &[("XLEN k", "(integer) 2")]),
        (
            15,
            stream(2, 9, &[block(5, 1, &["b"]), block(1, 1, &["a"])], &[0]),
            &[("XRANGE k - +", "[[\"1-0\", [\"f\", \"a\"]], [\"5-0\", [\"f\", \"b\"]]]")],
        ),
        (
            15,
            stream(2, 1, &[block(1, 2, &["a", "b"])], &[0]),
            &[
                ("XADD k 2-1 f c", "\"2-1\""),
                (
                    "XADD k 2-0 f c",
                    "(error) ERR The ID specified in XADD is equal or smaller than the target stream top \
                     item",
                ),
            ],
        ),
        (
            15,
            stream(1, 1, &[block(1, 1, &["a"])], &group(&[0])),
            &[("XPENDING k g", "[(integer) 0, (nil), (nil), (nil)]")],
        ),
    ]
}

fn serve(folder: &Folder, keys: &[(u8, &str, &[u8])]) -> Server {
    fs::write(folder.file("dump.rdb"), snapshot(keys)).unwrap();
    Server::start_with(&["--dir", &folder.file("")])
}

#[test]
fn a_file_with_a_value_that_is_not_as_it_should_be_is_loaded() {
    let folder = Folder::new("forgiving");
    let cases = cases();
    let names: Vec<String> = (0..cases.len()).map(|number| format!("k{number}")).collect();
    let mut keys: Vec<(u8, &str, &[u8])> =
        cases.iter().zip(&names).map(|((kind, value, _), name)| (*kind, &**name, &**value)).collect();
    keys.push((0, "other", b"\x01v"));
    let server = serve(&folder, &keys);
    server.wait_for_output(
        "The value of the key 'k0' in database 0 of the RDB file is damaged, and is loaded as far",
    );
    server.wait_for_output(&format!("Of the values of the RDB file {} more are damaged", cases.len() - 10));
    let mut client = server.client();
    client.line("GET other").is("v");
    for ((kind, value, found), name) in cases.iter().zip(&names) {
        for (line, reply) in *found {
            let line = line.replacen(" k", &format!(" {name}"), 1);
            assert_eq!(client.line(&line).reply().to_string(), *reply, "{line}, type {kind}");
        }
        // A client that sends it gets an error.
        client
            .cmd([&b"RESTORE"[..], b"restored", b"0", &payload(*kind, value)])
            .is_error("ERR Bad data format");
    }
    // It is saved as it should be.
    client.line("SAVE").is_ok();
    drop((client, server));
    let server = Server::start_with(&["--dir", &folder.file("")]);
    server.client().line("DBSIZE").is(keys.len() as i64);
    assert!(!server.output().contains("damaged"), "{}", server.output());
}

marked!(also_redis: such_a_value_is_refused_where_payloads_are_sanitized);
fn such_a_value_is_refused_where_payloads_are_sanitized() {
    for (kind, value, _) in cases() {
        let folder = Folder::new("forgiving-sanitized");
        let file = snapshot(&[(kind, "k", &value)]);
        fs::write(folder.file("dump.rdb"), &file).unwrap();
        let mut command = folder.command();
        command.args(["--port", "0", "--bind", "127.0.0.1", "--sanitize-dump-payload", "yes"]);
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "type {kind}, {}", value.escape_ascii());
        assert_eq!(fs::read(folder.file("dump.rdb")).unwrap(), file);
    }
}

marked!(also_redis: a_stream_that_counts_more_entries_than_it_has_keeps_its_count);
fn a_stream_that_counts_more_entries_than_it_has_keeps_its_count() {
    let folder = Folder::new("forgiving-count");
    let value = stream(5, 2, &[block(1, 2, &["a", "b"])], &[0]);
    let server = serve(&folder, &[(15, "k", &value)]);
    let mut client = server.client();
    talk(
        &mut client,
        &[
            ("XLEN k", "(integer) 5"),
            ("XADD k 3-0 f c", "\"3-0\""),
            ("XLEN k", "(integer) 6"),
            ("XRANGE k 3 +", "[[\"3-0\", [\"f\", \"c\"]]]"),
            ("XTRIM k MAXLEN 5", "(integer) 1"),
            ("XDEL k 1-0", "(integer) 0"),
            ("COPY k l", "(integer) 1"),
            ("XLEN l", "(integer) 5"),
        ],
    );
    // Unlike the values above, a client can restore it.
    let dumped = client.line("DUMP k").reply();
    let support::client::Reply::Bulk(dumped) = dumped else { panic!("{dumped:?}") };
    client.cmd([&b"RESTORE"[..], b"m", b"0", &dumped]).is_ok();
    client.line("SAVE").is_ok();
    drop((client, server));
    let mut client = Server::start_with(&["--dir", &folder.file("")]).into_client();
    talk(
        &mut client,
        &[("XLEN k", "(integer) 5"), ("XLEN m", "(integer) 5"), ("XTRIM k MAXLEN 0", "(integer) 2")],
    );
    trimmed_to_nothing(&mut client);
}

/// It still counts entries, and can be saved.
fn trimmed_to_nothing(client: &mut Client) {
    talk(
        client,
        &[
            ("XLEN k", "(integer) 3"),
            ("XRANGE k - +", "[]"),
            ("XADD k 9-0 f v", "\"9-0\""),
            ("XLEN k", "(integer) 4"),
        ],
    );
}

marked!(also_redis: a_file_may_have_what_no_request_can_bring);
fn a_file_may_have_what_no_request_can_bring() {
    let folder = Folder::new("forgiving-zero");
    let late = ((1_u64 << 48) - 1).to_string();
    let hash = [&NO_MOMENT[..], &listpack(&format!("f 1 {late}"))].concat();
    let server = serve(&folder, &[(17, "z", &listpack("a -0 b 1")), (25, "h", &hash)]);
    let mut client = server.client();
    let found: &[(&str, &str)] = &[
        ("ZSCORE z a", "\"-0\""),
        ("ZRANGE z 0 -1 WITHSCORES", "[\"a\", \"-0\", \"b\", \"1\"]"),
        ("HPEXPIRETIME h FIELDS 1 f", "[(integer) 281474976710655]"),
    ];
    talk(&mut client, found);
    client.line("SAVE").is_ok();
    drop((client, server));
    let mut client = Server::start_with(&["--dir", &folder.file("")]).into_client();
    talk(&mut client, found);
    talk(&mut client, &[("ZADD z -0 b", "(integer) 0"), ("ZSCORE z b", "\"0\""), ("ZINCRBY z 1 a", "\"1\"")]);
}

marked!(also_redis: what_cannot_be_read_at_all_is_refused);
fn what_cannot_be_read_at_all_is_refused() {
    for (kind, value) in [
        (20, string(b"\x08\0\0\0\0\0\xff")),
        (17, string(b"\x07\0\0\0\0\0\0")),
        (11, string(b"\x03\0\0\0\x01\0\0\0abc")),
        (13, string(b"\x0b\0\0\0\x0a\0\0\0\0\0\0")),
        (15, stream(1, 1, &[[string(b"short"), listpack("1 0 0 0")].concat()], &[0])),
        (15, stream(1, 1, &[[string(&id(1)), raw_listpack(0, b"")].concat()], &[0])),
    ] {
        let folder = Folder::new("forgiving-not");
        let file = snapshot(&[(kind, "k", &value)]);
        fs::write(folder.file("dump.rdb"), &file).unwrap();
        let mut command = folder.command();
        let ended = command.args(["--port", "0", "--bind", "127.0.0.1"]).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "type {kind}");
        assert_eq!(fs::read(folder.file("dump.rdb")).unwrap(), file);
    }
}
