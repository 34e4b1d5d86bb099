//! The payload of FUNCTION DUMP and FUNCTION RESTORE: for each library a byte for its kind and its code as a
//! string, then the version and the checksum of all.

use super::strings::{Decoder, write_string};
use super::{Compressor, DumpError, content_of, sign};

/// A library, in payloads and in snapshots.
pub(crate) const LIBRARY: u8 = 245;
/// One as the release candidates of Redis 7.0 wrote it, with another header.
pub(crate) const LIBRARY_BEFORE_7: u8 = 246;

/// Makes a payload of the codes of libraries.
pub(crate) fn encode_libraries<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut compressor = Compressor::default();
    for code in codes {
        payload.push(LIBRARY);
        write_string(&mut payload, code, Some(&mut compressor));
    }
    sign(payload)
}

/// Iterates over the codes of the libraries in a payload. It ends at the first that is invalid, with an error
/// in the words of Redis.
pub(crate) struct Libraries<'a> {
    decoder: Decoder<&'a [u8]>,
}

impl<'a> Libraries<'a> {
    /// Reads a payload whose libraries have at most `code_bytes_max` each. Its checksum may be wrong unless
    /// the caller `verifies` it.
    ///
    /// # Errors
    ///
    /// [`DumpError::VersionOrChecksum`]
    pub(crate) fn of(
        payload: &'a [u8],
        code_bytes_max: usize,
        verifies: bool,
    ) -> Result<Libraries<'a>, DumpError> {
        Ok(Libraries { decoder: Decoder::new(content_of(payload, verifies)?.0, code_bytes_max) })
    }
}

impl Iterator for Libraries<'_> {
    type Item = Result<Vec<u8>, &'static str>;

    fn next(&mut self) -> Option<Result<Vec<u8>, &'static str>> {
        let mut code = Vec::new();
        let read = match self.decoder.byte().ok()? {
            LIBRARY => match self.decoder.string(&mut code) {
                Ok(()) => Ok(code),
                Err(_) => Err("ERR Failed loading library payload"),
            },
            // The text is that of Redis 7.2, which does not read it either.
            LIBRARY_BEFORE_7 => Err("ERR Pre-GA function format not supported"),
            _ => Err("ERR given type is not a function"),
        };
        if read.is_err() {
            self.decoder.input = &[];
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const CODE_BYTES_MAX: usize = 1 << 16;

    fn read(payload: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
        Libraries::of(payload, CODE_BYTES_MAX, true).expect("a right checksum").collect()
    }

    #[test]
    fn payloads_are_those_of_redis() {
        let code = |name: &str| {
            format!("#!lua name={name}\nredis.register_function(\"f{name}\",function() return 1 end)")
        };
        let payload =
            [b"\xf5@B", code("b").as_bytes(), b"\xf5@B", code("a").as_bytes(), b"\n\x00\xe57=\xda*6/\xfc"]
                .concat();
        let codes = [code("b"), code("a")].map(String::into_bytes);
        assert_eq!(encode_libraries(codes.iter().map(Vec::as_slice)), payload);
        assert_eq!(read(&payload), Ok(codes.to_vec()));
        assert_eq!(encode_libraries(std::iter::empty()), b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda");
    }

    #[test]
    fn hostile_payloads_are_refused() {
        for (content, why) in [
            (&b"\xf5"[..], "ERR Failed loading library payload"),
            (b"\xf5\x05ab", "ERR Failed loading library payload"),
            (b"\xf5\x81\xff\xff\xff\xff\xff\xff\xff\xff", "ERR Failed loading library payload"),
            (b"\xf5\x80\x7f\xff\xff\xff", "ERR Failed loading library payload"),
            (b"\xf5\xc3\x02\x81\x7f\xff\xff\xff\xff\xff\xff\xffa", "ERR Failed loading library payload"),
            (b"\xf5\xc4", "ERR Failed loading library payload"),
            (b"\xf5\x02ab\xff", "ERR given type is not a function"),
            (b"\x00\x01a", "ERR given type is not a function"),
            (b"\xf6\x01a", "ERR Pre-GA function format not supported"),
        ] {
            assert_eq!(read(&sign(content.to_vec())), Err(why), "{content:?}");
        }
        let long = encode_libraries([&[b'x'; CODE_BYTES_MAX + 1][..]].into_iter());
        assert_eq!(read(&long), Err("ERR Failed loading library payload"));
        for payload in [&b""[..], b"123456789", b"0123456789", &long[1..]] {
            assert!(Libraries::of(payload, CODE_BYTES_MAX, true).is_err());
        }
    }

    proptest! {
        #[test]
        fn codes_come_back(codes in vec(vec(any::<u8>(), 0..200), 0..10)) {
            let payload = encode_libraries(codes.iter().map(Vec::as_slice));
            prop_assert_eq!(read(&payload), Ok(codes));
        }

        #[test]
        fn garbage_does_no_harm(content in vec(prop_oneof![Just(LIBRARY), any::<u8>()], 0..200)) {
            let _ = read(&sign(content));
        }
    }
}
