//! What DUMP makes of a value and RESTORE takes: the format of Redis's snapshots, for one value.
//!
//! A byte for the type, the value, the version of the format, a checksum. How strings are written is in
//! [`strings`], which whole snapshots share; one above twenty bytes is compressed ([`lzf`]) where that makes
//! it shorter. The elements of collections are read by [`collections`], also from the [`packed`] encodings of
//! all versions of Redis. Payloads come from clients: every length in one is held against what is really
//! there before it is believed.

pub(crate) mod collections;
mod libraries;
mod lzf;
pub(crate) mod packed;
pub(crate) mod strings;

use std::ops::RangeInclusive;

use crc::{CRC_64_REDIS, Crc, Table};

use crate::resp::number::parse_integer;

pub(crate) use libraries::{LIBRARY, LIBRARY_BEFORE_7, Libraries, encode_libraries};
pub use lzf::Compressor;

/// The checksum of payloads and of whole snapshots.
pub static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The version of the format that Redis 7.0 writes.
pub const VERSION: u16 = 10;
/// The version of the format that Redis 7.2 writes, the first that says when a stream's consumer was active.
pub(crate) const VERSION_WITH_ACTIVITY: u16 = 11;
/// The form of a stream with such a consumer.
pub(crate) const STREAM_WITH_ACTIVITY: u8 = 21;
/// The version of the format that Redis 7.4 writes, the first with expiring fields. Keyfast writes it where
/// there are some.
pub(crate) const VERSION_WITH_FIELD_EXPIRIES: u16 = 12;
/// The version of the format that Redis 8.6 writes, the first with producers of a stream's entries.
pub(crate) const VERSION_WITH_PRODUCERS: u16 = 13;
/// The form of a stream with producers.
pub(crate) const STREAM_WITH_PRODUCERS: u8 = 26;
/// The version of the format that Redis 8.8 writes, the first with entries of a stream that a consumer has
/// given back.
pub(crate) const VERSION_WITH_RELEASED: u16 = 14;
/// The form of a stream with such entries.
pub(crate) const STREAM_WITH_RELEASED: u8 = 27;
/// The newest version of Redis that is read: 12 is that of Redis 7.4 to 8.4, 13 of 8.6, 14 of 8.8, 15 of
/// 8.10, 16 of 8.12. What they brought are types of values, each with a number of its own.
pub(crate) const VERSION_MAX: u16 = 16;
/// The versions of Valkey: 80 is that of 9.0 and 9.1, 81 of 9.2. Those in between are left to Redis.
pub(crate) const VERSIONS_OF_VALKEY: RangeInclusive<u16> = 80..=81;

/// Who wrote a file or a payload. They parted after version 11, and gave the same numbers to different
/// things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// Redis, or Keyfast.
    Redis,
    /// Valkey 9 or later.
    Valkey,
}

impl Author {
    /// The author of this version of the format.
    pub(crate) fn of_version(version: u16) -> Option<Author> {
        match version {
            1..=VERSION_MAX => Some(Author::Redis),
            _ if VERSIONS_OF_VALKEY.contains(&version) => Some(Author::Valkey),
            _ => None,
        }
    }

    /// The form of a value with this number: the number itself, or one above 127 for a form of Valkey whose
    /// number means another one in Redis.
    pub(crate) fn form(self, number: u8) -> Option<u8> {
        match self {
            _ if number >= 0x80 => None,
            Author::Valkey if number == collections::HASH_OF_VALKEY => {
                Some(collections::HASH_EXPIRING_OF_VALKEY)
            }
            Author::Valkey if number > collections::HASH_OF_VALKEY => None,
            _ => Some(number),
        }
    }
}

/// Why a payload is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DumpError {
    /// It is too new, or was changed on its way.
    VersionOrChecksum,
    /// It is of no known type, or not whole, or too long.
    BadFormat,
}

