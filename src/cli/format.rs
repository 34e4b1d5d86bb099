//! Prints replies: for people, for scripts, as CSV, as JSON.
//!
//! Everything is written straight to the output: a deeply nested reply is much longer in print. The recursion
//! is as deep as the reply is nested, which the decoder limits.

use std::io::{self, Write};

use super::options::{Options, Output};
use super::quoting::{write_json, write_quoted, write_quoted_json};
use super::replies::{Aggregate, Message};

/// Prints a reply and what follows it.
pub(super) fn write_reply(out: &mut impl Write, reply: &Message, options: &Options) -> io::Result<()> {
    match options.output {
        Output::Standard => write_standard(out, reply, &mut Vec::new())?,
        Output::Raw => {
            write_raw(out, reply, &options.member_delimiter)?;
            return out.write_all(&options.reply_delimiter);
        }
        Output::Csv => write_csv(out, reply)?,
        Output::Json => write_as_json(out, reply, Output::Json)?,
        Output::QuotedJson => write_as_json(out, reply, Output::QuotedJson)?,
    }
    out.write_all(b"\n")
}

/// Prints the keys of an invalidation message.
pub(super) fn write_invalidated(out: &mut impl Write, keys: &[Message]) -> io::Result<()> {
    out.write_all(b"-> invalidate: ")?;
    for (number, key) in keys.iter().enumerate() {
        out.write_all(if number > 0 { b", '" } else { b"'" })?;
        out.write_all(key.text().unwrap_or_default())?;
        out.write_all(b"'")?;
    }
    out.write_all(b"\n")
}

/// Prints a reply without its last line break. All lines but the first begin with `indent`.
fn write_standard(out: &mut impl Write, reply: &Message, indent: &mut Vec<u8>) -> io::Result<()> {
    match reply {
        Message::Error(text) => {
            out.write_all(b"(error) ")?;
            out.write_all(text)
        }
        Message::Status(text) | Message::Verbatim(text) => out.write_all(text),
        Message::Integer(integer) => write!(out, "(integer) {integer}"),
        Message::Double(digits) => {
            out.write_all(b"(double) ")?;
            out.write_all(digits)
        }
        Message::BigNumber(digits) => {
            out.write_all(b"(big number) ")?;
            out.write_all(digits)
        }
        Message::Bulk(text) => write_quoted(out, text),
        Message::Nil => out.write_all(b"(nil)"),
        Message::Boolean(truth) => write!(out, "({truth})"),
        Message::Many(kind, members) if members.is_empty() => out.write_all(match kind {
            Aggregate::Array => b"(empty array)",
            Aggregate::Map => b"(empty hash)",
            Aggregate::Set => b"(empty set)",
            Aggregate::Push => b"(empty push)",
        }),
        Message::Many(kind, members) => write_members(out, *kind, members, indent),
    }
}

fn write_members(
    out: &mut impl Write,
    kind: Aggregate,
    members: &[Message],
    indent: &mut Vec<u8>,
) -> io::Result<()> {
    let (step, mark) = match kind {
        Aggregate::Map => (2, '#'),
        Aggregate::Set => (1, '~'),
        Aggregate::Array | Aggregate::Push => (1, ')'),
    };
    let width = (members.len() / step).to_string().len();
    let outer_bytes = indent.len();
    for (index, entry) in members.chunks(step).enumerate() {
        if index > 0 {
            out.write_all(b"\n")?;
            out.write_all(indent)?;
        }
        write!(out, "{:>width$}{mark} ", index + 1)?;
        indent.resize(outer_bytes + width + 2, b' ');
        for (place, part) in entry.iter().enumerate() {
            if place > 0 {
                out.write_all(b" => ")?;
                if takes_several_lines(part) {
                    out.write_all(b"\n")?;
                    out.write_all(indent)?;
                }
            }
            write_standard(out, part, indent)?;
        }
        indent.truncate(outer_bytes);
    }
    Ok(())
}

fn takes_several_lines(mut reply: &Message) -> bool {
    loop {
        reply = match reply {
            Message::Many(Aggregate::Map, members) if members.len() == 2 => &members[1],
            Message::Many(kind, members) if *kind != Aggregate::Map && members.len() == 1 => &members[0],
            Message::Many(_, members) => return !members.is_empty(),
            _ => return false,
        };
    }
}

/// Prints a reply as it came, with a delimiter between its members.
pub(super) fn write_raw(out: &mut impl Write, reply: &Message, delimiter: &[u8]) -> io::Result<()> {
    match reply {
        Message::Nil => Ok(()),
        Message::Error(text) => {
            out.write_all(text)?;
            out.write_all(b"\n")
        }
        Message::Status(text)
        | Message::Bulk(text)
        | Message::Verbatim(text)
        | Message::Double(text)
        | Message::BigNumber(text) => out.write_all(text),
        Message::Integer(integer) => write!(out, "{integer}"),
        Message::Boolean(truth) => write!(out, "({truth})"),
        Message::Many(kind, members) => {
            for (number, member) in members.iter().enumerate() {
                match (kind, number) {
                    (_, 0) => {}
                    (Aggregate::Map, odd) if odd % 2 == 1 => out.write_all(b" ")?,
                    _ => out.write_all(delimiter)?,
                }
                write_raw(out, member, delimiter)?;
            }
            Ok(())
        }
    }
}

fn write_csv(out: &mut impl Write, reply: &Message) -> io::Result<()> {
    match reply {
        Message::Nil => out.write_all(b"NULL"),
        Message::Error(text) => {
            out.write_all(b"ERROR,")?;
            write_quoted(out, text)
        }
        Message::Status(text) | Message::Bulk(text) | Message::Verbatim(text) => write_quoted(out, text),
        Message::Double(digits) | Message::BigNumber(digits) => out.write_all(digits),
        Message::Integer(integer) => write!(out, "{integer}"),
        Message::Boolean(truth) => write!(out, "{truth}"),
        Message::Many(_, members) => {
            for (number, member) in members.iter().enumerate() {
                if number > 0 {
                    out.write_all(b",")?;
                }
                write_csv(out, member)?;
            }
            Ok(())
        }
    }
}

fn write_as_json(out: &mut impl Write, reply: &Message, output: Output) -> io::Result<()> {
    let write_text = |out: &mut dyn Write, text: &[u8]| match output {
        Output::QuotedJson => write_quoted_json(&mut &mut *out, text),
        _ => write_json(&mut &mut *out, text),
    };
    match reply {
        Message::Nil => out.write_all(b"null"),
        Message::Error(text) => {
            out.write_all(b"error:")?;
            write_text(out, text)
        }
        Message::Status(text) | Message::Bulk(text) | Message::Verbatim(text) => write_text(out, text),
        Message::Double(digits) | Message::BigNumber(digits) => out.write_all(digits),
        Message::Integer(integer) => write!(out, "{integer}"),
        Message::Boolean(truth) => write!(out, "{truth}"),
        Message::Many(kind, members) => {
            let is_map = *kind == Aggregate::Map;
            out.write_all(if is_map { b"{" } else { b"[" })?;
            for (number, member) in members.iter().enumerate() {
                let is_key = is_map && number % 2 == 0;
                if number > 0 {
                    out.write_all(if is_map && !is_key { b":" } else { b"," })?;
                }
                // A key in JSON is always a string.
                let needs_quotes = is_key && member.text().is_none();
                if needs_quotes {
                    out.write_all(b"\"")?;
                }
                write_as_json(out, member, output)?;
                if needs_quotes {
                    out.write_all(b"\"")?;
                }
            }
            out.write_all(if is_map { b"}" } else { b"]" })
        }
    }
}
