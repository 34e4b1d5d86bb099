//! Nested replies: described once as RESP3 frames of the crate `redis-protocol`, written for either protocol.
//!
//! For replies about the server, which are small and irregular. Data go through
//! [`Reply::nested`](super::Reply::nested), which copies no value: 1,000 entries of a stream take a fifth of
//! the time.
//!
//! Two traps of the crate (6.0) stay in this file. Its encoders may reserve more than they write, so the
//! buffer is cut to the length that they return. Its sets and maps hash their members, which panics for
//! aggregates, so [`Reply::set_of`](super::Reply::set_of) writes a set of arrays instead.

use redis_protocol::resp2::encode::encode as encode_resp2;
use redis_protocol::resp2::types::{OwnedFrame as Resp2Frame, Resp2Frame as _};
use redis_protocol::resp3::encode::complete::encode as encode_resp3;
use redis_protocol::resp3::types::{OwnedFrame, Resp3Frame as _, VerbatimStringFormat};

use super::Protocol;

/// A bulk string.
pub fn bulk(text: impl AsRef<[u8]>) -> OwnedFrame {
    OwnedFrame::BlobString { data: text.as_ref().to_vec(), attributes: None }
}

/// A bulk string behind an attribute, which RESP2 does not see.
pub fn bulk_with_attribute(text: &str, name: &str, attribute: OwnedFrame) -> OwnedFrame {
    let attributes = Some([(bulk(name), attribute)].into_iter().collect());
    OwnedFrame::BlobString { data: text.as_bytes().to_vec(), attributes }
}

/// A simple string; it must hold neither CR nor LF.
pub fn simple(text: &str) -> OwnedFrame {
    OwnedFrame::SimpleString { data: text.as_bytes().to_vec(), attributes: None }
}

/// The null of the protocol.
pub fn null() -> OwnedFrame {
    OwnedFrame::Null
}

/// An integer, in decimal.
pub fn integer(value: i64) -> OwnedFrame {
    OwnedFrame::Number { data: value, attributes: None }
}

/// How many of something there are.
pub fn count(value: usize) -> OwnedFrame {
    integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// An array of these items.
pub fn array(items: impl IntoIterator<Item = OwnedFrame>) -> OwnedFrame {
    OwnedFrame::Array { data: items.into_iter().collect(), attributes: None }
}

/// A map, which RESP2 sees as an array of keys and values in turn.
pub fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, OwnedFrame)>) -> OwnedFrame {
    let data = pairs.into_iter().map(|(key, value)| (bulk(key), value)).collect();
    OwnedFrame::Map { data, attributes: None }
}

/// A set of simple strings.
pub fn set_of_simple<'a>(items: impl IntoIterator<Item = &'a str>) -> OwnedFrame {
    OwnedFrame::Set { data: items.into_iter().map(simple).collect(), attributes: None }
}

/// A set of members that are no aggregates.
pub fn set_of(items: impl IntoIterator<Item = OwnedFrame>) -> OwnedFrame {
    OwnedFrame::Set { data: items.into_iter().collect(), attributes: None }
}

/// A map whose keys are no aggregates.
pub fn map_of(pairs: impl IntoIterator<Item = (OwnedFrame, OwnedFrame)>) -> OwnedFrame {
    OwnedFrame::Map { data: pairs.into_iter().collect(), attributes: None }
}

/// A number with a fraction, which RESP2 sees as a text.
pub fn double(value: f64) -> OwnedFrame {
    OwnedFrame::Double { data: value, attributes: None }
}

/// An integer of any size, in decimal.
pub fn big_number(digits: &str) -> OwnedFrame {
    OwnedFrame::BigNumber { data: digits.as_bytes().to_vec(), attributes: None }
}

/// Truth, which RESP2 sees as 1 or 0.
pub fn boolean(value: bool) -> OwnedFrame {
    OwnedFrame::Boolean { data: value, attributes: None }
}

/// A push: a message that the client did not ask for.
pub fn push(items: impl IntoIterator<Item = OwnedFrame>) -> OwnedFrame {
    OwnedFrame::Push { data: items.into_iter().collect(), attributes: None }
}

