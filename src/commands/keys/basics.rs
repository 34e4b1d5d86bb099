//! Keys of any type: finding out whether they exist, deleting, renaming, copying and moving them.

use std::ops::Range;

use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Concern, Flags, Group, KeyFlags, KeySpec, LockUse, Result,
    Run, Scope,
};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[COPY, DEL, EXISTS, MOVE, RENAME, RENAMENX, SWAPDB, TOUCH, TYPE, UNLINK];

/// The facts that most commands of this file share.
const KEY: Command = Command { categories: Categories::KEYSPACE, group: Group::GENERIC, ..Command::DEFAULTS };

const DEL: Command = Command {
    name: "del",
    keys: &[KeySpec::every(1, KeyFlags::RM.and(KeyFlags::DELETE))],
    locks: LockUse::DELETES.and(LockUse::KEYS_ONLY),
    summary: "Deletes keys; returns how many were present.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys that will be removed. When a key to remove holds a value other than a string, the individual complexity for this key is O(M) where M is the number of elements in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).",
    cost: costs::BRIEF_ALONE,
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    arguments: &[Argument::KEY.multiple()],
    example: &[("SET key1 Hello", "OK"), ("SET key2 World", "OK"), ("DEL key1 key2 key3", "(integer) 2")],
    run: Run::Write(del),
    ..KEY
};

fn del(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(
        request
            .from(1)
            .filter(|key| {
                let was_there = tx.remove(key);
                tell_of_deletion(tx, key, was_there)
            })
            .count(),
    ))
}

/// Emits the event of a deleted key, if the key was present; returns whether it was.
fn tell_of_deletion(tx: &Transaction<'_>, key: &[u8], was_there: bool) -> bool {
    if was_there {
        tx.event(EventClass::GENERIC, "del", key);
    }
    was_there
}

const EXISTS: Command = Command {
    name: "exists",
    flags: Flags::FAST,
    keys: &[KeySpec::every(1, KeyFlags::RO)],
    locks: LockUse::SEEKS,
    summary: "Returns how many of the given keys are present; repeated keys count each time.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys to check.",
    cost: costs::BRIEF_ALONE,
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    arguments: &[Argument::KEY.multiple()],
    example: &[
        ("SET key1 Hello", "OK"),
        ("EXISTS key1", "(integer) 1"),
        ("EXISTS nosuchkey", "(integer) 0"),
        ("SET key2 World", "OK"),
        ("EXISTS key1 key2 nosuchkey", "(integer) 2"),
    ],
    run: Run::Read(exists),
    ..KEY
};

fn exists(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(request.from(1).filter(|key| tx.exists(key)).count()))
}

const TYPE: Command = Command {
    name: "type",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns the type of the value at a key; `none` if the key is absent.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("SET key1 value", "OK"), ("TYPE key1", "string"), ("TYPE nosuchkey", "none")],
    run: Run::Read(kind),
    ..KEY
};

fn kind(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.simple(tx.type_of(request.at(1)).map_or("none", |facts| facts.name)))
}

const UNLINK: Command = Command {
    name: "unlink",
    flags: Flags::FAST,
    keys: &[KeySpec::every(1, KeyFlags::RM.and(KeyFlags::DELETE))],
    locks: LockUse::DELETES.and(LockUse::KEYS_ONLY),
    summary: "Deletes keys and frees large values in the background; returns how many keys were present.",
    since: "4.0.0",
    complexity: "O(1) for each key removed regardless of its size. Then the command does O(N) work in a different thread in order to reclaim memory, where N is the number of allocations the deleted objects where composed of.",
    cost: costs::BRIEF_ALONE,
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    arguments: &[Argument::KEY.multiple()],
    example: &[("SET key1 Hello", "OK"), ("SET key2 World", "OK"), ("UNLINK key1 key2 key3", "(integer) 2")],
    run: Run::Write(unlink),
    ..KEY
};

fn unlink(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let sent = reply.count(
        request
            .from(1)
            .filter(|key| {
                let was_there = tx.remove(key);
                tell_of_deletion(tx, key, was_there)
            })
            .count(),
    );
    tx.free_in_background();
    Ok(sent)
}

