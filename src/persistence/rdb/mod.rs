//! Snapshots as files in the format of Redis: RDB.
//!
//! A file is a header with a version, then items, then a checksum. Each item begins with a byte for its type.
//! [`Writer`] writes version 10, which Redis 7.0 reads, or version 12, which Redis 7.4 reads, if fields of a
//! hash expire. [`Reader`] reads the files of Redis up to 8.12 and Valkey up to 9.2, except types that
//! Keyfast does not have, and those of modules. Neither of the two reads what the other has added since they
//! parted; strings are the same in both.

mod reader;
mod writer;

pub(crate) use reader::Checksum;
pub use reader::{Item, Reader};
pub use writer::{Form, Writer};

/// The beginning of a file; four digits of the version follow.
const SIGNATURE: &[u8] = b"REDIS";
/// The beginning of a file since Valkey 9; three digits follow.
const SIGNATURE_OF_VALKEY: &[u8] = b"VALKEY";
/// The beginning of a file that Valkey 9.2 has compressed as a whole.
const SIGNATURE_OF_ENVELOPE: &[u8] = b"VKCS";
/// Bytes of signature and version.
const HEADER_BYTES: usize = 9;
/// The first version that ends with a checksum.
const VERSION_WITH_CHECKSUM: u16 = 5;

/// Whether bytes begin a snapshot.
pub(crate) fn is_snapshot(bytes: &[u8]) -> bool {
    [SIGNATURE, SIGNATURE_OF_VALKEY, SIGNATURE_OF_ENVELOPE].iter().any(|begin| bytes.starts_with(begin))
}

