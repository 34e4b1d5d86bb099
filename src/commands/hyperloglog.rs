//! HyperLogLogs: how many different elements were added, in few bytes ([`crate::hyperloglog`]).

use std::fmt::Write as _;
use std::sync::Arc;

use crate::events::EventClass;
use crate::hyperloglog::sparse::{self, Code};
use crate::hyperloglog::{
    COUNT, Form, Histogram, Invalid, Observation, REGISTERS, add, dense, empty, estimate, histogram,
    last_count, merge, outdate,
};
use crate::keyspace::{Expiry, Keyspace, Prepared, Transaction};
use crate::resp::{Reply, Request};
use crate::session::Session;
use crate::types::strings::Text;
use crate::values::{Encoding, LONG_TEXT_BYTES};

use super::args::is_word;
use super::costs;
use super::error::Error;
use super::facts::{
    Argument, ArgumentKind, Categories, Command, Context, Flags, Group, KeyFlags, KeySpec, Prepares, Result,
    Run,
};

pub(super) const COMMANDS: &[Command] = &[PFADD, PFCOUNT, PFDEBUG, PFMERGE, PFSELFTEST];

/// The byte of the header that states the encoding of the registers.
const FORM: usize = 4;
/// The last byte of the header.
const HEADER_END: std::ops::Range<usize> = COUNT.end - 1..COUNT.end;

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Error {
        Error::fixed(match invalid {
            Invalid::NotOne => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            Invalid::Damaged => "INVALIDOBJ Corrupted HLL object detected",
        })
    }
}

/// The facts that most commands of this file share.
const HYPERLOGLOG: Command =
    Command { categories: Categories::HYPERLOGLOG, group: Group::HYPERLOGLOG, ..Command::DEFAULTS };

const PFADD: Command = Command {
    name: "pfadd",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::INSERT))],
    summary: "Adds elements to a HyperLogLog, creating it if it is absent.",
    since: "2.8.9",
    complexity: "O(1) to add every element.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("element").optional().multiple()],
    example: &[
        ("PFADD visitors ann bob eve", "(integer) 1"),
        ("PFADD visitors bob", "(integer) 0"),
        ("PFCOUNT visitors", "(integer) 3"),
    ],
    prepares: Prepares::Values(observe),
    run: Run::Write(pfadd),
    ..HYPERLOGLOG
};

/// Hashes the elements of a long request.
fn observe(request: Request<'_>, _: &Keyspace) -> Vec<Prepared> {
    let observed = (request.bytes() >= LONG_TEXT_BYTES)
        .then(|| -> Arc<Vec<Observation>> { Arc::new(request.from(2).map(Observation::of).collect()) });
    observed.map(|observed| Prepared::value(request.name(), observed)).into_iter().collect()
}

fn pfadd(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let ahead = tx.prepared_value::<Vec<Observation>>(request.name());
    let elements = request.from(2).enumerate().map(|(at, element)| match &ahead {
        Some(observed) => observed[at],
        None => Observation::of(element),
    });
    let bytes_max = tx.limit::<Text>().bytes;
    let found = tx.peek::<Text>(key)?.map(|value| {
        let form = Form::of(value)?;
        // In a dense one only a few bytes change.
        Ok::<_, Invalid>((form, if form == Form::Sparse { value.to_vec() } else { Vec::new() }))
    });
    let changes = match found.transpose()? {
        Some((Form::Dense, _)) => add_in_place(tx, key, elements)?,
        Some((Form::Sparse, mut value)) => {
            tx.make_raw(key);
            let changes = add_all(&mut value, elements, bytes_max)?;
            if changes > 0 {
                put(tx, key, &mut value);
                tx.count_more(key, changes - 1);
            }
            changes
        }
        None => {
            let mut value = empty();
            let changes = 1 + add_all(&mut value, elements, bytes_max)?;
            put(tx, key, &mut value);
            // Redis counts each element as a change, and the new key.
            tx.count_more(key, changes - 1);
            changes
        }
    };
    if changes > 0 {
        tx.event(EventClass::STRING, "pfadd", key);
    }
    Ok(reply.bool(changes > 0))
}

/// Adds elements to a HyperLogLog of either form; returns how many of them changed a register.
fn add_all(
    value: &mut Vec<u8>,
    elements: impl Iterator<Item = Observation>,
    bytes_max: usize,
) -> Result<usize> {
    let mut changes = 0;
    for element in elements {
        let form = if value[FORM] == 0 { Form::Dense } else { Form::Sparse };
        changes += usize::from(add(form, value, element, bytes_max)?);
    }
    Ok(changes)
}