const TOUCH: Command = Command {
    name: "touch",
    flags: Flags::FAST,
    keys: &[KeySpec::every(1, KeyFlags::RO)],
    summary: "Marks keys as used now, without reading them; returns how many are present.",
    since: "3.2.1",
    complexity: "O(N) where N is the number of keys that will be touched.",
    cost: costs::BRIEF_ALONE,
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    arguments: &[Argument::KEY.multiple()],
    example: &[("SET key1 Hello", "OK"), ("TOUCH key1 key2", "(integer) 1")],
    run: Run::Read(touch),
    ..KEY
};

fn touch(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(request.from(1).filter(|key| tx.touch(key)).count()))
}

const RENAME: Command = Command {
    name: "rename",
    keys: &[
        KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE)),
        KeySpec::range(2, 0, 1, KeyFlags::OW.and(KeyFlags::UPDATE)),
    ],
    locks: LockUse::KEYS_ONLY,
    summary: "Renames a key, replacing any key of the new name.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::new("newkey", ArgumentKind::Key).of_spec(1)],
    example: &[
        ("SET mykey Hello", "OK"),
        ("RENAME mykey myotherkey", "OK"),
        ("GET myotherkey", "\"Hello\""),
        ("RENAME mykey myotherkey", "(error) ERR no such key"),
    ],
    run: Run::Write(rename),
    ..KEY
};

fn rename(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (source, target) = (request.at(1), request.at(2));
    if !tx.is_there(source) {
        return Err(Error::NO_SUCH_KEY);
    }
    if source != target {
        carry(tx, source, target);
    }
    Ok(reply.ok())
}

/// Gives a key that is there another name.
fn carry(tx: &mut Transaction<'_>, source: &[u8], target: &[u8]) {
    let replaced = tx.replaced_kind(target);
    tx.carry(source, tx.database(), target);
    tx.event(EventClass::GENERIC, "rename_from", source);
    tx.event(EventClass::GENERIC, "rename_to", target);
    if let (Some(before), Some(after)) = (replaced, tx.replaced_kind(target)) {
        tx.event_replaced(tx.database(), target, before, after);
    }
}

const RENAMENX: Command = Command {
    name: "renamenx",
    flags: Flags::FAST,
    keys: &[
        KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE)),
        KeySpec::range(2, 0, 1, KeyFlags::OW.and(KeyFlags::INSERT)),
    ],
    locks: LockUse::KEYS_ONLY,
    summary: "Renames a key only if the new name is free; returns 1 if it was renamed, 0 if not.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::new("newkey", ArgumentKind::Key).of_spec(1)],
    example: &[
        ("SET mykey Hello", "OK"),
        ("SET myotherkey World", "OK"),
        ("RENAMENX mykey myotherkey", "(integer) 0"),
        ("RENAMENX mykey mythirdkey", "(integer) 1"),
    ],
    run: Run::Write(renamenx),
    ..KEY
};

fn renamenx(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (source, target) = (request.at(1), request.at(2));
    if !tx.is_there(source) {
        return Err(Error::NO_SUCH_KEY);
    }
    let is_free = source != target && !tx.is_there(target);
    if is_free {
        carry(tx, source, target);
    }
    Ok(reply.bool(is_free))
}

const COPY: Command = Command {
    name: "copy",
    flags: Flags::DENYOOM,
    keys: &[
        KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS)),
        KeySpec::range(2, 0, 1, KeyFlags::OW.and(KeyFlags::UPDATE)),
    ],
    other_database: Some(|request, own, numbers| Some(copy_options(request, own, numbers).ok()?.0)),
    locks: LockUse::KEYS_ONLY,
    summary: "Copies a key, in this database or to another one.",
    since: "6.2.0",
    complexity: "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key).of_spec(1),
        Argument::integer("destination-db").token("DB").optional(),
        Argument::word("REPLACE").optional(),
    ],
    example: &[
        ("SET dolly sheep", "OK"),
        ("COPY dolly clone", "(integer) 1"),
        ("GET clone", "\"sheep\""),
        ("COPY dolly clone", "(integer) 0"),
        ("COPY dolly clone REPLACE", "(integer) 1"),
    ],
    run: Run::Write(copy),
    ..KEY
};

