//! Strings that are numbers: INCR, DECR, INCRBY, DECRBY and INCRBYFLOAT.

use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::long_double::LongDouble;
use crate::resp::{Reply, Request};
use crate::types::strings::Text;
use crate::values::Encoding;

use crate::commands::args;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[DECR, DECRBY, INCR, INCRBY, INCRBYFLOAT];

/// The facts that most commands of this file share.
const STRING: Command = Command {
    flags: Flags::DENYOOM.and(Flags::FAST),
    categories: Categories::STRING,
    group: Group::STRING,
    ..Command::DEFAULTS
};

const INCR: Command = Command {
    name: "incr",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Adds 1 to the integer at a key; an absent key counts as 0.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("SET mykey 10", "OK"), ("INCR mykey", "(integer) 11"), ("GET mykey", "\"11\"")],
    run: Run::Write(incr),
    ..STRING
};

fn incr(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    add(tx, request.at(1), 1, reply)
}

const DECR: Command = Command {
    name: "decr",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Subtracts 1 from the integer at a key; an absent key counts as 0.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[
        ("SET mykey 10", "OK"),
        ("DECR mykey", "(integer) 9"),
        ("SET mykey 234293482390480948029348230948", "OK"),
        ("DECR mykey", "(error) ERR value is not an integer or out of range"),
    ],
    run: Run::Write(decr),
    ..STRING
};

fn decr(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    add(tx, request.at(1), -1, reply)
}

const INCRBY: Command = Command {
    name: "incrby",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Adds a number to the integer at a key; an absent key counts as 0.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::integer("increment")],
    example: &[("SET mykey 10", "OK"), ("INCRBY mykey 5", "(integer) 15")],
    run: Run::Write(incrby),
    ..STRING
};

fn incrby(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    add(tx, request.at(1), args::integer(request.at(2))?, reply)
}

const DECRBY: Command = Command {
    name: "decrby",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Subtracts a number from the integer at a key; an absent key counts as 0.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::integer("decrement")],
    example: &[("SET mykey 10", "OK"), ("DECRBY mykey 3", "(integer) 7")],
    run: Run::Write(decrby),
    ..STRING
};

fn decrby(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let taken = args::integer(request.at(2))?;
    // The smallest integer has no positive twin.
    let added = taken.checked_neg().ok_or(Error::fixed("ERR decrement would overflow"))?;
    add(tx, request.at(1), added, reply)
}

fn add(tx: &mut Transaction<'_>, key: &[u8], amount: i64, reply: Reply<'_>) -> Result {
    // A new counter has no expiry to look for.
    let (before, expiry) = match tx.peek::<Text>(key)? {
        Some(text) => (args::integer(text)?, Expiry::Keep),
        None => (0, Expiry::Never),
    };
    let after = before.checked_add(amount).ok_or(Error::OVERFLOW)?;
    tx.put(key, itoa::Buffer::new().format(after).as_bytes(), expiry);
    tx.event(EventClass::STRING, "incrby", key);
    Ok(reply.integer(after))
}

const INCRBYFLOAT: Command = Command {
    name: "incrbyfloat",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    summary: "Adds a decimal number to the number at a key; an absent key counts as 0.",
    since: "2.6.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::double("increment")],
    example: &[
        ("SET mykey 10.50", "OK"),
        ("INCRBYFLOAT mykey 0.1", "\"10.6\""),
        ("INCRBYFLOAT mykey -5", "\"5.6\""),
        ("SET mykey 5.0e3", "OK"),
        ("INCRBYFLOAT mykey 2.0e2", "\"5200\""),
    ],
    run: Run::Write(incrbyfloat),
    ..STRING
};

fn incrbyfloat(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let number = |text: &[u8]| LongDouble::parse(text).ok_or(Error::NOT_A_FLOAT);
    let before = tx.peek::<Text>(key)?.map_or(Ok(LongDouble::ZERO), number)?;
    let amount = number(request.at(2))?;
    let after = before.checked_add(amount).ok_or(Error::NOT_A_RESULT)?.to_text();
    tx.put_encoded(key, after.as_bytes(), Expiry::Keep, Encoding::Text);
    tx.event(EventClass::STRING, "incrbyfloat", key);
    Ok(reply.bulk(after.as_bytes()))
}
