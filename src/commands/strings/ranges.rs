//! Parts of strings (APPEND, GETRANGE, SETRANGE, STRLEN), and the common subsequence of two strings (LCS).

use std::ops::Range;

use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::lcs::{self, CommonSubsequence, Match, TooLong};
use crate::resp::{Reply, Request, tree};
use crate::types::strings::Text;

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Deprecated, Flags, Group, KeyFlags, KeySpec, LockUse,
    Prepares, Result, Run,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[APPEND, GETRANGE, LCS, SETRANGE, STRLEN, SUBSTR];

/// The facts that most commands of this file share.
const STRING: Command = Command { categories: Categories::STRING, group: Group::STRING, ..Command::DEFAULTS };

const STRLEN: Command = Command {
    name: "strlen",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns the length of a string in bytes; 0 if the key is absent.",
    since: "2.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[
        ("SET mykey \"Hello world\"", "OK"),
        ("STRLEN mykey", "(integer) 11"),
        ("STRLEN nonexisting", "(integer) 0"),
    ],
    run: Run::Read(strlen),
    ..STRING
};

fn strlen(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(tx.get::<Text>(request.at(1))?.map_or(0, <[u8]>::len)))
}

const APPEND: Command = Command {
    name: "append",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::INSERT))],
    summary: "Appends to a string, creating it if it is absent; returns the new length.",
    since: "2.0.0",
    complexity: "O(1). The amortized time complexity is O(1) assuming the appended value is small and the already present value is of any size, since the dynamic string library used by Redis will double the free space available on every reallocation.",
    cost: costs::BRIEF.changing_part(usize::MAX).not_if_long(),
    prepares: Prepares::Texts,
    arguments: &[Argument::KEY, Argument::string("value")],
    example: &[
        ("APPEND mykey Hello", "(integer) 5"),
        ("APPEND mykey \" World\"", "(integer) 11"),
        ("GET mykey", "\"Hello World\""),
    ],
    run: Run::Write(append),
    ..STRING
};

fn append(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, tail) = (request.at(1), request.at(2));
    let Some(before) = tx.peek::<Text>(key)?.map(<[u8]>::len) else {
        tx.put(key, tail, Expiry::Never);
        tx.event(EventClass::STRING, "append", key);
        return Ok(reply.count(tail.len()));
    };
    let after = checked_length(tx, before, tail.len())?;
    tx.change_part(key, after, |part| part.bytes_mut(before..after).copy_from_slice(tail))?;
    tx.event(EventClass::STRING, "append", key);
    Ok(reply.count(after))
}

const SETRANGE: Command = Command {
    name: "setrange",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Overwrites part of a string from a byte offset, padding with zero bytes as needed.",
    since: "2.2.0",
    complexity: "O(1), not counting the time taken to copy the new string in place. Usually, this string is very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M being the length of the value argument.",
    // The offset is below 100,000: what is missing in front of it is padded.
    cost: costs::BRIEF.changing_part(5),
    arguments: &[Argument::KEY, Argument::integer("offset"), Argument::string("value")],
    example: &[
        ("SET key1 \"Hello World\"", "OK"),
        ("SETRANGE key1 6 Redis", "(integer) 11"),
        ("GET key1", "\"Hello Redis\""),
    ],
    run: Run::Write(setrange),
    ..STRING
};

fn setrange(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, part) = (request.at(1), request.at(3));
    let offset = args::integer(request.at(2))?;
    let offset = usize::try_from(offset).map_err(|_| Error::fixed("ERR offset is out of range"))?;
    let before = tx.peek::<Text>(key)?.map_or(0, <[u8]>::len);
    if part.is_empty() {
        return Ok(reply.count(before));
    }
    let end = checked_length(tx, offset, part.len())?;
    let bytes = tx.change_part(key, end, |value| {
        value.bytes_mut(offset..end).copy_from_slice(part);
        value.value().len()
    })?;
    tx.event(EventClass::STRING, "setrange", key);
    Ok(reply.count(bytes))
}

/// The sum of two lengths, unless it exceeds the limit for a string.
fn checked_length(tx: &Transaction<'_>, bytes: usize, more: usize) -> Result<usize> {
    let sum = bytes.checked_add(more).filter(|sum| *sum <= tx.value_bytes_max());
    sum.ok_or(Error::STRING_TOO_LONG)
}

const GETRANGE: Command = Command {
    name: "getrange",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::READS,
    summary: "Returns the part of a string between two byte offsets; negative offsets count from the end.",
    since: "2.4.0",
    complexity: "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::integer("start"), Argument::integer("end")],
    example: &[
        ("SET mykey \"This is a string\"", "OK"),
        ("GETRANGE mykey 0 3", "\"This\""),
        ("GETRANGE mykey -3 -1", "\"ing\""),
        ("GETRANGE mykey 10 100", "\"string\""),
    ],
    run: Run::Read(getrange),
    ..STRING
};