/// Makes a payload of what it is to contain: adds version and checksum.
pub(crate) fn sign(mut payload: Vec<u8>) -> Vec<u8> {
    let version = match payload.first() {
        Some(&(collections::HASH_EXPIRING | collections::HASH_LISTPACK_EXPIRING)) => {
            VERSION_WITH_FIELD_EXPIRIES
        }
        Some(&STREAM_WITH_ACTIVITY) => VERSION_WITH_ACTIVITY,
        Some(&STREAM_WITH_PRODUCERS) => VERSION_WITH_PRODUCERS,
        Some(&STREAM_WITH_RELEASED) => VERSION_WITH_RELEASED,
        _ => VERSION,
    };
    payload.extend(version.to_le_bytes());
    let checksum = CHECKSUM.checksum(&payload);
    payload.extend(checksum.to_le_bytes());
    payload
}

/// What stands behind the value of a lock in a payload, and the digits of its fencing number behind it. Redis
/// and Valkey do not read what stands there.
const LOCK_MARK: &[u8] = b"keyfast-lock";

/// Appends the fencing number of a lock to the payload of its value, if it has one.
pub(crate) fn append_fence(payload: &mut Vec<u8>, fence: Option<u64>) {
    if let Some(fence) = fence {
        payload.extend_from_slice(LOCK_MARK);
        payload.extend_from_slice(itoa::Buffer::new().format(fence).as_bytes());
    }
}

/// Reads what stands behind a value: the fencing number if it is that of a lock, and `None` if nothing stands
/// there.
///
/// # Errors
///
/// [`DumpError::BadFormat`]
pub(crate) fn read_fence(behind: &[u8]) -> Result<Option<u64>, DumpError> {
    if behind.is_empty() {
        return Ok(None);
    }
    let digits = behind.strip_prefix(LOCK_MARK).ok_or(DumpError::BadFormat)?;
    let number = match digits {
        // Version 1.0.0 has written no number.
        b"" => Some(0),
        digits => parse_integer(digits).and_then(|number| u64::try_from(number).ok()),
    };
    number.map(Some).ok_or(DumpError::BadFormat)
}

