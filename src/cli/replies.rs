//! Decodes replies of both protocols.
//!
//! The crate `redis-protocol` decodes values that are not nested. This module puts arrays, maps, sets and
//! pushes together, on its own stack. The crate's decoder recurses as deep as a server says, reserves memory
//! for announced lengths, starts again whenever more bytes have come, and has no map or set whose keys are
//! arrays or occur twice. So it is only given values that have arrived whole.
//!
//! The errors are those of hiredis, which people know from redis-cli.

use redis_protocol::resp3::decode::complete::decode_range;
use redis_protocol::resp3::types::RangeFrame;

use crate::resp::number::parse_integer;

/// The deepest nesting of replies: printing recurses once per level. The deepest reply of a command is
/// COMMAND DOCS, with 10.
pub(super) const DEPTH_MAX: usize = 512;
/// The most bytes of one reply, which is held as a whole before it is printed: eight of the longest values.
pub(super) const REPLY_BYTES_MAX: usize = 4 << 30;
/// How a server that expects TLS begins its answer to a plain request: an alert, version 3.
const TLS_ALERT: [u8; 2] = [0x15, 3];
/// What the error says then, behind the text of hiredis.
const TLS_HINT: &str = ". The server seems to speak TLS: add --tls";
/// The most consumed bytes at the front of the input before they are dropped.
const CONSUMED_BYTES_MAX: usize = 64 << 10;

/// A reply, or a part of one. A map's members are its keys and values in turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    Status(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    /// The text as it came: parsing and printing a number may change it.
    Double(Vec<u8>),
    Boolean(bool),
    Nil,
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    BigNumber(Vec<u8>),
    Many(Aggregate, Vec<Message>),
}

/// The kinds of nested replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Array,
    Map,
    Set,
    Push,
}

/// The bytes that are not decoded yet, and the replies that are not complete.
#[derive(Default)]
pub(super) struct Decoder {
    input: Vec<u8>,
    /// Bytes at the front of the input that have been decoded.
    consumed: usize,
    /// Bytes behind them that have been searched for a line end.
    searched: usize,
    /// The incomplete nested replies, the outermost first.
    open: Vec<Open>,
    /// Bytes of the current reply.
    reply_bytes: usize,
}

struct Open {
    kind: Aggregate,
    members: Vec<Message>,
    /// Members that have not arrived yet.
    missing: u64,
}

enum Piece {
    Whole(Message),
    Begin(Aggregate, u64),
}

type Decoded<T> = Result<T, String>;

impl Message {
    /// The members of an array, a set or a push.
    pub(super) fn members(&self) -> &[Message] {
        match self {
            Message::Many(_, members) => members,
            _ => &[],
        }
    }

    /// The pairs of a map, or of the array that replaces it in RESP2.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Message, &Message)> {
        self.members().chunks_exact(2).map(|pair| (&pair[0], &pair[1]))
    }

    /// The bytes of a string of any kind.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Message::Status(text) | Message::Error(text) | Message::Bulk(text) | Message::Verbatim(text) => {
                Some(text)
            }
            _ => None,
        }
    }
}

