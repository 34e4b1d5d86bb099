//! Collections in payloads that redis-server 7.0.15 has made, in those of older versions, and damaged.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::dump::content_of;
use crate::dump::strings::{Decoder, write_length, write_string};

const STRING_BYTES_MAX: usize = 1 << 20;

/// Visits the elements of a list or set, the fields and values of a hash, or the members and scores of a
/// sorted set.
fn visit_all(rdb_type: u8, source: &mut dyn Source, visit: &mut VisitElement<'_>) -> Result<(), DecodeError> {
    if LIST_TYPES.contains(&rdb_type) {
        list(rdb_type, source, visit)
    } else if SET_TYPES.contains(&rdb_type) {
        set(rdb_type, source, visit)
    } else if HASH_TYPES.contains(&rdb_type) {
        hash(rdb_type, source, &mut |field, value, at_ms| {
            visit(field)?;
            visit(value)?;
            at_ms.map_or(Ok(()), |at_ms| visit(at_ms.to_string().as_bytes()))
        })
    } else {
        sorted_set(rdb_type, source, &mut |member, score| {
            assert!(!score.is_nan());
            visit(member)?;
            visit(format!("{score:?}").as_bytes())
        })
    }
}

/// All elements of what a payload contains.
fn read_all(content: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
    let mut decoder = Decoder::new(content, STRING_BYTES_MAX);
    let rdb_type = decoder.byte()?;
    let mut elements = Vec::new();
    visit_all(rdb_type, &mut decoder, &mut |element| {
        elements.push(element.to_vec());
        Ok(())
    })?;
    if decoder.input.is_empty() { Ok(elements) } else { Err(DecodeError::Invalid("more follows")) }
}

fn assert_reads(content: &[u8], expected: &[&[u8]]) {
    let elements = read_all(content).unwrap_or_else(|error| panic!("{error:?}: {}", content.escape_ascii()));
    let texts = |elements: Vec<&[u8]>| -> Vec<String> {
        elements.iter().map(|element| element.escape_ascii().to_string()).collect()
    };
    assert_eq!(texts(elements.iter().map(Vec::as_slice).collect()), texts(expected.to_vec()));
}

static X: [u8; 20_000] = [b'x'; 20_000];