/// A text for people.
pub fn verbatim(text: &str) -> OwnedFrame {
    OwnedFrame::VerbatimString {
        data: text.as_bytes().to_vec(),
        format: VerbatimStringFormat::Text,
        attributes: None,
    }
}

/// Appends `frame` to `out` in the form of the protocol.
pub(super) fn write(out: &mut Vec<u8>, frame: &OwnedFrame, protocol: Protocol) {
    match protocol {
        Protocol::Resp3 => {
            append(out, frame.encode_len(false), |space| encode_resp3(space, frame, false));
        }
        Protocol::Resp2 => {
            let frame = in_resp2(frame);
            append(out, frame.encode_len(false), |space| encode_resp2(space, &frame, false));
        }
    }
}

fn append<E: std::fmt::Debug>(
    out: &mut Vec<u8>,
    bytes_max: usize,
    encode: impl FnOnce(&mut [u8]) -> Result<usize, E>,
) {
    let start = out.len();
    out.resize(start + bytes_max, 0);
    let written = encode(&mut out[start..]).expect("a buffer of the announced length is long enough");
    out.truncate(start + written);
}

/// The frame as RESP2 shows it: maps and sets flattened to arrays, texts as bulk strings, truth as 1 or 0.
///
/// It recurses as deep as the frame is nested, which only the server's own replies decide.
fn in_resp2(frame: &OwnedFrame) -> Resp2Frame {
    let all =
        |frames: &mut dyn Iterator<Item = &OwnedFrame>| Resp2Frame::Array(frames.map(in_resp2).collect());
    match frame {
        OwnedFrame::SimpleString { data, .. } => Resp2Frame::SimpleString(data.clone()),
        OwnedFrame::SimpleError { data, .. } => Resp2Frame::Error(data.clone()),
        OwnedFrame::BlobError { data, .. } => Resp2Frame::Error(String::from_utf8_lossy(data).into_owned()),
        OwnedFrame::Number { data, .. } => Resp2Frame::Integer(*data),
        OwnedFrame::Boolean { data, .. } => Resp2Frame::Integer(i64::from(*data)),
        OwnedFrame::Double { data, .. } => Resp2Frame::BulkString(data.to_string().into_bytes()),
        OwnedFrame::BlobString { data, .. }
        | OwnedFrame::BigNumber { data, .. }
        | OwnedFrame::VerbatimString { data, .. }
        | OwnedFrame::ChunkedString(data) => Resp2Frame::BulkString(data.clone()),
        OwnedFrame::Array { data, .. } | OwnedFrame::Push { data, .. } => all(&mut data.iter()),
        OwnedFrame::Set { data, .. } => all(&mut data.iter()),
        OwnedFrame::Map { data, .. } => all(&mut data.iter().flat_map(|(key, value)| [key, value])),
        OwnedFrame::Null | OwnedFrame::Hello { .. } => Resp2Frame::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(frame: &OwnedFrame, protocol: Protocol) -> String {
        let mut out = b"before ".to_vec();
        write(&mut out, frame, protocol);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_map_keeps_its_order_and_flattens() {
        let frame = map([("b", integer(1)), ("a", set_of_simple(["y", "x"]))]);
        assert_eq!(
            written(&frame, Protocol::Resp3),
            "before %2\r\n$1\r\nb\r\n:1\r\n$1\r\na\r\n~2\r\n+y\r\n+x\r\n"
        );
        assert_eq!(
            written(&frame, Protocol::Resp2),
            "before *4\r\n$1\r\nb\r\n:1\r\n$1\r\na\r\n*2\r\n+y\r\n+x\r\n"
        );
    }

    #[test]
    fn a_text_is_verbatim_only_in_resp3() {
        assert_eq!(written(&verbatim("hi"), Protocol::Resp3), "before =6\r\ntxt:hi\r\n");
        assert_eq!(written(&verbatim("hi"), Protocol::Resp2), "before $2\r\nhi\r\n");
    }

    #[test]
    fn nothing_is_left_behind_a_large_integer() {
        // The crate counts one digit too many for these.
        for value in [999_999_999_999_998, 999_999_999_999_999, i64::MAX] {
            assert_eq!(written(&integer(value), Protocol::Resp3), format!("before :{value}\r\n"));
            assert_eq!(written(&integer(value), Protocol::Resp2), format!("before :{value}\r\n"));
        }
    }
}