fn copy(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (source, target) = (request.at(1), request.at(2));
    let (database, replaces) = copy_options(request, tx.database(), tx.database_numbers())?;
    if source == target && database == tx.database() {
        return Err(Error::SAME_OBJECT);
    }
    // The source counts as used even if the copy is not made.
    let is_copied = tx.exists(source) && tx.is_there(source) && (replaces || !is_in(tx, database, target));
    if is_copied {
        let (own, kind) = (tx.database(), tx.replaced_kind(source));
        tx.select(database);
        let replaced = tx.replaced_kind(target);
        tx.select(own);
        tx.copy(source, database, target);
        tx.event_in(database, EventClass::GENERIC, "copy_to", target);
        if let (Some(before), Some(after)) = (replaced, kind) {
            tx.event_replaced(database, target, before, after);
        }
    }
    Ok(reply.bool(is_copied))
}

/// The database to which COPY copies a key, of those that clients know by `numbers`, and whether it may
/// replace a key there.
///
/// # Errors
///
/// Those of the options.
pub(in crate::commands) fn copy_options(
    request: Request<'_>,
    own: usize,
    numbers: Range<usize>,
) -> Result<(usize, bool)> {
    let (mut database, mut replaces) = (own, false);
    let mut options = Options::new(request, 3);
    while let Some(option) = options.next() {
        match option {
            _ if is_word(option, "replace") => replaces = true,
            _ if is_word(option, "db") => database = args::database(options.value()?, numbers.clone())?,
            _ => return Err(Error::SYNTAX),
        }
    }
    Ok((database, replaces))
}

const MOVE: Command = Command {
    name: "move",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    other_database: Some(|request, _, numbers| args::database(request.at(2), numbers).ok()),
    summary: "Moves a key to another database, unless it is present there; returns 1 if moved, 0 if not.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::integer("db")],
    example: &[
        ("SET mykey Hello", "OK"),
        ("MOVE mykey 1", "(integer) 1"),
        ("GET mykey", "(nil)"),
        ("SELECT 1", "OK"),
        ("GET mykey", "\"Hello\""),
        ("MOVE mykey 1", "(error) ERR source and destination objects are the same"),
        ("SELECT 0", "OK"),
    ],
    run: Run::Write(move_key),
    ..KEY
};

fn move_key(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let database = args::database(request.at(2), tx.database_numbers())?;
    if database == tx.database() {
        return Err(Error::SAME_OBJECT);
    }
    let is_moved = tx.is_there(key) && !is_in(tx, database, key);
    if is_moved {
        tx.carry(key, database, key);
        tx.event(EventClass::GENERIC, "move_from", key);
        tx.event_in(database, EventClass::GENERIC, "move_to", key);
    }
    Ok(reply.bool(is_moved))
}

/// Whether a key is there in another database.
fn is_in(tx: &mut Transaction<'_>, database: usize, key: &[u8]) -> bool {
    let own = tx.database();
    tx.select(database);
    let is_there = tx.is_there(key);
    tx.select(own);
    is_there
}

const SWAPDB: Command = Command {
    name: "swapdb",
    flags: Flags::FAST,
    scope: Scope::Everything,
    concern: Concern::Databases,
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    group: Group::SERVER,
    summary: "Swaps two databases at once for all clients.",
    since: "4.0.0",
    complexity: "O(N) where N is the count of clients watching or blocking on keys from both databases.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::integer("index1"), Argument::integer("index2")],
    example: &[
        ("SET mykey Hello", "OK"),
        ("SWAPDB 0 1", "OK"),
        ("EXISTS mykey", "(integer) 0"),
        ("SWAPDB 1 0", "OK"),
    ],
    run: Run::Write(swapdb),
    ..Command::DEFAULTS
};

fn swapdb(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let number = |at: usize, wrong: &'static str| {
        let number = parse_integer(request.at(at)).and_then(|number| i32::try_from(number).ok());
        number.ok_or(Error::fixed(wrong))
    };
    let one = number(1, "ERR invalid first DB index")?;
    let other = number(2, "ERR invalid second DB index")?;
    let check = |number: i32| {
        let numbers = tx.database_numbers();
        let found = usize::try_from(number).ok().filter(|number| numbers.contains(number));
        found.map(|number| number - numbers.start).ok_or(Error::NO_SUCH_DATABASE)
    };
    let (one, other) = (check(one)?, check(other)?);
    tx.everything_mut()?.swap_databases(one, other);
    Ok(reply.ok())
}