/// Payloads of redis-server 7.0.15's DUMP, and the contents of the keys.
static PAYLOADS: &[(&[u8], &[&[u8]])] = &[
    // list-max-listpack-size 2.
    (
        b"\x12\x03\x02\x0c\x0c\x00\x00\x00\x02\x00\x81a\x02\x01\x01\xff\x02\x0c\x0c\x00\x00\x00\x02\x00\
          \x81b\x02\x02\x01\xff\x02\n\n\x00\x00\x00\x01\x00\x81c\x02\xff\n\x00\xedC\xce\xdc\xe3bD~",
        &[b"a", b"1", b"b", b"2", b"c"],
    ),
    // DEBUG QUICKLIST-PACKED-THRESHOLD 3b: large elements in nodes of their own, one written as an integer.
    (
        b"\x12\x03\x02\n\n\x00\x00\x00\x01\x00\x81a\x02\xff\x01\xc1\xd2\x04\x01\x03abc\n\x00\
          \x09\xf3\xc5p\xeed\xbc\x16",
        &[b"a", b"1234", b"abc"],
    ),
    // DEBUG QUICKLIST-PACKED-THRESHOLD 100b.
    (
        b"\x12\x05\x02\x0c\x0c\x00\x00\x00\x02\x00\x81a\x02\x01\x01\xff\x01\xc3\t@d\x01xx\xe0W\x00\x01xx\
          \x02\x0c\x0c\x00\x00\x00\x02\x00\x02\x01\x81b\x02\xff\x02\n\n\x00\x00\x00\x01\x00\x81c\x02\xff\
          \x01\xc3\x0b@g\x03-120\xe0X\x00\x0100\n\x00h\xaa3\x14\xd48\x15*",
        &[
            b"a",
            b"1",
            X.split_at(100).0,
            b"2",
            b"b",
            b"c",
            b"-120000000000000000000000000000000000000000000000000000000000000000000000000000000000\
              000000000000000000",
        ],
    ),
    // Integers on both sides of every limit.
    (
        b"\x12\x01\x02\xc3@e@l\x1cl\x00\x00\x00\x14\x00\x00\x01\x7f\x01\xc0\x80\x02\xdf\xff\x02\xcf\xff\x02\
          \xd0\x00\x02\xf1\x00\x10\x03\xf1\xff\xef \x03\x15\x7f\x03\xf1\x00\x80\x03\xf2\x00\x80\x00\x04\xf2\
          \xff\xff\x7f\x04\xf2\x00\x00\x80\x04\xf3 \x04\x02\x00\x05\xf3 \x0f\x00\xff@\x05\x02\xff\x7f\x05 \
          \x11\x03\x00\x80\x05\xf4@\x05 \x03\x02\x00\t\xf4 \x15@\x00\x01\x7f\t@\x13@\x00\x02\x80\t\xff\
          \n\x00\xea+\xd4\xc1SK\x86\xf0",
        &[
            b"0",
            b"127",
            b"128",
            b"-1",
            b"4095",
            b"-4096",
            b"4096",
            b"-4097",
            b"32767",
            b"-32768",
            b"32768",
            b"8388607",
            b"-8388608",
            b"8388608",
            b"-8388609",
            b"2147483647",
            b"-2147483648",
            b"2147483648",
            b"9223372036854775807",
            b"-9223372036854775808",
        ],
    ),
    // Intsets of two, four and eight bytes; a set with other members.
    (
        b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\x00\x80\x00\x00\xff\x7f\n\x00\x140\xa6\xd8\x98k\x104",
        &[b"-32768", b"0", b"32767"],
    ),
    (
        b"\x0b\x18\x04\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x80\xff\xff\xff\xff\x00\x80\x00\x00\
          \xff\xff\xff\x7f\n\x00\xd4\xfcf\x84\xba\xbe\x81\xd5",
        &[b"-2147483648", b"-1", b"32768", b"2147483647"],
    ),
    (
        b"\x0b\xc3\x16 \x04\x08\x00\x00\x00\x03 \x03\xa0\x00\x01\x80\x01\xa0\x08\x00\xff`\x00\x01\xff\x7f\
          \n\x00\xc8\x95&\x8b\x19\xc8\xd6{",
        &[b"-9223372036854775808", b"1", b"9223372036854775807"],
    ),
    (
        b"\x02\x03\xc0\x01\xc3\t\x1e\x01xx\xe0\x11\x00\x01xx\x01a\n\x00\xe1\x08\xa0\xaf\x1b\x06n\r",
        &[b"1", X.split_at(30).0, b"a"],
    ),
    // A small hash, and one with hash-max-listpack-entries 0.
    (
        b"\x10\xc3,@f\x1bf\x00\x00\x00\x08\x00\x85field\x06\x85value\x06\x01\x01\xdf\xfb\x02\xe0@x\xe06\x00\
          \nB\x80\x01\x80\x01\xf2p\x11\x01\x04\xff\n\x00\x16nH\x12d\xbcQ\xa3",
        &[b"field", b"value", b"1", b"-5", X.split_at(64).0, b"", b"", b"70000"],
    ),
    (
        b"\x04\x03\x05field\x05value\xc0\x01\xc0\xfb\xc3\t@@\x01xx\xe03\x00\x01xx\x00\
          \n\x00z\xd3\x15\x88}i\xcc\xc2",
        &[b"field", b"value", b"1", b"-5", X.split_at(64).0, b""],
    ),
    // A small sorted set, which keeps no zero below zero, and one with zset-max-listpack-entries 0.
    (
        b"\x11\xc3@d@m\x10m\x00\x00\x00\x16\x00\x81a\x02\x84-inf\x05\x81b \x08\n1.5\x05\x81c\x02\x00\x01\x81d\
          @\x04\x11h\x02\x861e-300\x07\x81f\x02\x930.10\xe0\x05\x00\x1f1\x14\x07\x01\x01\x01\x81e\x02\x03\x01\
          \x81i\x02\xf4\x88Kk]T\xdc+\x00\t\x81g\x02\x851e+2\x040\x06\x80\x01\x83 \\\x01\x04\xff\
          \n\x00\xa5b\x92\x91\xd4\xa6\xdef",
        &[
            b"a",
            b"-inf",
            b"b",
            b"-1.5",
            b"c",
            b"0.0",
            b"d",
            b"0.0",
            b"h",
            b"1e-300",
            b"f",
            b"0.1",
            b"7",
            b"1.0",
            b"e",
            b"3.0",
            b"i",
            b"1.2345678901234568e16",
            b"g",
            b"1e20",
            b"",
            b"inf",
        ],
    ),
    (
        b"\x05\x0b\x00\x00\x00\x00\x00\x00\x00\xf0\x7f\x01g@\x8c\xb5x\x1d\xaf\x15D\x01i\xc4\xa5\xb5.*\xeeEC\
          \x01e\x00\x00\x00\x00\x00\x00\x08@\xc0\x07\x00\x00\x00\x00\x00\x00\xf0?\x01f\x9a\x99\x99\x99\x99\
          \x99\xb9?\x01hY\xf3\xf8\xc2\x1fn\xa5\x01\x01d\x00\x00\x00\x00\x00\x00\x00\x00\x01c\x00\x00\x00\x00\
          \x00\x00\x00\x80\x01b\x00\x00\x00\x00\x00\x00\xf8\xbf\x01a\x00\x00\x00\x00\x00\x00\xf0\xff\
          \n\x00\x05}\xa7\xefR\x9b\xf2\xae",
        &[
            b"",
            b"inf",
            b"g",
            b"1e20",
            b"i",
            b"1.2345678901234568e16",
            b"e",
            b"3.0",
            b"7",
            b"1.0",
            b"f",
            b"0.1",
            b"h",
            b"1e-300",
            b"d",
            b"0.0",
            b"c",
            b"-0.0",
            b"b",
            b"-1.5",
            b"a",
            b"-inf",
        ],
    ),
];