/// Returns a payload without its version and checksum, and its author. The checksum may be wrong unless the
/// caller `verifies` it.
///
/// # Errors
///
/// [`DumpError::VersionOrChecksum`]
pub(crate) fn content_of(payload: &[u8], verifies: bool) -> Result<(&[u8], Author), DumpError> {
    let (checked, checksum) = payload.split_last_chunk().ok_or(DumpError::VersionOrChecksum)?;
    let (content, version) = checked.split_last_chunk().ok_or(DumpError::VersionOrChecksum)?;
    let author = Author::of_version(u16::from_le_bytes(*version)).ok_or(DumpError::VersionOrChecksum)?;
    // A checksum of zero is none: Redis writes it where `rdbchecksum` is off.
    let checksum = u64::from_le_bytes(*checksum);
    let is_right = !verifies || checksum == 0 || CHECKSUM.checksum(checked) == checksum;
    if is_right { Ok((content, author)) } else { Err(DumpError::VersionOrChecksum) }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::strings::{Decoder, write_string};
    use super::*;

    const TYPE_STRING: u8 = 0;
    const VALUE_BYTES_MAX: usize = 1 << 20;
    /// Version and checksum.
    const FOOTER_BYTES: usize = 2 + 8;

    /// The payload of a string.
    fn encode(value: &[u8]) -> Vec<u8> {
        let mut payload = vec![TYPE_STRING];
        write_string(&mut payload, value, Some(&mut Compressor::default()));
        sign(payload)
    }

    /// The string of a payload.
    fn decode(payload: &[u8], value_bytes_max: usize) -> Result<Vec<u8>, DumpError> {
        let mut decoder = Decoder::new(content_of(payload, true)?.0, value_bytes_max);
        let mut value = Vec::new();
        match decoder.byte() {
            Ok(TYPE_STRING) => decoder.string(&mut value).map_err(|_| DumpError::BadFormat)?,
            _ => return Err(DumpError::BadFormat),
        }
        if decoder.input.is_empty() { Ok(value) } else { Err(DumpError::BadFormat) }
    }

    /// A value with what compression and its limits are about: repetitions, near and far.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![vec(any::<u8>(), 0..40), vec(0..3_u8, 0..400), Just(vec![b'x'; 300])];
        vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn payloads_are_those_of_redis() {
        let bytes: Vec<u8> = (0..64).collect();
        for (value, payload) in [
            (&b""[..], &b"\x00\x00\n\x00]\x9b\\@\x0f\x7f\xa2\xda"[..]),
            (b"10", b"\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb"),
            (b"-128", b"\x00\xc0\x80\n\x00\x99f2m/\x0c[\xd9"),
            (b"128", b"\x00\xc1\x80\x00\n\x00\xebz\xb3\xb5\x10\xcfKe"),
            (b"-32769", b"\x00\xc2\xff\x7f\xff\xff\n\x00\xae\xe3LM\x06\xc6\x856"),
            (b"2147483647", b"\x00\xc2\xff\xff\xff\x7f\n\x00,t\xe5\x9e\xe0.\xad\xa1"),
            (b"2147483648", b"\x00\n2147483648\n\x00\xe7\xb1)\xa3L\x1dv\xee"),
            (b"007", b"\x00\x03007\n\x00rX\xe2{Li\xba\xd9"),
            (b"token-1", b"\x00\x07token-1\n\x00DP\xe6\xd9\xa6\xbbU+"),
            (&bytes, &[b"\x00@@", &bytes[..], b"\n\x00\x8c\x0c\x07\xac\xf5\x08\xb4E"].concat()),
            (&[b'x'; 20], b"\x00\x14xxxxxxxxxxxxxxxxxxxx\n\x00[<\x81\xec\xa5\x8c\xc5k"),
            (&[b'x'; 21], b"\x00\xc3\x06\x15\x01xx\xe0\n\x00\n\x00\x94\x1a\x83g`\x17\x19/"),
            (&[b'x'; 100], b"\x00\xc3\x09@d\x01xx\xe0W\x00\x01xx\n\x00]\xb7\xf6c\xbb\x08b_"),
            (
                &[b'x'; 1000],
                b"\x00\xc3\x12C\xe8\x01xx\xe0\xff\x00\xe0\xff\x00\xe0\xff\x00\xe0\xc3\x00\x01xx\
                  \n\x00\x92\x19\xe2\x96m\x93,\x99",
            ),
            (&b"ab".repeat(40), b"\x00\xc3\n@P\x02aba\xe0B\x01\x01ab\n\x00\x94\x9d_\x0e\xb1\xde\xa4E"),
            // What lies across the end of a repetition is found again.
            (
                b"(abcdef)(abcdX)cdX(abcdef)cdX)(abcdef)",
                b"\x00\xc3\x1b&\x08(abcdef)(@\x07\x01X) \x03`\x09 \x11 \n\x80\x15 \x0b\
                  \n\x003\xe3\x81\xa3S\x8f\"\xad",
            ),
            (
                b"the lock of the job of the day of the lock",
                b"\x00\xc3 *\x0cthe lock of t \x0b\x02job\xc0\n\x02day\xc0\n !\x00k\
                  \n\x00+\x90\xee\xc4U\x87\xb1I",
            ),
        ] {
            assert_eq!(encode(value).escape_ascii().to_string(), payload.escape_ascii().to_string());
            assert_eq!(decode(payload, VALUE_BYTES_MAX).as_deref(), Ok(value));
        }
    }

    #[test]
    fn long_lengths_are_those_of_redis() {
        let start = b"\x00\xc3@\xea\x80\x00\x00N \x01\x00\x00";
        let end = b"\xe0\xbb\x00\x01\x00\x00\n\x00)\x09\x14U\xd2<\"\xcb";
        let payload = [&start[..], &b"\xe0\xff\x00".repeat(75), end].concat();
        assert_eq!(encode(&[0; 20_000]), payload);
        assert_eq!(decode(&payload, VALUE_BYTES_MAX), Ok(vec![0; 20_000]));
    }

    #[test]
    fn what_was_changed_on_its_way_is_refused() {
        let payload = encode(b"some value, long enough to be worth it");
        for at in 0..payload.len() {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            assert_eq!(decode(&changed, VALUE_BYTES_MAX), Err(DumpError::VersionOrChecksum), "{at}");
            assert_eq!(decode(&payload[..at], VALUE_BYTES_MAX), Err(DumpError::VersionOrChecksum));
        }
    }

    /// A payload whose checksum is right, whatever is in it.
    fn signed(content: &[u8]) -> Vec<u8> {
        let mut payload = [content, &VERSION.to_le_bytes()].concat();
        payload.extend(CHECKSUM.checksum(&payload).to_le_bytes());
        payload
    }

    #[test]
    fn hostile_payloads_are_refused() {
        for content in [
            &b""[..],
            b"\x01\x00",
            b"\x00",
            b"\x00\x05abc",
            b"\x00\x03abcd",
            b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x00\x80\x7f\xff\xff\xffabc",
            b"\x00\xc4",
            b"\x00\xc3\x02\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x00a",
            b"\x00\xc3\x03\x40\xff\x00a\x20",
            b"\x00\xc3\x02\x09\xe0\xff",
        ] {
            let payload = signed(content);
            assert_eq!(decode(&payload, VALUE_BYTES_MAX), Err(DumpError::BadFormat), "{content:?}");
        }
        let long = encode(&[b'x'; 1000]);
        assert_eq!(decode(&long, 999), Err(DumpError::BadFormat), "longer than allowed");
        let in_version = |version: u16| {
            let mut payload = encode(b"value");
            payload.truncate(payload.len() - FOOTER_BYTES);
            payload.extend(version.to_le_bytes());
            payload.extend(CHECKSUM.checksum(&payload).to_le_bytes());
            decode(&payload, VALUE_BYTES_MAX)
        };
        let (first, last) = VERSIONS_OF_VALKEY.into_inner();
        for known in [1, VERSION, VERSION_MAX, first, last] {
            assert_eq!(in_version(known), Ok(b"value".to_vec()), "{known}");
        }
        for unknown in [0, VERSION_MAX + 1, first - 1, last + 1, u16::MAX] {
            assert_eq!(in_version(unknown), Err(DumpError::VersionOrChecksum), "{unknown}");
        }
    }

    #[test]
    fn the_number_of_a_lock_stands_behind_its_value() {
        for fence in [None, Some(0), Some(7), Some(1 << 50)] {
            let mut payload = Vec::new();
            append_fence(&mut payload, fence);
            assert_eq!(read_fence(&payload), Ok(fence));
        }
        assert_eq!(read_fence(b"keyfast-lock"), Ok(Some(0)), "as version 1.0.0 has written it");
        for wrong in ["x", "keyfast-loc", "keyfast-lock-1", "keyfast-lock 1"] {
            assert_eq!(read_fence(wrong.as_bytes()), Err(DumpError::BadFormat), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn values_come_back(value in value()) {
            prop_assert_eq!(decode(&encode(&value), VALUE_BYTES_MAX), Ok(value));
        }

        /// Signed again, so that the checksum does not keep the changes from what reads the content.
        #[test]
        fn changed_payloads_do_no_harm(
            value in value(),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in 0..4_usize,
            trailing in vec(any::<u8>(), 0..4),
        ) {
            let mut content = encode(&value);
            content.truncate(content.len() - FOOTER_BYTES - cut.min(content.len() - FOOTER_BYTES));
            for (at, byte) in changes {
                if !content.is_empty() {
                    let at = at.index(content.len());
                    content[at] = byte;
                }
            }
            content.extend(trailing);
            match decode(&signed(&content), VALUE_BYTES_MAX) {
                Ok(value) => prop_assert_eq!(decode(&encode(&value), VALUE_BYTES_MAX), Ok(value)),
                Err(error) => prop_assert_eq!(error, DumpError::BadFormat),
            }
        }

        #[test]
        fn garbage_does_no_harm(content in vec(any::<u8>(), 0..200)) {
            let compressed = [&[TYPE_STRING, strings::ENCODED_LZF][..], &content].concat();
            let _ = decode(&signed(&compressed), VALUE_BYTES_MAX);
            let _ = decode(&signed(&content), VALUE_BYTES_MAX);
            let _ = decode(&content, VALUE_BYTES_MAX);
        }
    }
}