impl Decoder {
    /// Adds bytes from the server.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next complete reply, if it has arrived.
    ///
    /// # Errors
    ///
    /// With one line for people. Nothing more can be decoded then.
    pub(super) fn take_reply(&mut self) -> Decoded<Option<Message>> {
        while let Some(piece) = self.piece()? {
            match piece {
                Piece::Begin(kind, missing @ 1..) => {
                    if self.open.len() == DEPTH_MAX {
                        return Err(format!("Protocol error, replies nested more than {DEPTH_MAX} deep"));
                    }
                    self.open.push(Open { kind, members: Vec::new(), missing });
                }
                Piece::Begin(kind, 0) => {
                    if let Some(reply) = self.close(Message::Many(kind, Vec::new())) {
                        return Ok(Some(reply));
                    }
                }
                Piece::Whole(message) => {
                    if let Some(reply) = self.close(message) {
                        return Ok(Some(reply));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Adds a complete value to the open reply. Returns the outermost reply once it is complete.
    fn close(&mut self, mut whole: Message) -> Option<Message> {
        while let Some(innermost) = self.open.last_mut() {
            innermost.members.push(whole);
            innermost.missing -= 1;
            if innermost.missing > 0 {
                return None;
            }
            let closed = self.open.pop()?;
            whole = Message::Many(closed.kind, closed.members);
        }
        self.reply_bytes = 0;
        Some(whole)
    }

    /// The next flat value, or the header of a nested one.
    fn piece(&mut self) -> Decoded<Option<Piece>> {
        let Some(line_bytes) = self.line()? else { return Ok(None) };
        let line = &self.input[self.consumed..][..line_bytes];
        let (kind, number) = (line[0], &line[1..line_bytes - 2]);
        let begin = match kind {
            b'*' => Some((Aggregate::Array, 1)),
            b'%' => Some((Aggregate::Map, 2)),
            b'~' => Some((Aggregate::Set, 1)),
            b'>' => Some((Aggregate::Push, 1)),
            _ => None,
        };
        let piece = match (begin, kind) {
            (Some((kind, members)), _) => {
                let count = members_announced(number)?;
                self.consume(line_bytes)?;
                match count {
                    None => Piece::Whole(Message::Nil),
                    Some(count) => Piece::Begin(kind, count * members),
                }
            }
            (None, b'$' | b'=') => {
                let Some(bulk_bytes) = bytes_announced(number)? else {
                    self.consume(line_bytes)?;
                    return Ok(Some(Piece::Whole(Message::Nil)));
                };
                let bytes = line_bytes + bulk_bytes + 2;
                if self.input.len() - self.consumed < bytes {
                    self.check_bytes(bytes)?;
                    return Ok(None);
                }
                self.whole(line_bytes, bytes).map(Piece::Whole)?
            }
            (None, b'!') => return Err(unexpected(kind)),
            _ => self.whole(line_bytes, line_bytes).map(Piece::Whole)?,
        };
        Ok(Some(piece))
    }

    /// The length of the next line with its line end, if it has arrived.
    fn line(&mut self) -> Decoded<Option<usize>> {
        let rest = &self.input[self.consumed..];
        let Some(kind) = rest.first() else { return Ok(None) };
        if !b"+-:,#_($=*%~>".contains(kind) {
            let hint = if rest.starts_with(&TLS_ALERT) { TLS_HINT } else { "" };
            return Err(unexpected(*kind) + hint);
        }
        while let Some(found) = memchr::memchr(b'\n', &rest[self.searched..]) {
            let end = self.searched + found;
            if rest[..end].ends_with(b"\r") {
                // The line is searched again if the value behind it has not arrived.
                self.searched = end;
                return Ok(Some(end + 1));
            }
            self.searched = end + 1;
        }
        self.searched = rest.len();
        self.check_bytes(rest.len())?;
        Ok(None)
    }

    /// Decodes one flat value of so many bytes.
    fn whole(&mut self, line_bytes: usize, bytes: usize) -> Decoded<Message> {
        let value = &self.input[self.consumed..][..bytes];
        let message = match value[0] {
            // The crate knows only two formats of verbatim strings.
            b'=' => match &value[line_bytes..bytes - 2] {
                [_, _, _, b':', text @ ..] => Message::Verbatim(text.to_vec()),
                _ => return Err(unreadable(b'=')),
            },
            kind => match decode_range(value) {
                Ok(Some((frame, _))) => message(&frame, value).ok_or_else(|| unreadable(kind))?,
                _ => return Err(unreadable(kind)),
            },
        };
        self.consume(bytes)?;
        Ok(message)
    }

    fn consume(&mut self, bytes: usize) -> Decoded<()> {
        self.check_bytes(bytes)?;
        self.reply_bytes += bytes;
        self.consumed += bytes;
        self.searched = 0;
        if self.consumed == self.input.len() {
            self.input.clear();
            self.consumed = 0;
        } else if self.consumed > CONSUMED_BYTES_MAX && self.consumed > self.input.len() / 2 {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
        Ok(())
    }

    fn check_bytes(&self, more: usize) -> Decoded<()> {
        if more > REPLY_BYTES_MAX - self.reply_bytes {
            return Err(format!("Protocol error, a reply of more than {REPLY_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

/// Converts a flat frame of the crate.
fn message(frame: &RangeFrame, input: &[u8]) -> Option<Message> {
    let bytes = |range: &(usize, usize)| input[range.0..range.1].to_vec();
    let line = || input[1..input.len() - 2].to_vec();
    // The crate accepts more than the protocol allows.
    let is_one_line = || memchr::memchr2(b'\r', b'\n', &input[1..input.len() - 2]).is_none();
    Some(match frame {
        RangeFrame::SimpleString { data, .. } if is_one_line() => Message::Status(bytes(data)),
        RangeFrame::SimpleError { data, .. } if is_one_line() => Message::Error(bytes(data)),
        RangeFrame::Number { .. } => Message::Integer(parse_integer(&line())?),
        RangeFrame::Double { .. } => Message::Double(line()),
        RangeFrame::Boolean { data, .. } => Message::Boolean(*data),
        RangeFrame::Null if line().is_empty() => Message::Nil,
        RangeFrame::BlobString { data, .. } => Message::Bulk(bytes(data)),
        RangeFrame::BigNumber { .. } => {
            let digits = line();
            let unsigned = digits.strip_prefix(b"-").unwrap_or(&digits);
            let is_number = !unsigned.is_empty() && unsigned.iter().all(u8::is_ascii_digit);
            is_number.then_some(Message::BigNumber(digits))?
        }
        _ => return None,
    })
}

/// The announced number of members, or of pairs; `None` for a null.
fn members_announced(number: &[u8]) -> Decoded<Option<u64>> {
    match parse_integer(number) {
        Some(-1) => Ok(None),
        Some(count @ 0..=0xffff_ffff) => Ok(Some(count.unsigned_abs())),
        Some(_) => Err("Multi-bulk length out of range".to_owned()),
        None => Err("Bad multi-bulk length".to_owned()),
    }
}

/// The announced number of bytes; `None` for a null.
fn bytes_announced(number: &[u8]) -> Decoded<Option<usize>> {
    match parse_integer(number) {
        Some(-1) => Ok(None),
        Some(length) => match usize::try_from(length) {
            Ok(length) if length <= REPLY_BYTES_MAX => Ok(Some(length)),
            _ => Err("Bulk string length out of range".to_owned()),
        },
        None => Err("Bad bulk string length".to_owned()),
    }
}

fn unexpected(kind: u8) -> String {
    format!("Protocol error, got {} as reply type byte", super::quoting::shown(&[kind]))
}

/// The error of hiredis for an invalid value of this type.
fn unreadable(kind: u8) -> String {
    match kind {
        b':' => "Bad integer value",
        b',' => "Bad double value",
        b'#' => "Bad bool value",
        b'_' => "Bad nil value",
        b'(' => "Bad bignum value",
        b'=' => "Verbatim string 4 bytes of content type are missing or incorrectly encoded.",
        b'$' => "Bad bulk string length",
        _ => "Bad simple string value",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Decoded<Vec<Message>> {
        let mut decoder = Decoder::default();
        decoder.extend(input);
        let mut messages = Vec::new();
        while let Some(message) = decoder.take_reply()? {
            messages.push(message);
        }
        Ok(messages)
    }

    fn bulk(text: &str) -> Message {
        Message::Bulk(text.into())
    }

    const EVERYTHING: &[u8] =
        b"*13\r\n$3\r\na\r\n\r\n+st\r\n-ERR e\r\n:-5\r\n,1.50\r\n#t\r\n_\r\n(-123\r\n=6\r\nxyz:he\r\n\
        $-1\r\n*-1\r\n%2\r\n:1\r\n*1\r\n:2\r\n:1\r\n~1\r\n*0\r\n>1\r\n$0\r\n\r\n";

    fn everything() -> Message {
        let map = vec![
            Message::Integer(1),
            Message::Many(Aggregate::Array, vec![Message::Integer(2)]),
            Message::Integer(1),
            Message::Many(Aggregate::Set, vec![Message::Many(Aggregate::Array, Vec::new())]),
        ];
        let members = vec![
            bulk("a\r\n"),
            Message::Status("st".into()),
            Message::Error("ERR e".into()),
            Message::Integer(-5),
            Message::Double("1.50".into()),
            Message::Boolean(true),
            Message::Nil,
            Message::BigNumber("-123".into()),
            Message::Verbatim("he".into()),
            Message::Nil,
            Message::Nil,
            Message::Many(Aggregate::Map, map),
            Message::Many(Aggregate::Push, vec![bulk("")]),
        ];
        Message::Many(Aggregate::Array, members)
    }

    #[test]
    fn every_kind_is_read_however_it_is_cut() {
        assert_eq!(decoded(EVERYTHING), Ok(vec![everything()]));
        for piece_bytes in 1..EVERYTHING.len() {
            let mut decoder = Decoder::default();
            let mut messages = Vec::new();
            for piece in [EVERYTHING, EVERYTHING].concat().chunks(piece_bytes) {
                decoder.extend(piece);
                while let Some(message) = decoder.take_reply().unwrap() {
                    messages.push(message);
                }
            }
            assert_eq!(messages, [everything(), everything()], "in pieces of {piece_bytes}");
        }
    }

    #[test]
    fn a_long_stream_leaves_nothing_behind() {
        let mut decoder = Decoder::default();
        let reply = [b"$1000\r\n", &[b'x'; 1000][..], b"\r\n"].concat();
        for _ in 0..1000 {
            decoder.extend(&reply);
            decoder.extend(b"+half");
            assert!(decoder.take_reply().unwrap().is_some());
            assert!(decoder.take_reply().unwrap().is_none());
            decoder.extend(b"\r\n");
            assert_eq!(decoder.take_reply(), Ok(Some(Message::Status("half".into()))));
        }
        assert!(decoder.input.capacity() < 4 * CONSUMED_BYTES_MAX);
    }

    #[test]
    fn nothing_is_reserved_for_what_is_only_announced() {
        for input in
            [&b"*4294967295\r\n"[..], b"%4294967295\r\n:1\r\n", b"$4000000000\r\nx", b"*9\r\n*9\r\n*9\r\n"]
        {
            let mut decoder = Decoder::default();
            decoder.extend(input);
            assert_eq!(decoder.take_reply(), Ok(None));
            assert!(decoder.input.capacity() <= 64);
            assert!(decoder.open.iter().all(|open| open.members.capacity() <= 4));
        }
    }

    #[test]
    fn nesting_ends_somewhere() {
        let nested = |depth: usize| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
        assert_eq!(decoded(&nested(DEPTH_MAX)).map(|messages| messages.len()), Ok(1));
        for input in [nested(DEPTH_MAX + 1), nested(1_000_000), b"%1\r\n".repeat(1_000_000)] {
            assert_eq!(decoded(&input), Err("Protocol error, replies nested more than 512 deep".to_owned()));
        }
    }

    #[test]
    fn what_is_wrong_is_told_as_hiredis_tells_it() {
        for (input, expected) in [
            (&b"|1\r\n"[..], "Protocol error, got \"|\" as reply type byte"),
            (b"!5\r\nERR x\r\n", "Protocol error, got \"!\" as reply type byte"),
            (b"H", "Protocol error, got \"H\" as reply type byte"),
            (b"\x15", "Protocol error, got \"\\x15\" as reply type byte"),
            (
                b"\x15\x03\x01\x00\x02\x02\x0a",
                "Protocol error, got \"\\x15\" as reply type byte. The server seems to speak TLS: add --tls",
            ),
            (b"\xff", "Protocol error, got \"\\xff\" as reply type byte"),
            (b"$?\r\n", "Bad bulk string length"),
            (b"$-2\r\n", "Bulk string length out of range"),
            (b"$9999999999999\r\n", "Bulk string length out of range"),
            (b"*99999999999\r\n", "Multi-bulk length out of range"),
            (b"*x\r\n", "Bad multi-bulk length"),
            (b":abc\r\n", "Bad integer value"),
            (b":99999999999999999999\r\n", "Bad integer value"),
            (b":\r\n", "Bad integer value"),
            (b":007\r\n", "Bad integer value"),
            (b"_x\r\n", "Bad nil value"),
            (b"+a\nb\r\n", "Bad simple string value"),
            (b",abc\r\n", "Bad double value"),
            (b",\r\n", "Bad double value"),
            (b"#x\r\n", "Bad bool value"),
            (b"(12a\r\n", "Bad bignum value"),
            (
                b"=5\r\nabcde\r\n",
                "Verbatim string 4 bytes of content type are missing or incorrectly encoded.",
            ),
            (b"=3\r\nabc\r\n", "Verbatim string 4 bytes of content type are missing or incorrectly encoded."),
        ] {
            assert_eq!(decoded(input), Err(expected.to_owned()), "{}", input.escape_ascii());
        }
        assert_eq!(decoded(b"$3\r\nabcde"), Ok(vec![bulk("abc")]), "its end is not looked at");
    }
}
