//! INCREX: a counter with bounds and an expiry of its own, in one step.

use std::cmp::Ordering;

use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::long_double::LongDouble;
use crate::resp::{Reply, Request};
use crate::types::strings::Text;
use crate::values::Encoding;

use super::basics::{EXPIRATION, Expires};
use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[INCREX];

const INCREX: Command = Command {
    name: "increx",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    categories: Categories::STRING,
    group: Group::STRING,
    summary: "Adds to the number at a key within optional bounds, and can set its expiry.",
    since: "8.8.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::one_of(
            "increment",
            &[Argument::double("float").token("BYFLOAT"), Argument::integer("integer").token("BYINT")],
        )
        .optional(),
        Argument::string("lowerbound").token("LBOUND").optional(),
        Argument::string("upperbound").token("UBOUND").optional(),
        Argument::word("SATURATE").optional(),
        EXPIRATION,
        Argument::word("ENX").optional(),
    ],
    example: &[
        ("INCREX requests BYINT 3 UBOUND 5 EX 60 ENX", "[(integer) 3, (integer) 3]"),
        ("INCREX requests BYINT 3 UBOUND 5 EX 60 ENX", "[(integer) 3, (integer) 0]"),
        ("INCREX requests BYINT 3 UBOUND 5 SATURATE", "[(integer) 5, (integer) 2]"),
        ("TTL requests", "(integer) 60"),
        ("INCREX balance BYFLOAT 1.5", "[\"1.5\", \"1.5\"]"),
    ],
    run: Run::Write(increx),
    ..Command::DEFAULTS
};

/// The amount to add.
#[derive(Clone, Copy)]
enum Amount<'a> {
    One,
    Integer(&'a [u8]),
    Float(&'a [u8]),
}

/// The options behind the key.
struct Wishes<'a> {
    amount: Amount<'a>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturates: bool,
    expires: Expires<'a>,
    persists: bool,
    /// Whether a key that expires goes on to do so when it did.
    keeps_expiry: bool,
}