/// Type byte: a template of hashes. In files of Valkey it is a command.
const TEMPLATE: u8 = 242;
/// Type byte: slots of a cluster, and their sizes.
const SLOT_INFO: u8 = 244;
/// Type byte: a key with a value of a module's type, in the form that can be skipped.
const MODULE_VALUE: u8 = 7;
/// Type byte: data of a module that are not keys.
const MODULE_DATA: u8 = 247;
/// The name of an auxiliary field: the fencing number of the lock that is the next key. Redis skips it.
const FENCE: &[u8] = b"keyfast-lock";
/// Type byte: idle time of the next key, in seconds.
const IDLE: u8 = 248;
/// Type byte: access frequency of the next key.
const FREQUENCY: u8 = 249;
/// Type byte: a name and a value that describe the file.
const AUXILIARY: u8 = 250;
/// Type byte: the number of keys in the database, and the number of those with an expiry.
const SIZES: u8 = 251;
/// Type byte: expiry of the next key, in milliseconds since 1970.
const EXPIRY_MS: u8 = 252;
/// Type byte: expiry of the next key, in seconds since 1970.
const EXPIRY_S: u8 = 253;
/// Type byte: the database of the keys that follow.
const DATABASE: u8 = 254;
/// Type byte: end of the items; the checksum follows.
const END: u8 = 255;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::dump::{CHECKSUM, VERSION, VERSION_MAX};
    use crate::keyspace::SavedKey;
    use crate::types;
    use crate::types::hashes::Hash;
    use crate::values::{Content, Limits, Type, Value};

    type Owned = (usize, Vec<u8>, Vec<u8>, Option<u64>, Option<u8>);

    const PLAIN: Form = Form { compresses: false, has_checksum: true };

    fn written(keys: &[Owned], libraries: &[&[u8]], form: Form) -> Vec<u8> {
        let mut writer = Writer::with_header(Vec::new(), form, VERSION);
        writer.auxiliary(b"redis-ver", b"7.0.15").unwrap();
        libraries.iter().for_each(|code| writer.function_library(code).unwrap());
        writer.sizes(0, keys.len(), 0).unwrap();
        for (database, key, value, expires_at_ms, frequency) in keys {
            let (database, expires_at_ms, frequency) = (*database, *expires_at_ms, *frequency);
            let value = Value { facts: &types::strings::FACTS, content: Content::Bytes(value) };
            writer
                .key(&SavedKey { database, key, value, expires_at_ms, idle: None, frequency, fence: None })
                .unwrap();
        }
        writer.finish().unwrap()
    }

    /// The keys and libraries of a file.
    fn read(file: &[u8]) -> Result<(Vec<Owned>, Vec<Vec<u8>>), String> {
        let mut reader = Reader::open(file, true).map_err(|error| error.to_string())?;
        let (mut keys, mut libraries) = (Vec::new(), Vec::new());
        while let Some(item) = reader.next_item(&Limits::default()).map_err(|error| error.to_string())? {
            match item {
                Item::Key(key) => keys.push((
                    key.database,
                    key.key.to_vec(),
                    key.value.content.bytes().unwrap_or_default().to_vec(),
                    key.expires_at_ms,
                    key.frequency,
                )),
                Item::Library(code) => libraries.push(code.to_vec()),
                Item::Auxiliary { .. }
                | Item::Database(_)
                | Item::ModuleData { .. }
                | Item::ForeignKey { .. }
                | Item::EmptyKey(_) => {}
            }
        }
        Ok((keys, libraries))
    }

    fn key(database: usize, key: &str, value: &str, expires_at_ms: Option<u64>) -> Owned {
        (database, key.into(), value.into(), expires_at_ms, None)
    }

    /// A file of another program, with a correct checksum.
    fn file(version: u16, content: &[u8]) -> Vec<u8> {
        let mut file = [format!("REDIS{version:04}").as_bytes(), content, &[END]].concat();
        file.extend(CHECKSUM.checksum(&file).to_le_bytes());
        file
    }

    #[test]
    fn a_file_is_what_redis_would_write() {
        let keys = [key(0, "k", "v", None), key(3, "12", "-300", Some(0x0102_0304_0506))];
        let expected: &[&[u8]] = &[
            b"REDIS0010\xfa\x09redis-ver\x067.0.15\xf5\x04code",
            b"\xfe\x00\xfb\x02\x00\x00\x01k\x01v",
            b"\xfe\x03\xfc\x06\x05\x04\x03\x02\x01\x00\x00\x00\xc0\x0c\xc1\xd4\xfe\xff",
        ];
        let mut expected = expected.concat();
        expected.extend(CHECKSUM.checksum(&expected).to_le_bytes());
        assert_eq!(
            written(&keys, &[b"code"], PLAIN).escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
    }

    #[test]
    fn all_that_may_stand_before_a_key_is_understood() {
        let content = [
            &b"\xfa\x05ctime\xc2\x00\x00\x00\x60\xf4\x01\x02\x03"[..],
            // A module's data: its number, when it was written, then one value of each kind.
            b"\xf7\x81\x00\x00\x00\x00\x00\x00\x04\x00\x02\x01\x01\x05\x02\x41\x00\x03abcd\x04abcdefgh\x05\x03abc\x00",
            b"\xfe\x02\xfb\x05\x01\xfd\x01\x00\x00\x00\xf8\x0a\x00\x01a\xc3\x09\x40\x64\x01xx\xe0\x57\x00\x01xx",
            b"\xfc\xff\xff\xff\xff\xff\xff\xff\xff\xf9\x07\x00\x80\x00\x00\x00\x01b\x81\x00\x00\x00\x00\x00\x00\x00\x01c",
            b"\xfc\xfe\xff\xff\xff\xff\xff\xff\xff\x00\x01d\x00",
        ]
        .concat();
        let expected = vec![
            key(2, "a", &"x".repeat(100), Some(1000)),
            (2, b"b".to_vec(), b"c".to_vec(), None, Some(7)),
            key(2, "d", "", Some(0)),
        ];
        for version in 5..=VERSION_MAX {
            assert_eq!(read(&file(version, &content)), Ok((expected.clone(), vec![])));
        }
        let mut unchecked = file(10, &content);
        let checksum = unchecked.len() - 8;
        unchecked[checksum..].fill(0);
        assert_eq!(read(&unchecked), Ok((expected, vec![])), "zero means that there is none");
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        let wrong = |content: &[u8]| read(&file(10, content)).unwrap_err();
        let array = "key 'my\\x00list' in database 3 is an array, which is not supported (offset 16)";
        assert_eq!(wrong(b"\xfe\x03\x00\x01k\x01v\x1c\x07my\x00list\x01\x01a"), array);
        let module = wrong(b"\x06\x01m\x00");
        assert!(
            module.starts_with("key 'm' in database 0 is of a module's type, in an old form"),
            "{module}"
        );
        assert_eq!(wrong(b"\x63\x01m\x00"), "Unknown RDB encoding type 99 (offset 9)");
        assert_eq!(wrong(b"\x00\x01k\xc4"), "Unknown RDB string encoding type (offset 13)");
        assert_eq!(wrong(b"\xf6\x01k"), "Pre-release function format not supported (offset 10)");
        assert_eq!(wrong(b"\x00\x01k\x80\x7f\xff\xff\xff"), "Unexpected EOF reading RDB file (offset 26)");
        assert_eq!(
            wrong(b"\x00\x01k\x81\x7f\xff\xff\xff\xff\xff\xff\xff"),
            "a string is too long (offset 21)"
        );
        let error = |file: &[u8]| read(file).unwrap_err();
        assert_eq!(error(b"RADIS0010"), "Wrong signature trying to load DB from file");
        assert_eq!(error(b"REDIS0017\xff"), "Can't handle RDB format version 17");
        assert_eq!(error(b"REDIS0080\xff"), "Can't handle RDB format version 80");
        assert_eq!(error(b"REDIS0000\xff"), "Can't handle RDB format version 0");
        assert_eq!(error(b"VALKEY011\xff"), "Can't handle RDB format version 11");
        assert_eq!(error(b"VALKEY082\xff"), "Can't handle RDB format version 82");
        assert_eq!(error(b"REDIS+010\xff"), "Can't handle RDB format version +010");
        assert_eq!(error(b""), "Unexpected EOF reading RDB file (offset 0)");
        let mut changed = file(10, b"\x00\x01k\x01v");
        changed[13] = b'w';
        assert!(error(&changed).starts_with("Wrong RDB checksum expected: ("), "{}", error(&changed));
    }

    /// The type numbers that each of the two has added since they parted, from their documentation.
    #[test]
    fn the_same_number_is_not_the_same_in_the_files_of_redis_and_valkey() {
        let of = |signature: &[u8], content: &[u8]| read(&[signature, content].concat()).unwrap_err();
        let refused =
            |what: &str| format!("key 'k' in database 0 is {what}, which is not supported (offset 9)");
        for (number, redis) in [(27, None), (28, Some("an array")), (33, Some("a bitmap of Redis 8.12"))] {
            if let Some(redis) = redis {
                assert_eq!(of(b"REDIS0015", &[number, 1, b'k', 0]), refused(redis));
            }
            let unknown = format!("Unknown RDB encoding type {number} (offset 9)");
            assert_eq!(of(b"VALKEY080", &[number, 1, b'k', 0]), unknown);
        }
        // Type 22 of Redis has each expiry in front of its field, type 22 of Valkey has it behind the value.
        let redis = b"\x16\x01k\x01\x09\x01f\x01v\xff";
        let valkey = b"\x16\x01k\x01\x01f\x01v\x09\x00\x00\x00\x00\x00\x00\x00\xff";
        for (signature, content) in [(b"REDIS0012", &redis[..]), (b"VALKEY080", valkey)] {
            let mut file = [&signature[..], content].concat();
            file.extend(CHECKSUM.checksum(&file).to_le_bytes());
            let mut reader = Reader::open(&file[..], true).unwrap();
            let Ok(Some(Item::Key(key))) = reader.next_item(&Limits::default()) else { panic!("no key") };
            let fields = Hash::view(key.value.content).with_expiries();
            assert!(fields.eq([(&b"f"[..], &b"v"[..], Some(9))]));
            assert!(matches!(reader.next_item(&Limits::default()), Ok(None)));
        }
        assert_eq!(of(b"VALKEY081", &[23, 1, b'k', 0]), refused("a hash of paths"));
        for number in [24, 25, 26, 150] {
            let unknown = format!("Unknown RDB encoding type {number} (offset 9)");
            assert_eq!(of(b"VALKEY080", &[number, 1, b'k', 0]), unknown);
        }
        let section = |what: &str| format!("there is {what}, which is not supported (offset 9)");
        assert_eq!(of(b"REDIS0013", b"\xf3"), section("what a module knows of a key"));
        assert_eq!(of(b"VALKEY080", b"\xf3"), section("a slot that moves between servers"));
        let command = "a command that came while the file was written";
        assert_eq!(of(b"VALKEY080", b"\xf2"), section(command));
    }

    #[test]
    fn a_file_that_was_cut_or_changed_anywhere_is_refused() {
        let text = "some value, long enough to be worth it, long enough";
        let keys = [key(0, "k", "v", None), key(1, "number", "77777", Some(9)), key(1, "text", text, None)];
        let file = written(&keys, &[b"code"], Form { compresses: true, has_checksum: true });
        assert_eq!(read(&file), Ok((keys.to_vec(), vec![b"code".to_vec()])));
        for at in 0..file.len() {
            assert!(read(&file[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                // The changed byte may be in the version; the checksum covers that, too.
                assert!(read(&changed).is_err(), "bit {bit} of {at}");
            }
        }
    }

    fn a_key() -> impl Strategy<Value = Owned> {
        let expires_at_ms = any::<Option<u32>>().prop_map(|moment| moment.map(u64::from));
        let (key, value) = (vec(any::<u8>(), 0..70), vec(0..4_u8, 0..300));
        (0..4_usize, key, value, expires_at_ms, any::<Option<u8>>())
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            keys in vec(a_key(), 0..20),
            libraries in vec(vec(any::<u8>(), 0..100), 0..3),
            compresses in any::<bool>(),
            has_checksum in any::<bool>(),
        ) {
            let codes: Vec<&[u8]> = libraries.iter().map(Vec::as_slice).collect();
            let file = written(&keys, &codes, Form { compresses, has_checksum });
            prop_assert_eq!(read(&file), Ok((keys, libraries)));
        }

        /// The checksum is corrected after each change, so that the change reaches the code that reads the
        /// content.
        #[test]
        fn changed_files_do_no_harm(
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
            trailing in vec(any::<u8>(), 0..30),
        ) {
            let text = "some value, long enough to be worth it, long enough";
            let keys = [key(0, "k", "v", None), key(1, "number", "77777", Some(9)), key(1, "text", text, None)];
            let written = written(&keys, &[b"code"], Form { compresses: true, has_checksum: true });
            let mut content = written[9..written.len() - 9].to_vec();
            content.extend(trailing);
            for (at, byte) in changes {
                let at = at.index(content.len());
                content[at] = byte;
            }
            let _ = read(&file(10, &content));
        }

        #[test]
        fn garbage_does_no_harm(content in vec(prop_oneof![any::<u8>(), 242..=255_u8, 0..8_u8], 0..200)) {
            let _ = read(&file(VERSION_MAX, &content));
            let _ = read(&[&b"VALKEY080"[..], &content].concat());
        }
    }
}
