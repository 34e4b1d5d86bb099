//! BITFIELD: integers of any width at any place in a string.

use crate::bits;
use crate::events::EventClass;
use crate::keyspace::{Part, Transaction};
use crate::resp::{Reply, Request, Sent};
use crate::types::strings::Text;

use super::bit_offset;
use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(super) const BITFIELD: Command = Command {
    name: "bitfield",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(
        KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE).and(KeyFlags::VARIABLE_FLAGS),
    )
    .variable(bitfield_key_flags)
    .noted("This command allows both access and modification of the key")],
    categories: Categories::BITMAP,
    group: Group::BITMAP,
    summary: "Reads, sets and increments integers of 1 to 64 bits at bit offsets of a string.",
    since: "3.2.0",
    complexity: "O(1) for each subcommand specified",
    cost: costs::ARGUMENTS.changing_part(usize::MAX),
    arguments: &[
        Argument::KEY,
        Argument::one_of(
            "operation",
            &[
                Argument::block("get-block", &[Argument::string("encoding"), Argument::integer("offset")])
                    .token("GET"),
                Argument::block(
                    "write",
                    &[
                        Argument::one_of("overflow-block", &Argument::words(["WRAP", "SAT", "FAIL"]))
                            .token("OVERFLOW")
                            .optional(),
                        Argument::one_of(
                            "write-operation",
                            &[
                                Argument::block(
                                    "set-block",
                                    &[
                                        Argument::string("encoding"),
                                        Argument::integer("offset"),
                                        Argument::integer("value"),
                                    ],
                                )
                                .token("SET"),
                                Argument::block(
                                    "incrby-block",
                                    &[
                                        Argument::string("encoding"),
                                        Argument::integer("offset"),
                                        Argument::integer("increment"),
                                    ],
                                )
                                .token("INCRBY"),
                            ],
                        ),
                    ],
                ),
            ],
        )
        .optional()
        .multiple(),
    ],
    example: &[
        ("BITFIELD mykey INCRBY i5 100 1 GET u4 0", "[(integer) 1, (integer) 0]"),
        ("BITFIELD mykey OVERFLOW SAT INCRBY u2 102 5", "[(integer) 3]"),
        ("BITFIELD mykey OVERFLOW FAIL INCRBY u2 102 1", "[(nil)]"),
    ],
    run: Run::Write(bitfield),
    ..Command::DEFAULTS
};

fn bitfield(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let operations = parse(request, tx.value_bytes_max())?;
    let key = request.at(1);
    let written = operations.iter().filter(|operation| operation.action != Action::Get);
    let Some(bytes) = written.map(|operation| (operation.offset + operation.kind.width - 1) / 8 + 1).max()
    else {
        return Ok(answer_gets(tx.get::<Text>(key)?.unwrap_or_default(), &operations, reply));
    };
    let (sent, has_changed) = tx.change_part(key, bytes, |part| {
        let sent = reply.array_of(operations.iter(), |operation, reply| match operation.apply(part) {
            Some(result) => reply.integer(result),
            None => reply.nil(),
        });
        (sent, part.has_changed())
    })?;
    if has_changed {
        tx.event(EventClass::STRING, "setbit", key);
    }
    Ok(sent)
}

pub(super) const BITFIELD_RO: Command = Command {
    name: "bitfield_ro",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::BITMAP,
    group: Group::BITMAP,
    summary: "Reads integers of 1 to 64 bits at bit offsets of a string.",
    since: "6.0.0",
    complexity: "O(1) for each subcommand specified",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::block("get-block", &[Argument::string("encoding"), Argument::integer("offset")])
            .token("GET")
            .optional()
            .multiple()
            .multiple_token(),
    ],
    example: &[("SET mykey a", "OK"), ("BITFIELD_RO mykey GET u8 0", "[(integer) 97]")],
    run: Run::Read(bitfield_ro),
    ..Command::DEFAULTS
};