impl<'a> Wishes<'a> {
    fn parse(request: Request<'a>) -> Result<Wishes<'a>> {
        let mut wishes = Wishes {
            amount: Amount::One,
            lower: None,
            upper: None,
            saturates: false,
            expires: Expires::Never,
            persists: false,
            keeps_expiry: false,
        };
        let mut options = Options::new(request, 2);
        while let Some(option) = options.next() {
            let is_free = matches!(wishes.amount, Amount::One);
            match option {
                _ if is_word(option, "byint") && is_free => wishes.amount = Amount::Integer(options.value()?),
                _ if is_word(option, "byfloat") && is_free => wishes.amount = Amount::Float(options.value()?),
                _ if is_word(option, "lbound") => wishes.lower = Some(options.value()?),
                _ if is_word(option, "ubound") => wishes.upper = Some(options.value()?),
                _ if is_word(option, "saturate") && !wishes.saturates => wishes.saturates = true,
                _ if is_word(option, "enx") => wishes.keeps_expiry = true,
                _ if is_word(option, "persist") && matches!(wishes.expires, Expires::Never) => {
                    wishes.persists = true;
                }
                _ if wishes.persists || is_word(option, "keepttl") => return Err(Error::SYNTAX),
                _ => wishes.expires = wishes.expires.or(option, &mut options)?,
            }
        }
        if wishes.keeps_expiry && wishes.persists {
            return Err(Error::SYNTAX);
        }
        if wishes.keeps_expiry && matches!(wishes.expires, Expires::Never) {
            return Err(Error::fixed("ERR ENX flag requires an expiration"));
        }
        Ok(wishes)
    }

    /// When the key is to expire.
    fn expiry(&self, tx: &Transaction<'_>, key: &[u8]) -> Result<Expiry> {
        if self.persists {
            return Ok(Expiry::Never);
        }
        if matches!(self.expires, Expires::Never) {
            return Ok(Expiry::Keep);
        }
        let expiry = self.expires.resolve("increx", tx)?;
        let expires_already = || tx.expires_at_ms(key).flatten().is_some();
        Ok(if self.keeps_expiry && expires_already() { Expiry::Keep } else { expiry })
    }
}

const WRONG_BOUNDS: Error = Error::fixed("ERR LBOUND can't be greater than UBOUND");

/// An integer among the arguments, which an error names.
fn integer(name: &str, text: &[u8]) -> Result<i64> {
    args::integer(text).map_err(|_| Error::text(format!("ERR {name} is not an integer or out of range")))
}

/// A number among the arguments, which an error names.
fn float(name: &str, text: &[u8]) -> Result<LongDouble> {
    LongDouble::parse(text).ok_or_else(|| Error::text(format!("ERR {name} is not a valid float")))
}

fn increx(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let wishes = Wishes::parse(request)?;
    let key = request.at(1);
    let expiry = wishes.expiry(tx, key)?;
    match wishes.amount {
        Amount::One => add_integer(tx, key, 1, &wishes, expiry, reply),
        Amount::Integer(text) => add_integer(tx, key, integer("Increment", text)?, &wishes, expiry, reply),
        Amount::Float(text) => add_float(tx, key, text, &wishes, expiry, reply),
    }
}

fn add_integer(
    tx: &mut Transaction<'_>,
    key: &[u8],
    amount: i64,
    wishes: &Wishes<'_>,
    expiry: Expiry,
    reply: Reply<'_>,
) -> Result {
    let lower = wishes.lower.map_or(Ok(i64::MIN), |text| integer("LBOUND", text))?;
    let upper = wishes.upper.map_or(Ok(i64::MAX), |text| integer("UBOUND", text))?;
    if lower > upper {
        return Err(WRONG_BOUNDS);
    }
    let before = tx.peek::<Text>(key)?.map_or(Ok(0), args::integer)?;
    let wanted = i128::from(before) + i128::from(amount);
    let after = wanted.clamp(lower.into(), upper.into());
    let is_within = after == wanted;
    if !is_within && !wishes.saturates {
        return Ok(reply.pair(|reply| reply.integer(before), |reply| reply.integer(0)));
    }
    let overflow = Error::fixed("ERR applied increment would overflow");
    let added = i64::try_from(after - i128::from(before)).map_err(|_| overflow)?;
    let after = before + added;
    tx.put(key, itoa::Buffer::new().format(after).as_bytes(), expiry);
    tell(tx, key, "incrby", expiry);
    Ok(reply.pair(|reply| reply.integer(after), |reply| reply.integer(added)))
}

fn add_float(
    tx: &mut Transaction<'_>,
    key: &[u8],
    amount: &[u8],
    wishes: &Wishes<'_>,
    expiry: Expiry,
    reply: Reply<'_>,
) -> Result {
    let amount = float("Increment", amount)?;
    if !amount.is_finite() {
        return Err(Error::fixed("ERR BYFLOAT increment cannot be Infinity"));
    }
    let bound = |name, text: Option<&[u8]>| text.map(|text| float(name, text)).transpose();
    let lower = bound("LBOUND", wishes.lower)?.unwrap_or(LongDouble::largest().negated());
    let upper = bound("UBOUND", wishes.upper)?.unwrap_or(LongDouble::largest());
    if lower.partial_cmp(&upper) == Some(Ordering::Greater) {
        return Err(WRONG_BOUNDS);
    }
    let before = tx.peek::<Text>(key)?;
    let before = before.map_or(Some(LongDouble::ZERO), LongDouble::parse).ok_or(Error::NOT_A_FLOAT)?;
    if !before.is_finite() {
        return Err(Error::fixed("ERR value cannot be Infinity"));
    }
    // A sum that is no finite number is beyond the bound on its side.
    let is_negative = amount.partial_cmp(&LongDouble::ZERO) == Some(Ordering::Less);
    let beyond = if is_negative { lower } else { upper };
    let (after, is_within) = match before.checked_add(amount) {
        None => (beyond, false),
        Some(sum) if sum.partial_cmp(&upper) == Some(Ordering::Greater) => (upper, false),
        Some(sum) if sum.partial_cmp(&lower) == Some(Ordering::Less) => (lower, false),
        Some(sum) => (sum, true),
    };
    if !is_within && !wishes.saturates {
        let before = before.to_text();
        return Ok(reply.pair(|reply| reply.decimal(&before), |reply| reply.decimal("0")));
    }
    let added = match is_within {
        true => amount,
        false => after
            .checked_add(before.negated())
            .ok_or(Error::fixed("ERR applied increment would be Infinity"))?,
    };
    let (after, added) = (after.to_text(), added.to_text());
    tx.put_encoded(key, after.as_bytes(), expiry, Encoding::Text);
    tell(tx, key, "incrbyfloat", expiry);
    Ok(reply.pair(|reply| reply.decimal(&after), |reply| reply.decimal(&added)))
}

fn tell(tx: &Transaction<'_>, key: &[u8], event: &'static str, expiry: Expiry) {
    tx.event(EventClass::STRING, event, key);
    if let Expiry::At(_) = expiry {
        tx.event(EventClass::GENERIC, "expire", key);
    }
}