/// Adds elements to a dense HyperLogLog, of which only a few bytes change.
fn add_in_place(
    tx: &mut Transaction<'_>,
    key: &[u8],
    elements: impl Iterator<Item = Observation>,
) -> Result<usize> {
    Ok(tx.change_part(key, dense::BYTES, |part| {
        let mut changes = 0;
        for element in elements {
            if let Some((at, bytes)) = dense::with(part.value(), element) {
                part.bytes_mut(at..at + bytes.len()).copy_from_slice(&bytes);
                changes += 1;
            }
        }
        if changes > 0 && last_count(part.value()).is_some() {
            part.bytes_mut(HEADER_END).iter_mut().for_each(outdate);
        }
        changes
    })?)
}

/// Writes a HyperLogLog whose registers have changed. Its key expires when it did before.
fn put(tx: &mut Transaction<'_>, key: &[u8], value: &mut [u8]) {
    value[HEADER_END].iter_mut().for_each(outdate);
    tx.put_encoded(key, value, Expiry::Keep, Encoding::Raw);
}

const PFCOUNT: Command = Command {
    name: "pfcount",
    flags: Flags::READONLY,
    // It keeps the count in the value.
    keys: &[KeySpec::every(1, KeyFlags::RW.and(KeyFlags::ACCESS))
        .noted("RW because it may change the internal representation of the key, and propagate to replicas")],
    categories: Categories::HYPERLOGLOG.and(Categories::READ),
    group: Group::HYPERLOGLOG,
    summary: "Returns the approximate number of distinct elements in one or several HyperLogLogs together.",
    since: "2.8.9",
    complexity: "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.",
    cost: costs::ARGUMENTS,
    may_replicate: true,
    arguments: &[Argument::KEY.multiple()],
    example: &[
        ("PFADD monday ann bob", "(integer) 1"),
        ("PFADD tuesday bob eve", "(integer) 1"),
        ("PFCOUNT monday tuesday", "(integer) 3"),
    ],
    run: Run::Server(pfcount),
    ..Command::DEFAULTS
};

fn pfcount(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let tx = &mut *context.tx;
    if request.len() > 2 {
        let (registers, _) = merged(tx, request.from(1))?;
        return Ok(reply.integer(estimate(&Histogram::of(&registers)) as i64));
    }
    let key = request.at(1);
    let Some(value) = tx.get::<Text>(key)? else { return Ok(reply.count(0)) };
    let (form, known) = (Form::of(value)?, last_count(value));
    let count = match known {
        Some(count) => Ok(count),
        None => histogram(form, value).map(|histogram| estimate(&histogram)),
    };
    tx.make_raw(key);
    let count = count?;
    if known.is_none() {
        tx.change_part(key, COUNT.end, |part| part.bytes_mut(COUNT).copy_from_slice(&count.to_le_bytes()))?;
    }
    Ok(reply.integer(count as i64))
}

/// The largest values of the registers of some HyperLogLogs, and whether any of these is dense.
fn merged<'k>(tx: &Transaction<'_>, keys: impl Iterator<Item = &'k [u8]>) -> Result<([u8; REGISTERS], bool)> {
    let (mut maxima, mut has_dense) = ([0; REGISTERS], false);
    for key in keys {
        let Some(value) = tx.get::<Text>(key)? else { continue };
        let form = Form::of(value)?;
        merge(&mut maxima, form, value)?;
        has_dense |= form == Form::Dense;
    }
    Ok((maxima, has_dense))
}

const PFMERGE: Command = Command {
    name: "pfmerge",
    flags: Flags::DENYOOM,
    keys: &[
        KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::INSERT)),
        KeySpec::range(2, -1, 1, KeyFlags::RO.and(KeyFlags::ACCESS)),
    ],
    summary: "Merges several HyperLogLogs into a destination key.",
    since: "2.8.9",
    complexity: "O(N) to merge N HyperLogLogs, but with high constant times.",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::new("destkey", ArgumentKind::Key),
        Argument::new("sourcekey", ArgumentKind::Key).optional().of_spec(1).multiple(),
    ],
    example: &[
        ("PFADD monday ann bob", "(integer) 1"),
        ("PFADD tuesday bob eve", "(integer) 1"),
        ("PFMERGE both monday tuesday", "OK"),
        ("PFCOUNT both", "(integer) 3"),
    ],
    run: Run::Write(pfmerge),
    ..HYPERLOGLOG
};

fn pfmerge(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let (registers, has_dense) = merged(tx, request.from(1))?;
    let mut value = tx.peek::<Text>(key)?.map_or_else(empty, <[u8]>::to_vec);
    if has_dense && Form::of(&value)? == Form::Sparse {
        value = dense::of_sparse(&value)?;
    }
    let set = registers.into_iter().enumerate().filter(|(_, rank)| *rank > 0);
    add_all(&mut value, set.map(|(index, rank)| Observation { index, rank }), tx.limit::<Text>().bytes)?;
    put(tx, key, &mut value);
    tx.event(EventClass::STRING, "pfadd", key);
    Ok(reply.ok())
}

