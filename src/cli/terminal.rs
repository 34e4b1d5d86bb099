//! What a server sends is shown on a terminal and not obeyed by it.
//!
//! A terminal takes some bytes as commands: to move, to change its title, to type for the user. A value, an
//! error or the name of a client can hold them, and a client that can write a value would reach every user
//! who looks at it. So on a terminal control characters are printed as `\x1b`, whatever the output format.
//! Where the output goes to a file or a pipe it is left as it is, as redis-cli leaves it everywhere.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::progress::beside_bar;

/// A writer that makes control characters visible if it writes to a terminal. Line breaks and tabs stay.
pub(super) struct Shown<W> {
    out: W,
    is_terminal: bool,
    /// The byte before, where it decides what the next one means: a carriage return, or the first of the
    /// second half of Latin-1 in UTF-8.
    before: Option<u8>,
    /// Bytes of the character that are still to come, in UTF-8.
    left: u8,
}

impl<W: Write> Shown<W> {
    /// Around a writer, which goes to a terminal or does not.
    pub(super) fn new(out: W, is_terminal: bool) -> Shown<W> {
        Shown { out, is_terminal, before: None, left: 0 }
    }

    fn write_byte(&mut self, byte: u8) -> io::Result<()> {
        match (self.before.take(), byte) {
            // The end of a line, in texts such as that of INFO.
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
    // Nothing is left to tell it to.
    let _ = beside_bar(|| {
        let mut out = Shown::new(error.lock(), is_terminal);
        writeln!(out, "{line}").and_then(|()| out.flush())
    });
}

/// A text of a server, for a place that only a terminal has: a hint, or a page of help.
pub(super) fn shown(text: &[u8]) -> String {
    let mut out = Shown::new(Vec::new(), true);
    // Memory takes everything.
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
            // CSI as one byte, and as a character of UTF-8.
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
