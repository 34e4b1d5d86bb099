//! Finding keys: KEYS, SCAN and RANDOMKEY.

use crate::commands::costs;
use crate::glob::Pattern;
use crate::keyspace::{Cursor, Names, ScanLimit, Transaction};
use crate::resp::{Reply, Request};

use crate::commands::args::{Options, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{AllKeys, Argument, Categories, Command, Concern, Group, Result, Run};
use crate::commands::random_and_scan::{count, parse_cursor, unknown_option};

pub(in crate::commands) const COMMANDS: &[Command] = &[KEYS, RANDOMKEY, SCAN];

const KEYS: Command = Command {
    name: "keys",
    concern: Concern::AllKeys(AllKeys::Names),
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    group: Group::GENERIC,
    summary: "Returns all keys that match a pattern. SCAN returns a few at a time.",
    since: "1.0.0",
    complexity: "O(N) with N being the number of keys in the database, under the assumption that the key names in the database and the given pattern have limited length.",
    cost: costs::ALL,
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    arguments: &[Argument::pattern("pattern")],
    example: &[("MSET firstname Jack lastname Stuntman age 35", "OK"), ("KEYS a??", "[\"age\"]")],
    run: Run::Read(keys),
    ..Command::DEFAULTS
};

fn keys(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let pattern = Pattern::new(request.at(1), false);
    let is_any = request.at(1) == b"*";
    let mut found = Names::default();
    tx.walk()?.for_each_key(|key| {
        if is_any || pattern.matches(key) {
            found.push(key);
        }
    });
    Ok(reply.array_of(found.iter(), |key, reply| reply.bulk(key)))
}

const SCAN: Command = Command {
    name: "scan",
    concern: Concern::AllKeys(AllKeys::Scan),
    categories: Categories::KEYSPACE,
    group: Group::GENERIC,
    summary: "Returns some keys and the cursor for the next call; a full scan returns every key present throughout.",
    since: "2.8.0",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
    cost: costs::KEYS_WITH_COUNT,
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    arguments: &[
        Argument::integer("cursor"),
        Argument::pattern("pattern").token("MATCH").optional(),
        Argument::integer("count").token("COUNT").optional(),
        Argument::string("type").token("TYPE").since("6.0.0").optional(),
    ],
    example: &[
        ("SET mykey Hello", "OK"),
        ("SCAN 0 MATCH my*", "[\"0\", [\"mykey\"]]"),
        ("SCAN 0 TYPE list", "[\"0\", []]"),
    ],
    run: Run::Read(scan),
    ..Command::DEFAULTS
};

fn scan(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let cursor = parse_cursor(request.at(1)).ok_or(Error::fixed("ERR invalid cursor"))?;
    let cursor = Cursor::from_number(cursor);
    let filter = Filter::parse(request)?;
    let mut found = Names::default();
    let next = tx.walk()?.scan(cursor, ScanLimit { keys: filter.keys }, |key, facts| {
        if filter.matches(key, facts.name) {
            found.push(key);
        }
    });
    Ok(reply.pair(
        |reply| reply.bulk(itoa::Buffer::new().format(next.number()).as_bytes()),
        |reply| reply.array_of(found.iter(), |key, reply| reply.bulk(key)),
    ))
}

/// The keys, of some with their types, that match a pattern.
pub(crate) fn matching(pattern: &[u8], keys: Vec<(Vec<u8>, String)>) -> Vec<Vec<u8>> {
    let (is_all, pattern) = (pattern == b"*", Pattern::new(pattern, false));
    keys.into_iter().map(|(key, _)| key).filter(|key| is_all || pattern.matches(key)).collect()
}

/// The keys that SCAN returns, and how many it visits a call.
pub(crate) struct Filter<'a> {
    pattern: Option<Pattern<'a>>,
    kind: Option<&'a [u8]>,
    /// How many keys it looks at.
    pub keys: usize,
}

impl<'a> Filter<'a> {
    /// Redis: the default of COUNT.
    const KEYS: usize = 10;

    /// Reads the options of SCAN.
    ///
    /// # Errors
    ///
    /// If they are wrong.
    pub(crate) fn parse(request: Request<'a>) -> Result<Filter<'a>> {
        let mut filter = Filter { pattern: None, kind: None, keys: Filter::KEYS };
        let mut pattern = None;
        let mut options = Options::new(request, 2);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "match") => pattern = Some(options.value()?),
                _ if is_word(option, "type") => filter.kind = Some(options.value()?),
                _ if is_word(option, "count") => filter.keys = count(options.value()?)?,
                _ => return Err(unknown_option(option)),
            }
        }
        filter.pattern = pattern.filter(|pattern| *pattern != b"*").map(|it| Pattern::new(it, false));
        Ok(filter)
    }

    /// Whether it names keys of one type only.
    pub(crate) fn asks_for_type(&self) -> bool {
        self.kind.is_some()
    }

    /// Whether it names a key of this type.
    pub(crate) fn matches(&self, key: &[u8], type_name: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
            && self.kind.is_none_or(|kind| is_word(kind, type_name))
    }
}

const RANDOMKEY: Command = Command {
    name: "randomkey",
    concern: Concern::AllKeys(AllKeys::Any),
    categories: Categories::KEYSPACE,
    group: Group::GENERIC,
    summary: "Returns a random key.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
    example: &[("RANDOMKEY", "(nil)"), ("SET mykey Hello", "OK"), ("RANDOMKEY", "\"mykey\"")],
    run: Run::Read(randomkey),
    ..Command::DEFAULTS
};

fn randomkey(tx: &Transaction<'_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.bulk_or_nil(tx.walk()?.random_key().as_deref()))
}