fn bitfield_ro(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let operations = parse(request, tx.value_bytes_max())?;
    if operations.iter().any(|operation| operation.action != Action::Get) {
        return Err(Error::fixed("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    Ok(answer_gets(tx.get::<Text>(request.at(1))?.unwrap_or_default(), &operations, reply))
}

/// BITFIELD writes only if asked to. What cannot be understood might write, so Redis takes it for a writer.
fn bitfield_key_flags(request: Request<'_>) -> KeyFlags {
    let mut words = request.from(2);
    while let Some(word) = words.next() {
        let last_argument = match word {
            _ if is_word(word, "get") => words.nth(1),
            _ if is_word(word, "overflow") => words.next(),
            _ => None,
        };
        if last_argument.is_none() {
            return KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE);
        }
    }
    KeyFlags::RO.and(KeyFlags::ACCESS)
}

fn answer_gets(value: &[u8], operations: &[Operation], reply: Reply<'_>) -> Sent {
    reply.array_of(operations.iter(), |operation, reply| {
        reply.integer(operation.kind.read(bits::get(value, operation.offset, operation.kind.width)))
    })
}

/// One operation of the request.
struct Operation {
    action: Action,
    kind: IntegerType,
    offset: usize,
    overflow: Overflow,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// How to handle a result that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// A type such as `i5` or `u8`.
#[derive(Clone, Copy)]
struct IntegerType {
    is_signed: bool,
    /// Bits: 1 to 64, unsigned 1 to 63.
    width: usize,
}

fn parse(request: Request<'_>, value_bytes_max: usize) -> Result<Vec<Operation>> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut words = Options::new(request, 2);
    while let Some(word) = words.next() {
        if is_word(word, "overflow") {
            overflow = Overflow::parse(words.value()?)?;
            continue;
        }
        let takes_value = is_word(word, "set") || is_word(word, "incrby");
        if !takes_value && !is_word(word, "get") {
            return Err(Error::SYNTAX);
        }
        let (kind, offset) = (words.value()?, words.value()?);
        let value = if takes_value { Some(words.value()?) } else { None };
        let kind = IntegerType::parse(kind)?;
        let offset = bit_offset(offset, Some(kind.width), value_bytes_max)?;
        let action = match value.map(args::integer).transpose()? {
            None => Action::Get,
            Some(value) if is_word(word, "set") => Action::Set(value),
            Some(value) => Action::Add(value),
        };
        operations.push(Operation { action, kind, offset, overflow });
    }
    Ok(operations)
}

impl Overflow {
    fn parse(word: &[u8]) -> Result<Overflow> {
        match word {
            _ if is_word(word, "wrap") => Ok(Overflow::Wrap),
            _ if is_word(word, "sat") => Ok(Overflow::Saturate),
            _ if is_word(word, "fail") => Ok(Overflow::Fail),
            _ => Err(Error::fixed("ERR Invalid OVERFLOW type specified")),
        }
    }
}

impl IntegerType {
    fn parse(text: &[u8]) -> Result<IntegerType> {
        let (is_signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(Error::INVALID_BITFIELD_TYPE),
        };
        let width_max = if is_signed { 64 } else { 63 };
        let width = args::integer(digits).ok().filter(|width| (1..=width_max).contains(width));
        width
            .map(|width| IntegerType { is_signed, width: width as usize })
            .ok_or(Error::INVALID_BITFIELD_TYPE)
    }

    /// The integer that these bits are.
    fn read(self, bits: u64) -> i64 {
        let unused = 64 - self.width;
        if self.is_signed { (bits << unused) as i64 >> unused } else { bits as i64 }
    }

    /// The smallest and the largest integer of this type.
    fn range(self) -> (i128, i128) {
        match self.is_signed {
            true => (-(1 << (self.width - 1)), (1 << (self.width - 1)) - 1),
            false => (0, (1 << self.width) - 1),
        }
    }
}

impl Operation {
    /// Runs the operation. Returns its result; `None` if it would not fit and was to fail.
    fn apply(&self, part: &mut Part<'_>) -> Option<i64> {
        let before = self.read(part);
        let wanted = match self.action {
            Action::Get => return Some(before),
            // A negative value for an unsigned type is a very large one.
            Action::Set(new) if !self.kind.is_signed => i128::from(new as u64),
            Action::Set(new) => i128::from(new),
            Action::Add(amount) => i128::from(before) + i128::from(amount),
        };
        let (least, most) = self.kind.range();
        let fitting = match self.overflow {
            _ if (least..=most).contains(&wanted) => wanted,
            Overflow::Wrap => wanted,
            // Redis computes the distance of a value that is set to the largest one in 64 bits: where that
            // wraps, the value passes for one that is too large.
            Overflow::Saturate
                if matches!(self.action, Action::Set(_)) && most - wanted > i64::MAX.into() =>
            {
                most
            }
            Overflow::Saturate => wanted.clamp(least, most),
            Overflow::Fail => return None,
        };
        // The integer that these bits are: it may have wrapped.
        let after = self.kind.read(fitting as u64 & (u64::MAX >> (64 - self.kind.width)));
        // Redis: what changes nothing counts only where the value has grown for it.
        if after != before || part.has_grown() {
            let first = self.offset / 8;
            let bytes = part.bytes_mut(first..(self.offset + self.kind.width - 1) / 8 + 1);
            bits::set(bytes, self.offset % 8, self.kind.width, after as u64);
        }
        Some(if let Action::Add(_) = self.action { after } else { before })
    }

    fn read(&self, part: &Part<'_>) -> i64 {
        self.kind.read(bits::get(part.value(), self.offset, self.kind.width))
    }
}
