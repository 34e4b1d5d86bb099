//! Strings as bits: single ones, counts, and integers of any width.
//!
//! Bits are numbered from the highest bit of the first byte on. Bits beyond the end of a string are zero.

use crate::bits;
use crate::cancel;
use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::strings::Text;
use crate::values::{Kept, LONG_TEXT_BYTES, LongText, Structure, Type};

use super::{bit_offset, bitfield};
use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Derived, Flags, Group, KeyFlags, KeySpec, Prepares, Result,
    Run,
};
use crate::commands::storing::store;

pub(in crate::commands) const COMMANDS: &[Command] =
    &[BITCOUNT, bitfield::BITFIELD, bitfield::BITFIELD_RO, BITOP, BITPOS, GETBIT, SETBIT];

/// The facts that most commands of this file share.
const BITMAP: Command = Command { categories: Categories::BITMAP, group: Group::BITMAP, ..Command::DEFAULTS };

const SETBIT: Command = Command {
    name: "setbit",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Sets one bit of a string, extending it as needed; returns the old bit.",
    since: "2.2.0",
    complexity: "O(1)",
    // The offset is below 100,000,000 bits: what is missing in front of it is padded.
    cost: costs::BRIEF.changing_part(8),
    arguments: &[Argument::KEY, Argument::integer("offset"), Argument::integer("value")],
    example: &[
        ("SETBIT mykey 1 1", "(integer) 0"),
        ("SETBIT mykey 2 1", "(integer) 0"),
        ("SETBIT mykey 7 1", "(integer) 0"),
        ("GET mykey", "\"a\""),
    ],
    run: Run::Write(setbit),
    ..BITMAP
};

fn setbit(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let offset = bit_offset(request.at(2), None, tx.value_bytes_max())?;
    let bit = match args::integer(request.at(3)) {
        Ok(bit @ 0..=1) => bit as u64,
        _ => return Err(Error::fixed("ERR bit is not an integer or out of range")),
    };
    if tx
        .peek::<Text>(key)?
        .is_some_and(|value| offset / 8 < value.len() && bits::get(value, offset, 1) == bit)
    {
        tx.make_raw(key);
        return Ok(reply.bool(bit == 1));
    }
    let at = offset / 8;
    let before = tx.change_part(key, at + 1, |part| {
        let before = bits::get(part.value(), offset, 1);
        bits::set(part.bytes_mut(at..at + 1), offset % 8, 1, bit);
        before
    })?;
    tx.event(EventClass::STRING, "setbit", key);
    Ok(reply.bool(before == 1))
}

const GETBIT: Command = Command {
    name: "getbit",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns one bit of a string.",
    since: "2.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::integer("offset")],
    example: &[
        ("SETBIT mykey 7 1", "(integer) 0"),
        ("GETBIT mykey 0", "(integer) 0"),
        ("GETBIT mykey 7", "(integer) 1"),
        ("GETBIT mykey 100", "(integer) 0"),
    ],
    run: Run::Read(getbit),
    ..BITMAP
};

fn getbit(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let offset = bit_offset(request.at(2), None, tx.value_bytes_max())?;
    let value = tx.get::<Text>(request.at(1))?.unwrap_or_default();
    Ok(reply.bool(bits::get(value, offset, 1) == 1))
}

const BITCOUNT: Command = Command {
    name: "bitcount",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the number of 1 bits in a string or part of it.",
    since: "2.6.0",
    complexity: "O(N)",
    cost: costs::ALL_UNLESS_IN_RANGE,
    arguments: &[
        Argument::KEY,
        Argument::block(
            "range",
            &[
                Argument::integer("start"),
                Argument::integer("end"),
                Argument::one_of("unit", &Argument::words(["BYTE", "BIT"])).since("7.0.0").optional(),
            ],
        )
        .optional(),
    ],
    example: &[
        ("SET mykey foobar", "OK"),
        ("BITCOUNT mykey", "(integer) 26"),
        ("BITCOUNT mykey 1 1", "(integer) 6"),
        ("BITCOUNT mykey 5 30 BIT", "(integer) 17"),
    ],
    run: Run::Read(bitcount),
    ..BITMAP
};

