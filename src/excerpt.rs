//! Cuts texts that clients choose and that the server remembers beside its data: names of clients and users,
//! keys, arguments. They may have any length, and the server remembers them longer than the client stays.

use std::borrow::Cow;

/// Bytes of a text that are kept. Redis: `SLOWLOG_ENTRY_MAX_STRING`.
const KEPT_BYTES_MAX: usize = 128;

/// A text, or the beginning of a long one with the number of bytes that are missing, as SLOWLOG of Redis cuts
/// arguments.
pub(crate) fn excerpt(text: &[u8]) -> Cow<'_, [u8]> {
    match text.split_at_checked(KEPT_BYTES_MAX) {
        Some((beginning, rest)) if !rest.is_empty() => {
            [beginning, format!("... ({} more bytes)", rest.len()).as_bytes()].concat().into()
        }
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_texts_are_cut() {
        let long = [b'x'; 129];
        assert!(matches!(excerpt(&long[..128]), Cow::Borrowed(whole) if *whole == long[..128]));
        assert_eq!(excerpt(&long), [&long[..128], b"... (1 more bytes)"].concat());
        assert_eq!(excerpt(b""), b"".as_slice());
    }
}
