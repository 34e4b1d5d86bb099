//! Commands that read or write fields of hashes and their expiries at once.

use crate::keyspace::{Change, Transaction};
use crate::resp::{Reply, Request, Sent};
use crate::types::hashes::Hash;

use super::field_expiries::{FIELDS, Fields, MISSING_FIELDS, field_moment_ms, only_once};
use crate::commands::args::{TimeUnit, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[HGETDEL, HGETEX, HSETEX];

/// The facts that most commands of this file share.
const HASH: Command = Command { categories: Categories::HASH, group: Group::HASH, ..Command::DEFAULTS };

const HGETDEL: Command = Command {
    name: "hgetdel",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Returns the values of hash fields and deletes the fields.",
    since: "8.0.0",
    complexity: "O(N) where N is the number of specified fields",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, FIELDS],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HGETDEL myhash FIELDS 2 a none", "[\"Hello\", (nil)]"),
        ("HKEYS myhash", "[\"b\"]"),
    ],
    run: Run::Write(hgetdel),
    ..HASH
};

fn hgetdel(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    tx.peek::<Hash>(key)?;
    let fields = Fields::at_end(request)?;
    let mut values = Vec::with_capacity(fields.len());
    tx.change::<Hash, _>(key, "hdel", |hash| {
        for field in fields.iter(request) {
            values.push(hash.view().get(field).map(<[u8]>::to_vec));
            hash.remove(field);
        }
    })?;
    Ok(reply_values(fields, values, reply))
}

/// Replies with the values of fields; an absent hash has none.
fn reply_values(fields: Fields, mut values: Vec<Option<Vec<u8>>>, reply: Reply<'_>) -> Sent {
    values.resize(fields.len(), None);
    reply.array_of(values.into_iter(), |value, reply| reply.bulk_or_nil(value.as_deref()))
}

/// The change of the fields' expiry that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Takes it off.
    Persist,
    /// Keeps it (KEEPTTL).
    Keep,
    /// Sets it, in milliseconds since 1970.
    At(u64),
}

/// The options of a request, and its fields.
#[derive(Debug)]
struct FieldOptions {
    moment: Option<Moment>,
    /// The key must be there, or must not.
    key_is_there: Option<bool>,
    /// All fields must be there, or none.
    fields_are_there: Option<bool>,
    fields: Fields,
}

impl FieldOptions {
    /// Reads the options and the fields, which may come in any order. HSETEX has values for its fields, and
    /// other options.
    fn parse(tx: &Transaction<'_>, request: Request<'_>, command: &str, sets: bool) -> Result<FieldOptions> {
        let (mut moment, mut key_is_there, mut fields_are_there, mut fields) = (None, None, None, None);
        let (mut at, mut is_of_other) = (2, false);
        while let Some(option) = request.get(at) {
            at += 1;
            let unit = match option {
                _ if is_word(option, "ex") => Some(TimeUnit::SECONDS),
                _ if is_word(option, "px") => Some(TimeUnit::MILLISECONDS),
                _ if is_word(option, "exat") => Some(TimeUnit::UNIX_SECONDS),
                _ if is_word(option, "pxat") => Some(TimeUnit::UNIX_MILLISECONDS),
                _ => None,
            };
            let named = match option {
                _ if !sets && is_word(option, "persist") => Some(Moment::Persist),
                _ if sets && is_word(option, "keepttl") => Some(Moment::Keep),
                _ => None,
            };
            if unit.is_some() || named.is_some() {
                if moment.is_some() {
                    return Err(Error::fixed(match sets {
                        true => "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                        false => "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
                    }));
                }
                moment = named;
            }
            if let Some(unit) = unit {
                let time = request.get(at).ok_or(Error::fixed("ERR missing expire time"))?;
                moment = Some(Moment::At(field_moment_ms(unit, tx, time, command)?));
                at += 1;
            } else if named.is_some() {
                // It stands alone.
            } else if is_word(option, "fields") {
                let arguments = if sets { 2 } else { 1 };
                request.get(at).ok_or_else(|| Error::wrong_arity(command))?;
                let read = Fields::after(request, at, arguments, "ERR invalid number of fields")?;
                at = read.end(arguments);
                only_once(&mut fields, read)?;
            } else if let Some(wanted) = is_there(option, "fxx", "fnx").filter(|_| sets) {
                if fields_are_there.replace(wanted).is_some() {
                    return Err(Error::fixed("ERR Only one of FXX or FNX arguments can be specified"));
                }
            } else if let Some(wanted) = is_there(option, "xx", "nx").filter(|_| sets) {
                if key_is_there.replace(wanted).is_some() {
                    return Err(Error::fixed("ERR Only one of XX or NX arguments can be specified"));
                }
            } else if ["persist", "keepttl", "fnx", "fxx"].iter().any(|word| is_word(option, word)) {
                is_of_other = true;
            } else {
                return Err(Error::quoting("ERR unknown argument: ", option, ""));
            }
        }
        let fields = fields.ok_or(MISSING_FIELDS)?;
        if is_of_other {
            // Redis reads all options before it refuses one of the other command, and does not name it.
            return Err(Error::fixed("ERR unknown argument"));
        }
        Ok(FieldOptions { moment, key_is_there, fields_are_there, fields })
    }
}

/// Whether an option asks for something to be there, or not to be there.
fn is_there(option: &[u8], there: &str, absent: &str) -> Option<bool> {
    is_word(option, there).then_some(true).or(is_word(option, absent).then_some(false))
}