fn getrange(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (start, end) = (args::integer(request.at(2))?, args::integer(request.at(3))?);
    let key = request.at(1);
    let value = tx.get::<Text>(key)?.unwrap_or_default();
    Ok(tx.reply_text(key, value, part(value.len(), start, end), reply))
}

const SUBSTR: Command = Command {
    name: "substr",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::READS,
    summary: "Returns part of a string: the former name of GETRANGE.",
    since: "1.0.0",
    complexity: "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.",
    cost: costs::ARGUMENTS,
    deprecated: Some(Deprecated { since: "2.0.0", replaced_by: "`GETRANGE`" }),
    arguments: &[Argument::KEY, Argument::integer("start"), Argument::integer("end")],
    example: &[("SET mykey \"This is a string\"", "OK"), ("SUBSTR mykey 0 3", "\"This\"")],
    run: Run::Read(getrange),
    ..STRING
};

/// The part from `start` to `end`, both included, of a value of this length.
fn part(length: usize, start: i64, end: i64) -> Range<usize> {
    let length = length as i64;
    // Redis looks at this before it counts from the end.
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_start = |offset: i64| if offset < 0 { offset.saturating_add(length).max(0) } else { offset };
    let (start, end) = (from_start(start), from_start(end).min(length - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

const LCS: Command = Command {
    name: "lcs",
    keys: &[KeySpec::range(1, 1, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::READS,
    summary: "Returns the longest common subsequence of two strings, its length or its positions.",
    since: "7.0.0",
    complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
    cost: costs::EACH_WITH_EACH,
    arguments: &[
        Argument::new("key1", ArgumentKind::Key),
        Argument::new("key2", ArgumentKind::Key),
        Argument::word("LEN").optional(),
        Argument::word("IDX").optional(),
        Argument::integer("min-match-len").token("MINMATCHLEN").optional(),
        Argument::word("WITHMATCHLEN").optional(),
    ],
    example: &[
        ("MSET key1 ohmytext key2 mynewtext", "OK"),
        ("LCS key1 key2", "\"mytext\""),
        ("LCS key1 key2 LEN", "(integer) 6"),
    ],
    run: Run::Read(find_lcs),
    ..STRING
};

fn find_lcs(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let string = |at: usize| {
        let found = tx.get::<Text>(request.at(at));
        let found = found.map_err(|_| Error::fixed("ERR The specified keys must contain string values"));
        Ok::<_, Error>(found?.unwrap_or_default())
    };
    // Both are looked up before either is refused.
    let (one, other) = (string(1), string(2));
    let (one, other) = (one?, other?);
    let options = LcsOptions::parse(request)?;
    let table_bytes_max = tx.value_bytes_max();
    if options.wants_length {
        return Ok(reply.count(lcs::length(one, other, table_bytes_max)?));
    }
    let found = CommonSubsequence::find(one, other, table_bytes_max)?;
    if !options.wants_matches {
        return Ok(reply.bulk(&found.bytes(one)));
    }
    let matches = found.matches().into_iter().filter(|found| found.bytes() >= options.least_match_bytes);
    let describe = |found: Match| {
        let range = |start: usize| tree::array([start, start + found.bytes() - 1].map(tree::count));
        let length = options.tells_match_length.then(|| tree::count(found.bytes()));
        tree::array([range(found.one), range(found.other)].into_iter().chain(length))
    };
    Ok(reply.tree(&tree::map([
        ("matches", tree::array(matches.map(describe))),
        ("len", tree::count(found.length())),
    ])))
}

impl From<TooLong> for Error {
    fn from(why: TooLong) -> Error {
        match why {
            TooLong::Refused => Error::LCS_TOO_LONG,
            TooLong::NoMemory => Error::LCS_NO_MEMORY,
        }
    }
}

/// The options of LCS.
#[derive(Default)]
struct LcsOptions {
    wants_length: bool,
    wants_matches: bool,
    tells_match_length: bool,
    least_match_bytes: usize,
}

impl LcsOptions {
    fn parse(request: Request<'_>) -> Result<LcsOptions> {
        let mut parsed = LcsOptions::default();
        let mut options = Options::new(request, 3);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "len") => parsed.wants_length = true,
                _ if is_word(option, "idx") => parsed.wants_matches = true,
                _ if is_word(option, "withmatchlen") => parsed.tells_match_length = true,
                _ if is_word(option, "minmatchlen") => {
                    let least = args::integer(options.value()?)?;
                    parsed.least_match_bytes = usize::try_from(least).unwrap_or(0);
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        if parsed.wants_length && parsed.wants_matches {
            return Err(Error::fixed("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(parsed)
    }
}