#[test]
fn payloads_of_redis_7_are_read() {
    for (payload, expected) in PAYLOADS {
        assert_reads(content_of(payload, true).expect("a right checksum").0, expected);
    }
}

#[test]
fn strings_of_every_length_in_a_listpack_of_redis_7_are_read() {
    let run = |count: usize| b"\xe0\xff\x00".repeat(count);
    let payload = [
        &b"\x12\x01\x02\xc3@\xb5`\xc0\x1f\xc0 \x00\x00\x0b\x00\x80\x01\x81a\x02\x83007\x04\x82-0\x03\x82+1\
           \x03\x82 1\x03\x93922\x123372036854775808\x14\xbfx\
           \xe05\x00\x02@\xe0@\xe05@\x04xxB\xef\xff \x05"[..],
        &run(15),
        b"\xe0{\x00\x06 \x81\xf0\x00\x10\x00\x00\xe0{\x8a",
        &run(15),
        b"@\x00\x02 \x85\xff\n\x00\x1a\xe4\xbf\xd9\x94\xf6\xca\x02",
    ]
    .concat();
    let numbers: [&[u8]; 7] = [b"", b"a", b"007", b"-0", b"+1", b" 1", b"9223372036854775808"];
    let long = [63, 64, 4095, 4096].map(|length| &X[..length]);
    assert_reads(content_of(&payload, true).expect("a right checksum").0, &[&numbers[..], &long].concat());

    // Where the length of an element that is repeated behind it takes one more byte.
    let payload = [
        &b"\x12\x01\x02\xc3Bn\x80\x00\x00\xc1\x0e\x08\x0e\xc1\x00\x00\x05\x00\xe0}x\xe0s\x00\x02\x7f\xe0~\
           \xe0s~\x08xx\x01\x80\xf0\xf9?\x00\x00 \t"[..],
        &run(62),
        b"\x80\x00\x06\x7f\xfe\xf0\xfa?\x00\x00\x80\x0c",
        &run(62),
        b"@\x00\x07\x00\xff\xff\xf0\xfb?\x00\x00@\x0b",
        &run(62),
        b"\xa0\x00\x03\x01\x80\x80\xff\n\x00*4\xcf\xbb\x11\n}I",
    ]
    .concat();
    let lengths = [125, 126, 16_377, 16_378, 16_379].map(|length| &X[..length]);
    assert_reads(content_of(&payload, true).expect("a right checksum").0, &lengths);
}