fn bitcount(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let range = match request.len() {
        2 => None,
        4 | 5 => {
            let (start, end) = (args::integer(request.at(2))?, args::integer(request.at(3))?);
            Some((start, end, Unit::parse(request.get(4))?))
        }
        _ => return Err(Error::SYNTAX),
    };
    let Some(value) = tx.get::<Text>(request.at(1))? else { return Ok(reply.count(0)) };
    let range = match range {
        None => Some((0, (8 * value.len()).saturating_sub(1))),
        Some((start, end, _)) if start < 0 && end < 0 && start > end => None,
        Some((start, end, unit)) => unit.range(value, start, end),
    };
    let ones = |(first, last)| steps(first, last).map(|(from, to)| bits::count(value, from, to)).sum();
    Ok(reply.count(range.map_or(0, ones)))
}

/// The parts of a range of bits. Between two of them a request ends of which the client has gone.
fn steps(first: usize, last: usize) -> impl Iterator<Item = (usize, usize)> {
    const BITS: usize = 256 << 10;
    let parts = (first..last.saturating_add(1)).step_by(BITS);
    parts.map(move |from| (from, last.min(from + BITS - 1))).inspect(|_| cancel::check())
}

/// The unit of a range.
#[derive(Clone, Copy)]
enum Unit {
    Byte,
    Bit,
}

impl Unit {
    fn parse(word: Option<&[u8]>) -> Result<Unit> {
        match word {
            None => Ok(Unit::Byte),
            Some(word) if is_word(word, "byte") => Ok(Unit::Byte),
            Some(word) if is_word(word, "bit") => Ok(Unit::Bit),
            Some(_) => Err(Error::SYNTAX),
        }
    }

    /// The first and the last bit of a range; negative ends count from the end of the value.
    fn range(self, value: &[u8], start: i64, end: i64) -> Option<(usize, usize)> {
        let bits = match self {
            Unit::Byte => 8,
            Unit::Bit => 1,
        };
        let units = (8 * value.len() / bits) as i64;
        let from_start = |at: i64| if at < 0 { at.saturating_add(units).max(0) } else { at };
        let (first, last) = (from_start(start), from_start(end).min(units - 1));
        (first <= last).then(|| (first as usize * bits, (last as usize + 1) * bits - 1))
    }
}

const BITPOS: Command = Command {
    name: "bitpos",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the position of the first 1 or 0 bit in a string or part of it.",
    since: "2.8.7",
    complexity: "O(N)",
    cost: costs::UP_TO_ALL_COUNTED,
    arguments: &[
        Argument::KEY,
        Argument::integer("bit"),
        Argument::block(
            "range",
            &[
                Argument::integer("start"),
                Argument::block(
                    "end-unit-block",
                    &[
                        Argument::integer("end"),
                        Argument::one_of("unit", &Argument::words(["BYTE", "BIT"])).since("7.0.0").optional(),
                    ],
                )
                .optional(),
            ],
        )
        .optional(),
    ],
    example: &[
        ("SET mykey foobar", "OK"),
        ("BITPOS mykey 1", "(integer) 1"),
        ("BITPOS mykey 1 2", "(integer) 17"),
        ("BITPOS mykey 0 17 -1 BIT", "(integer) 19"),
    ],
    run: Run::Read(bitpos),
    ..BITMAP
};

fn bitpos(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let bit = match args::integer(request.at(2))? {
        bit @ 0..=1 => bit == 1,
        _ => return Err(Error::fixed("ERR The bit argument must be 1 or 0.")),
    };
    // As Redis has it, before any of them is looked at.
    if request.len() > 6 {
        return Err(Error::SYNTAX);
    }
    let (mut start, mut end, mut unit, mut has_end) = (0, -1, Unit::Byte, false);
    if let Some(text) = request.get(3) {
        start = args::integer(text)?;
        unit = Unit::parse(request.get(5))?;
    }
    if let Some(text) = request.get(4) {
        (end, has_end) = (args::integer(text)?, true);
    }
    let Some(value) = tx.get::<Text>(request.at(1))? else {
        return Ok(reply.integer(if bit { -1 } else { 0 }));
    };
    let Some((first, last)) = unit.range(value, start, end) else { return Ok(reply.integer(-1)) };
    let found = steps(first, last).find_map(|(from, to)| bits::find(value, bit, from, to));
    Ok(reply.integer(match found {
        Some(at) => at as i64,
        // A value that is all ones goes on with zeros, unless it was said where to stop.
        None if !bit && !has_end => 8 * value.len() as i64,
        None => -1,
    }))
}