const PFDEBUG: Command = Command {
    name: "pfdebug",
    flags: Flags::DENYOOM.and(Flags::ADMIN),
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::RW.and(KeyFlags::ACCESS))],
    summary: "Inspects the internals of a HyperLogLog, or converts it to the dense encoding.",
    since: "2.8.9",
    complexity: "N/A",
    cost: costs::ARGUMENTS,
    is_system: true,
    arguments: &[Argument::string("subcommand"), Argument::KEY],
    example: &[
        ("PFADD visitors ann", "(integer) 1"),
        ("PFDEBUG ENCODING visitors", "sparse"),
        ("PFDEBUG DECODE visitors", "\"Z:10757 v:1,1 Z:5626\""),
        ("PFDEBUG TODENSE visitors", "(integer) 1"),
        ("PFDEBUG ENCODING visitors", "dense"),
        ("PFADD visitors bob", "(integer) 1"),
    ],
    run: Run::Write(pfdebug),
    ..HYPERLOGLOG
};

fn pfdebug(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (subcommand, key) = (request.at(1), request.at(2));
    if is_word(subcommand, "simd") {
        // The compiler has chosen the instructions, and there is nothing to switch.
        return match key {
            _ if is_word(key, "on") => Ok(reply.simple("enabled")),
            _ if is_word(key, "off") => Ok(reply.simple("disabled")),
            _ => Err(Error::fixed("ERR Argument must be ON or OFF")),
        };
    }
    let value = tx.peek::<Text>(key)?.ok_or(Error::fixed("ERR The specified key does not exist"))?;
    let (form, value) = (Form::of(value)?, value.to_vec());
    tx.make_raw(key);
    match subcommand {
        _ if is_word(subcommand, "encoding") => Ok(reply.simple(match form {
            Form::Dense => "dense",
            Form::Sparse => "sparse",
        })),
        _ if is_word(subcommand, "decode") && form == Form::Dense => {
            Err(Error::fixed("ERR HLL encoding is not sparse"))
        }
        _ if is_word(subcommand, "decode") => Ok(reply.bulk(decoded(&value).as_bytes())),
        _ if is_word(subcommand, "todense") => {
            make_dense(tx, key, form, value)?;
            Ok(reply.bool(form == Form::Sparse))
        }
        _ if is_word(subcommand, "getreg") => {
            let value = make_dense(tx, key, form, value)?;
            let registers: Vec<u8> = dense::registers(&value).collect();
            Ok(reply.array_of(registers.into_iter(), |register, reply| reply.count(register.into())))
        }
        _ => Err(Error::quoting("ERR Unknown PFDEBUG subcommand '", subcommand, "'")),
    }
}

/// The runs of a sparse HyperLogLog for people.
fn decoded(value: &[u8]) -> String {
    let mut text = String::new();
    for (run, code) in sparse::runs(value) {
        let _ = match code {
            Code::Zeros => write!(text, "z:{} ", run.len),
            Code::ManyZeros => write!(text, "Z:{} ", run.len),
            Code::Value => write!(text, "v:{},{} ", run.value, run.len),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// Makes a HyperLogLog dense, and returns it. Its last count stays.
fn make_dense(tx: &mut Transaction<'_>, key: &[u8], form: Form, value: Vec<u8>) -> Result<Vec<u8>> {
    if form == Form::Dense {
        return Ok(value);
    }
    let value = dense::of_sparse(&value)?;
    tx.put_encoded(key, &value, Expiry::Keep, Encoding::Raw);
    Ok(value)
}

const PFSELFTEST: Command = Command {
    name: "pfselftest",
    flags: Flags::ADMIN,
    summary: "Checks that both HyperLogLog encodings count alike and accurately.",
    since: "2.8.9",
    complexity: "N/A",
    cost: costs::ARGUMENTS,
    is_system: true,
    example: &[("PFSELFTEST", "OK")],
    run: Run::Session(pfselftest),
    ..HYPERLOGLOG
};

/// As the command's name has been known for, it tests in earnest, but with fewer elements than Redis: other
/// clients do not wait for it for long.
fn pfselftest(_: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    /// Elements of both forms, and of the dense one alone.
    const COUNTS: [(u64, bool); 4] = [(10, true), (100, true), (1000, true), (100_000, false)];
    for (count, is_small) in COUNTS {
        let elements = || (0..count).map(|element| Observation::of(&element.to_le_bytes()));
        let mut value = dense::of_sparse(&empty())?;
        add_all(&mut value, elements(), 0)?;
        let counted = estimate(&histogram(Form::Dense, &value)?);
        if is_small {
            let mut sparse = empty();
            add_all(&mut sparse, elements(), usize::MAX)?;
            if estimate(&histogram(Form::Sparse, &sparse)?) != counted {
                return Err(Error::fixed("ERR TESTFAILED dense/sparse disagree"));
            }
        }
        let error = counted.abs_diff(count);
        if error > count / 20 + 1 {
            return Err(Error::text(format!("ERR TESTFAILED Too big error. card:{count} abserr:{error}")));
        }
    }
    Ok(reply.ok())
}
