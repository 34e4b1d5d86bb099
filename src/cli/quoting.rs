//! Quotes in typed lines and around printed strings.

use std::io::{self, Write};

use crate::resp::request::words;

/// The string in a quoted argument. `None` if there are several strings, or the quotes do not match.
pub(super) fn unquote(argument: &[u8]) -> Option<Vec<u8>> {
    match words(argument)?.as_mut_slice() {
        [] => Some(Vec::new()),
        [only] => Some(std::mem::take(only)),
        _ => None,
    }
}

/// Prints bytes in double quotes. Everything except printable ASCII is escaped (`sdscatrepr`).
pub(super) fn write_quoted(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(b"\"")?;
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.write_all(&[b'\\', *byte])?,
            b'\n' => out.write_all(b"\\n")?,
            b'\r' => out.write_all(b"\\r")?,
            b'\t' => out.write_all(b"\\t")?,
            0x07 => out.write_all(b"\\a")?,
            0x08 => out.write_all(b"\\b")?,
            b' '..=b'~' => out.write_all(&[*byte])?,
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    out.write_all(b"\"")
}

/// The quoted form of bytes.
pub(super) fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + 2);
    // A write to memory cannot fail.
    let _ = write_quoted(&mut text, bytes);
    text
}

/// The quoted form of bytes, as a `String`.
pub(super) fn shown(bytes: &[u8]) -> String {
    // The quoted form is ASCII.
    String::from_utf8_lossy(&quoted(bytes)).into_owned()
}

/// Prints bytes as a JSON string. Bytes that are not ASCII are printed as they came (`escapeJsonString`).
pub(super) fn write_json(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(b"\"")?;
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.write_all(&[b'\\', *byte])?,
            b'\n' => out.write_all(b"\\n")?,
            0x0c => out.write_all(b"\\f")?,
            b'\r' => out.write_all(b"\\r")?,
            b'\t' => out.write_all(b"\\t")?,
            0x08 => out.write_all(b"\\b")?,
            0..=0x1f => write!(out, "\\u{byte:04x}")?,
            _ => out.write_all(&[*byte])?,
        }
    }
    out.write_all(b"\"")
}

/// Prints bytes as a JSON string in ASCII: quoted as for people, with every backslash doubled.
pub(super) fn write_quoted_json(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for byte in quoted(bytes) {
        match byte {
            b'\\' => out.write_all(b"\\\\")?,
            byte => out.write_all(&[byte])?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_can_be_quoted_and_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unquote(&quoted(&all)), Some(all));
        assert_eq!(quoted(b"a\"\\\xff\x1b\x7f\n\t "), b"\"a\\\"\\\\\\xff\\x1b\\x7f\\n\\t \"");
    }

    #[test]
    fn an_argument_in_quotes_is_one_string() {
        assert_eq!(unquote(b"plain"), Some(b"plain".to_vec()));
        assert_eq!(unquote(b"\"a\\x00 b\""), Some(b"a\0 b".to_vec()));
        assert_eq!(unquote(b""), Some(Vec::new()));
        assert_eq!(unquote(b"a b"), None);
        assert_eq!(unquote(b"\"a"), None);
    }

    #[test]
    fn json_escapes_what_it_must() {
        let mut text = Vec::new();
        write_json(&mut text, b"a\"\\\n\x0c\r\t\x08\x1b\x7f\xff").unwrap();
        assert_eq!(text, b"\"a\\\"\\\\\\n\\f\\r\\t\\b\\u001b\x7f\xff\"");
        text.clear();
        write_quoted_json(&mut text, b"a\"\n\xff").unwrap();
        assert_eq!(text, b"\"a\\\\\"\\\\n\\\\xff\"");
    }
}
