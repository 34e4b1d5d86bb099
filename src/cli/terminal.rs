//! Makes control characters from a server visible on a terminal.
//!
//! A terminal takes some bytes as commands: to move the cursor, to change its title, to type for the user. A
//! value, an error or a client's name can contain such bytes. So a client that can write a value could attack
//! every user who looks at it. On a terminal control characters are printed as `\x1b`, in every output
//! format. Output to a file or a pipe is unchanged, as redis-cli leaves it everywhere.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::progress::beside_bar;

/// The environment variable that makes the client treat standard output as a terminal. Redis: the same.
const TERMINAL_VARIABLE: &str = "FAKETTY";

/// Whether standard output counts as a terminal.
pub(super) fn is_terminal() -> bool {
    io::stdout().is_terminal() || env::var_os(TERMINAL_VARIABLE).is_some()
}

/// A writer that makes control characters visible if it writes to a terminal. Line breaks and tabs stay.
pub(super) struct Shown<W> {
    out: W,
    is_terminal: bool,
    /// The byte before, if it decides the meaning of the next one: a carriage return, or 0xC2, the first byte
    /// of the characters U+0080 to U+00BF in UTF-8.
    before: Option<u8>,
    /// Bytes that are missing of the current UTF-8 character.
    left: u8,
}

impl<W: Write> Shown<W> {
    /// Wraps a writer; `is_terminal` says whether it writes to a terminal.
    pub(super) fn new(out: W, is_terminal: bool) -> Shown<W> {
        Shown { out, is_terminal, before: None, left: 0 }
    }

    fn write_byte(&mut self, byte: u8) -> io::Result<()> {
        match (self.before.take(), byte) {
            // A line end, in texts such as that of INFO.
            (Some(b'\r'), b'\n') => return self.out.write_all(b"\r\n"),
            (Some(0xc2), 0x80..=0x9f) => {
                self.left = 0;
                return write!(self.out, "\\xc2\\x{byte:02x}");
            }
            (Some(b'\r'), _) => self.out.write_all(b"\\r")?,
            (Some(before), _) => self.out.write_all(&[before])?,
            (None, _) => {}
        }
        match byte {
            b'\r' => self.before = Some(byte),
            0xc2 => (self.before, self.left) = (Some(byte), 1),
            0x80..=0xbf if self.left > 0 => {
                self.left -= 1;
                return self.out.write_all(&[byte]);
            }
            b'\n' | b'\t' | b' '..=b'~' | 0xa0..=0xff => self.out.write_all(&[byte])?,
            _ => write!(self.out, "\\x{byte:02x}")?,
        }
        self.left = match byte {
            0xc2..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => 0,
        };
        Ok(())
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.out.write(bytes);
        }
        bytes.iter().try_for_each(|byte| self.write_byte(*byte))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.before.take() {
            Some(b'\r') => self.out.write_all(b"\\r")?,
            Some(before) => self.out.write_all(&[before])?,
            None => {}
        }
        self.out.flush()
    }
}

/// Prints a line to standard error.
pub(super) fn complain(line: impl Display) {
    let error = io::stderr();
    let is_terminal = error.is_terminal();
    // If this fails there is no other place for the message.
    let _ = beside_bar(|| {
        let mut out = Shown::new(error.lock(), is_terminal);
        writeln!(out, "{line}").and_then(|()| out.flush())
    });
}

/// A text from the server, made visible for output that only a terminal gets: a hint, or a page of help.
pub(super) fn shown(text: &[u8]) -> String {
    let mut out = Shown::new(Vec::new(), true);
    // A write to memory cannot fail.
    let _ = out.write_all(text).and_then(|()| out.flush());
    String::from_utf8_lossy(&out.out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_control_characters_and_does_not_obey_them() {
        for (text, expected) in [
            (&b"\x1b]0;x\x07"[..], "\\x1b]0;x\\x07"),
            (b"a\r\nb\n\tc", "a\r\nb\n\tc"),
            (b"true\rfalse", "true\\rfalse"),
            (b"end\r", "end\\r"),
            (b"\x00\x08\x7f", "\\x00\\x08\\x7f"),
            // CSI as one byte, and as a UTF-8 character.
            (b"\x9b31m", "\\x9b31m"),
            ("\u{9b}31m".as_bytes(), "\\xc2\\x9b31m"),
            ("é ü € 😀 \u{a0}".as_bytes(), "é ü € 😀 \u{a0}"),
            (b"a\\x1b", "a\\x1b"),
        ] {
            assert_eq!(shown(text), expected, "{}", text.escape_ascii());
        }
        let mut piped = Shown::new(Vec::new(), false);
        piped.write_all(b"\x1b]0;x\x07\r").unwrap();
        assert_eq!(piped.out, b"\x1b]0;x\x07\r");
    }
}