/// What older versions have written, and Redis 7.2, without the version of the format and the checksum.
/// redis-server 7.0.15 restores all but the last one, to the same elements.
const OTHER_VERSIONS: &[(&[u8], &[&[u8]])] = &[
    (b"\x01\x03\x01a\xc0\x0c\x01a", &[b"a", b"12", b"a"]),
    (
        b"\x03\x04\x01a\x03-.5\x01b\x130.10000000000000001\x01c\xfe\x01d\xff",
        &[b"a", b"-0.5", b"b", b"0.1", b"c", b"inf", b"d", b"-inf"],
    ),
    (b"\x03\x01\x01a\x051e+20", &[b"a", b"1e20"]),
    (b"\x09\x18\x02\x03foo\x03\x00bar\x05hello\x03\x02you??\xff", &[b"foo", b"bar", b"hello", b"you"]),
    (
        b"\n))\x00\x00\x00&\x00\x00\x00\x06\x00\x00\x03abc\xfe\x05\x00\x00\x00\xf1\x06\xfd\x02\
          \xf0\x00\x00\x80\x05\xe0\x00\x00\x00\x00\x00\x00\x00\x80\n\x00\xff",
        &[b"abc", b"0", b"12", b"-8388608", b"-9223372036854775808", b""],
    ),
    (
        b"\x0c00\x00\x00\x00-\x00\x00\x00\x06\x00\x00\x01a\x03\x04-inf\x06\x01b\x03\x130.10000000000000001\
          \x15\xf2\x02\xf3\xff",
        &[b"a", b"-inf", b"b", b"0.1", b"1", b"2.0"],
    ),
    (
        b"\x0d\x1e\x1e\x00\x00\x00\x1a\x00\x00\x00\x04\x00\x00\x05field\x07\x05value\x07\xf8\x02\xfe\xff\xff",
        &[b"field", b"value", b"7", b"-1"],
    ),
    // One of the nodes has no elements.
    (
        b"\x0e\x03\x10\x10\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x01a\x03\xf2\xff\
          \x0b\x0b\x00\x00\x00\n\x00\x00\x00\x00\x00\xff\
          \x0e\x0e\x00\x00\x00\n\x00\x00\x00\x01\x00\x00\x01b\xff",
        &[b"a", b"1", b"b"],
    ),
    (b"\x14\x0c\x0c\x00\x00\x00\x02\x00\x81a\x02\x01\x01\xff", &[b"a", b"1"]),
    // Hashes of which some fields expire: as Redis 7.4 wrote them before its release, ...
    (
        b"\x16\x02\x00\x01f\x01v\x81\x00\x00\x1e,\xa6Lj[\x01g\xc0\x05",
        &[b"f", b"v", b"g", b"5", b"33177117420123"],
    ),
    (
        b"\x17\x1e\x1e\x00\x00\x00\x06\x00\x81g\x02\x05\x01\xf4[jL\xa6,\x1e\x00\x00\x09\
          \x81f\x02\x81v\x02\x00\x01\xff",
        &[b"g", b"5", b"33177117420123", b"f", b"v"],
    ),
    // ... as Redis 8.6.3 has written them, ...
    (
        b"\x18[jL\xa6,\x1e\x00\x00\x02\x00\x01f\x01v\x02\x01g\xc0\x05",
        &[b"f", b"v", b"g", b"5", b"33177117420124"],
    ),
    (
        b"\x19[jL\xa6,\x1e\x00\x00\x1e\x1e\x00\x00\x00\x06\x00\x81g\x02\x05\x01\xf4[jL\xa6,\x1e\x00\x00\x09\
          \x81f\x02\x81v\x02\x00\x01\xff",
        &[b"g", b"5", b"33177117420123", b"f", b"v"],
    ),
    // ... and as Valkey 9.1.2 has, whose number is 22. A field that expires too late for Redis does not
    // expire.
    (
        b"\x96\x03\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff\x01g\xc0\x05[jL\xa6,\x1e\x00\x00\
          \x01h\x01w\x00\x00\x00\x00\x00\x00\x01\x00",
        &[b"f", b"v", b"g", b"5", b"33177117420123", b"h", b"w"],
    ),
    // Hashes with their templates, by the documents of Redis 8.10.
    (
        b"\x1d\x00\x12\x12\x00\x00\x00\x02\x00\x83age\x04\x84name\x05\xff\
          \x0d\x0d\x00\x00\x00\x03\x00\x07\x01\x05\x01\x06\x01\xff",
        &[b"age", b"5", b"name", b"6"],
    ),
    (b"\x1f\x01\x02\x03age\x04name\xc0\x05\x016", &[b"age", b"5", b"name", b"6"]),
];