const BITOP: Command = Command {
    name: "bitop",
    flags: Flags::DENYOOM,
    keys: &[
        KeySpec::range(2, 0, 1, KeyFlags::OW.and(KeyFlags::UPDATE)),
        KeySpec::range(3, -1, 1, KeyFlags::RO.and(KeyFlags::ACCESS)),
    ],
    summary: "Combines strings bit by bit and stores the result; returns its length in bytes.",
    since: "2.6.0",
    complexity: "O(N)",
    cost: costs::ALL_CHANGING,
    arguments: &[
        Argument::one_of(
            "operation",
            &Argument::words(["AND", "OR", "XOR", "NOT", "DIFF", "DIFF1", "ANDOR", "ONE"]),
        ),
        Argument::new("destkey", ArgumentKind::Key),
        Argument::KEY.of_spec(1).multiple(),
    ],
    example: &[
        ("SET key1 foobar", "OK"),
        ("SET key2 abcdef", "OK"),
        ("BITOP AND dest key1 key2", "(integer) 6"),
        ("GET dest", "\"`bc`ab\""),
        ("BITOP DIFF dest key1 key2", "(integer) 6"),
        ("BITCOUNT dest", "(integer) 9"),
    ],
    prepares: Prepares::Derived(combined),
    run: Run::Write(bitop),
    ..BITMAP
};

fn bitop(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    store(tx, request, (combined, request.at(2)), "set", reply)
}

fn combined(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    let operation = Operation::parse(request.at(1))?;
    if operation == Operation::Not && request.len() > 4 {
        return Err(Error::fixed("ERR BITOP NOT must be called with a single source key."));
    }
    if operation.needs_others() && request.len() < 5 {
        let name = String::from_utf8_lossy(request.at(1)).to_ascii_uppercase();
        return Err(Error::text(format!("ERR BITOP {name} must be called with at least two source keys.")));
    }
    // Sources are read, and count as such, though the command writes.
    let sources = request.from(3).map(|key| Ok(tx.get::<Text>(key)?.unwrap_or_default()));
    let sources: Vec<&[u8]> = sources.collect::<Result<_>>()?;
    let any_other = || bits::combine(&sources[1..], |one, other| one | other);
    // Each closure is compiled into a loop of its own: a pointer to a function would be called for each byte.
    let result = match operation {
        Operation::And => bits::combine(&sources, |one, other| one & other),
        Operation::Or => bits::combine(&sources, |one, other| one | other),
        Operation::Xor => bits::combine(&sources, |one, other| one ^ other),
        Operation::Not => sources[0].iter().map(|byte| !byte).collect(),
        Operation::Diff => bits::combine(&[sources[0], &any_other()], |one, others| one & !others),
        Operation::Diff1 => bits::combine(&[sources[0], &any_other()], |one, others| !one & others),
        Operation::AndOr => bits::combine(&[sources[0], &any_other()], |one, others| one & others),
        Operation::One => bits::in_exactly_one(&sources),
    };
    let count = result.len();
    let value = (count > 0).then(|| {
        let is_long = count >= LONG_TEXT_BYTES;
        let long = is_long.then(|| Structure::Text(LongText::new(&result, count)));
        Kept::made(Text::FACTS, if is_long { Vec::new() } else { result }, long)
    });
    Ok(Derived { value, count, ..Derived::default() })
}

/// How BITOP combines its sources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// Bits of the first source that no other source has.
    Diff,
    /// Bits of any other source that the first source does not have.
    Diff1,
    /// Bits of the first source that any other source has, too.
    AndOr,
    /// Bits that exactly one source has.
    One,
}

impl Operation {
    fn parse(word: &[u8]) -> Result<Operation> {
        match word {
            _ if is_word(word, "and") => Ok(Operation::And),
            _ if is_word(word, "or") => Ok(Operation::Or),
            _ if is_word(word, "xor") => Ok(Operation::Xor),
            _ if is_word(word, "not") => Ok(Operation::Not),
            _ if is_word(word, "diff") => Ok(Operation::Diff),
            _ if is_word(word, "diff1") => Ok(Operation::Diff1),
            _ if is_word(word, "andor") => Ok(Operation::AndOr),
            _ if is_word(word, "one") => Ok(Operation::One),
            _ => Err(Error::SYNTAX),
        }
    }

    /// Whether it sets the first source against others.
    fn needs_others(self) -> bool {
        matches!(self, Operation::Diff | Operation::Diff1 | Operation::AndOr)
    }
}