const EX: Argument = Argument::integer("seconds").token("EX");
const PX: Argument = Argument::integer("milliseconds").token("PX");
const EXAT: Argument = Argument::unix_time("unix-time-seconds").token("EXAT");
const PXAT: Argument = Argument::unix_time("unix-time-milliseconds").token("PXAT");

const HGETEX: Command = Command {
    name: "hgetex",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))
        .noted("RW and UPDATE because it changes the TTL")],
    summary: "Returns the values of hash fields and sets or removes their expiry.",
    since: "8.0.0",
    complexity: "O(N) where N is the number of specified fields",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::one_of("expiration", &[EX, PX, EXAT, PXAT, Argument::word("PERSIST")]).optional(),
        FIELDS,
    ],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HGETEX myhash EX 10 FIELDS 2 a none", "[\"Hello\", (nil)]"),
        ("HTTL myhash FIELDS 2 a b", "[(integer) 10, (integer) -1]"),
    ],
    run: Run::Write(hgetex),
    ..HASH
};

fn hgetex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let hash = tx.peek::<Hash>(key)?;
    let options = FieldOptions::parse(tx, request, "hgetex", false)?;
    let fields = options.fields;
    let Some(moment) = options.moment else {
        return Ok(reply.array_of_len(fields.len(), fields.iter(request), |field, reply| {
            reply.bulk_or_nil(hash.and_then(|hash| hash.get(field)))
        }));
    };
    let (event, is_over) = match moment {
        Moment::At(at_ms) if tx.is_over(at_ms) => ("hdel", true),
        Moment::At(_) => ("hexpire", false),
        Moment::Persist | Moment::Keep => ("hpersist", false),
    };
    let (mut values, mut removed) = (Vec::with_capacity(fields.len()), 0);
    tx.change::<Hash, _>(key, event, |hash| {
        let mut changed = Vec::new();
        for field in fields.iter(request) {
            values.push(hash.view().get(field).map(<[u8]>::to_vec));
            let Some(current_ms) = hash.view().expires_at_ms(field) else { continue };
            match moment {
                Moment::At(_) if is_over => removed += usize::from(hash.remove(field)),
                Moment::At(at_ms) => {
                    hash.set_moment(field, Some(at_ms));
                    changed.push(field);
                }
                Moment::Persist if current_ms.is_some() => {
                    hash.set_moment(field, None);
                    changed.push(field);
                }
                Moment::Persist | Moment::Keep => {}
            }
        }
        match moment {
            Moment::At(at_ms) => hash.note_moments(&changed, at_ms),
            Moment::Persist | Moment::Keep => hash.note_persisted(&changed),
        }
    })?;
    tx.count_expired_fields(removed);
    Ok(reply_values(fields, values, reply))
}

const HSETEX: Command = Command {
    name: "hsetex",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Sets hash fields, with optional conditions and an optional expiry.",
    since: "8.0.0",
    complexity: "O(N) where N is the number of fields being set.",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::one_of("key-condition", &Argument::words(["NX", "XX"])).since("9.1.0").optional(),
        Argument::one_of("condition", &Argument::words(["FNX", "FXX"])).optional(),
        Argument::one_of("expiration", &[EX, PX, EXAT, PXAT, Argument::word("KEEPTTL")]).optional(),
        Argument::block(
            "fields",
            &[
                Argument::integer("numfields"),
                Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
            ],
        )
        .token("FIELDS"),
    ],
    example: &[
        ("HSETEX myhash EX 10 FIELDS 2 a Hello b World", "(integer) 1"),
        ("HTTL myhash FIELDS 1 a", "[(integer) 10]"),
        ("HSETEX myhash FNX FIELDS 2 b Hi c Hi", "(integer) 0"),
    ],
    run: Run::Write(hsetex),
    ..HASH
};

fn hsetex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let options = FieldOptions::parse(tx, request, "hsetex", true)?;
    let pairs = options.fields.pairs(request);
    let hash = tx.peek::<Hash>(key)?;
    let is_field = |field| hash.is_some_and(|hash| hash.get(field).is_some());
    let is_key_right = options.key_is_there.is_none_or(|wanted| hash.is_some() == wanted);
    let are_fields_right = options
        .fields_are_there
        .is_none_or(|wanted| pairs.clone().all(|(field, _)| is_field(field) == wanted));
    if !is_key_right || !are_fields_right {
        return Ok(reply.bool(false));
    }
    let is_over = matches!(options.moment, Some(Moment::At(at_ms)) if tx.is_over(at_ms));
    tx.make::<Hash, _>(key, "hset", |hash| set(hash, pairs, options.moment, is_over))?;
    tx.count_expired_fields(if is_over { options.fields.len() } else { 0 });
    Ok(reply.bool(true))
}

/// Sets fields, and when they expire. If that is over, they are removed.
fn set<'r>(
    hash: &mut Change<'_, Hash>,
    pairs: impl Iterator<Item = (&'r [u8], &'r [u8])>,
    moment: Option<Moment>,
    is_over: bool,
) {
    let mut changed = Vec::new();
    for (field, value) in pairs {
        match moment {
            Some(Moment::Keep) => _ = hash.replace(field, value),
            _ if is_over => {
                hash.insert(field, value);
                hash.remove(field);
            }
            Some(Moment::At(at_ms)) => {
                hash.insert_until(field, value, at_ms);
                changed.push(field);
            }
            _ => _ = hash.insert(field, value),
        }
    }
    if let Some(Moment::At(at_ms)) = moment {
        hash.note_moments(&changed, at_ms);
        hash.report_also(if is_over { "hdel" } else { "hexpire" });
    }
}