#[test]
fn what_other_versions_have_written_is_read() {
    for (content, expected) in OTHER_VERSIONS {
        assert_reads(content, expected);
    }
}

#[test]
fn every_type_has_an_example() {
    let payloads = PAYLOADS.iter().chain(OTHER_VERSIONS).map(|(payload, _)| payload[0]);
    let mut examples: Vec<_> = payloads.collect();
    let mut types = [LIST_TYPES, SET_TYPES, HASH_TYPES, SORTED_SET_TYPES].concat();
    // These need a template that a file has in front of them.
    types.retain(|rdb_type| ![HASH_TEMPLATE_LISTPACK_OF_FILE, HASH_TEMPLATE_OF_FILE].contains(rdb_type));
    types.sort_unstable();
    examples.sort_unstable();
    examples.dedup();
    assert_eq!(examples, types);
}

#[test]
fn collections_without_elements_are_refused_when_they_were_read() {
    let listpack = b"\x07\x07\x00\x00\x00\x00\x00\xff";
    let ziplist = b"\x0b\x0b\x00\x00\x00\n\x00\x00\x00\x00\x00\xff";
    let mut contents: Vec<Vec<u8>> = [LIST, SET, SORTED_SET_TEXT, HASH, SORTED_SET, LIST_QUICKLIST]
        .map(|rdb_type| vec![rdb_type, 0])
        .to_vec();
    contents.push(vec![LIST_QUICKLIST_2, 0]);
    for rdb_type in [SET_LISTPACK, HASH_LISTPACK, SORTED_SET_LISTPACK] {
        contents.push([&[rdb_type], &listpack[..]].concat());
    }
    for rdb_type in [LIST_ZIPLIST, HASH_ZIPLIST, SORTED_SET_ZIPLIST] {
        contents.push([&[rdb_type], &ziplist[..]].concat());
    }
    contents.push([&[LIST_QUICKLIST, 2], &ziplist[..], ziplist].concat());
    contents.push([&[LIST_QUICKLIST_2, 1, 2], &listpack[..]].concat());
    contents.push(b"\x09\x02\x00\xff".to_vec());
    contents.push(b"\x0b\x08\x02\x00\x00\x00\x00\x00\x00\x00".to_vec());
    for content in contents {
        let mut decoder = Decoder::new(&content[1..], STRING_BYTES_MAX);
        let result = visit_all(content[0], &mut decoder, &mut |_| Ok(()));
        assert!(matches!(result, Err(DecodeError::Empty)), "{result:?}: {}", content.escape_ascii());
        assert!(decoder.input.is_empty(), "{}", content.escape_ascii());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for content in [
        // Half a pair.
        &b"\x10\x0a\x0a\x00\x00\x00\x01\x00\x81a\x02\xff"[..],
        b"\x11\x0a\x0a\x00\x00\x00\x01\x00\x81a\x02\xff",
        b"\x0d\x0e\x0e\x00\x00\x00\n\x00\x00\x00\x01\x00\x00\x01b\xff",
        b"\x0c\x0e\x0e\x00\x00\x00\n\x00\x00\x00\x01\x00\x00\x01b\xff",
        // Scores that are no numbers.
        b"\x03\x01\x01a\xfd",
        b"\x03\x01\x01a\x03nan",
        b"\x03\x01\x01a\x00",
        b"\x03\x01\x01a\x02 1",
        b"\x03\x01\x01a\x021x",
        b"\x05\x01\x01a\x00\x00\x00\x00\x00\x00\xf8\x7f",
        b"\x05\x01\x01a\x01\x00\x00\x00\x00\x00\xf0\xff",
        b"\x11\x0f\x0f\x00\x00\x00\x02\x00\x81a\x02\x83nan\x04\xff",
        b"\x11\x0c\x0c\x00\x00\x00\x02\x00\x81a\x02\x80\x01\xff",
        // Nodes of no kind, or without what they are for.
        b"\x12\x01\x00\x0a\x0a\x00\x00\x00\x01\x00\x81a\x02\xff",
        b"\x12\x01\x03\x0a\x0a\x00\x00\x00\x01\x00\x81a\x02\xff",
        b"\x12\x01\x01\x00",
        // Types that are of no collection.
        b"\x00\x01a",
        b"\x06\x01a",
        b"\x0f\x01a",
    ] {
        let read = read_all(content);
        assert!(matches!(read, Err(DecodeError::Invalid(_))), "{read:?}: {}", content.escape_ascii());
    }
}

#[test]
fn announced_numbers_are_not_believed() {
    for rdb_type in [LIST, SET, SORTED_SET_TEXT, HASH, SORTED_SET, LIST_QUICKLIST, LIST_QUICKLIST_2] {
        let content = [&[rdb_type, 0x81], &[0xff; 8][..]].concat();
        assert!(matches!(read_all(&content), Err(DecodeError::Ended)), "{rdb_type}");
    }
}

#[test]
fn what_the_visitor_refuses_ends_the_reading() {
    const REFUSED: DecodeError = DecodeError::Invalid("twice");
    for (content, _) in OTHER_VERSIONS {
        let mut decoder = Decoder::new(&content[1..], STRING_BYTES_MAX);
        let mut visits = 0;
        let result = visit_all(content[0], &mut decoder, &mut |_| {
            visits += 1;
            Err(REFUSED)
        });
        assert!(matches!(result, Err(DecodeError::Invalid("twice"))), "{result:?}");
        assert_eq!(visits, 1);
    }
}

/// Every cut is refused. A changed bit is refused or read to the end, never beyond.
#[test]
fn what_was_cut_or_changed_does_no_harm() {
    let payloads = PAYLOADS.iter().map(|(payload, _)| content_of(payload, true).unwrap().0);
    for content in payloads.chain(OTHER_VERSIONS.iter().map(|(content, _)| *content)) {
        for end in 0..content.len() {
            assert!(read_all(&content[..end]).is_err(), "{end} of {}", content.escape_ascii());
        }
        let mut changed = content.to_vec();
        for at in 1..content.len() {
            for byte in
                [0, 1, 0x7f, 0x80, 0xfe, 0xff].into_iter().chain((0..8).map(|bit| content[at] ^ 1 << bit))
            {
                changed[at] = byte;
                let _ = read_all(&changed);
            }
            changed[at] = content[at];
        }
    }
}

fn score() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("a score is a number", |score| !score.is_nan())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        members in vec((vec(any::<u8>(), 0..40), score()), 1..20),
    ) {
        let mut content = vec![SORTED_SET];
        write_length(&mut content, members.len() as u64);
        for (member, score) in &members {
            write_string(&mut content, member, None);
            write_score(&mut content, *score);
        }
        let mut read = vec![];
        let mut decoder = Decoder::new(&content[1..], STRING_BYTES_MAX);
        sorted_set(SORTED_SET, &mut decoder, &mut |member, score| {
            read.push((member.to_vec(), score.to_bits()));
            Ok(())
        }).unwrap();
        let bits = |(member, score): (Vec<u8>, f64)| (member, score.to_bits());
        prop_assert_eq!(read, members.into_iter().map(bits).collect::<Vec<_>>());
    }

    #[test]
    fn garbage_does_no_harm(
        rdb_type in 0..24_u8,
        content in vec(prop_oneof![0..4_u8, any::<u8>()], 0..100),
    ) {
        let _ = read_all(&[&[rdb_type], &content[..]].concat());
        let _ = read_all(&[&[rdb_type, content.len() as u8 & 0x3f], &content[..]].concat());
    }
}
