//! SORT and SORT_RO: the elements of a list, a set or a sorted set in another order.
//!
//! [`options`] reads the request, [`pattern`] finds the keys that BY and GET stand for, [`order`] sorts. BY
//! and GET read keys that the request does not name: a transaction for them holds everything, and the client
//! must be allowed to read all keys. A request without such patterns holds only the keys that it names.

mod options;
mod order;
mod pattern;

use crate::commands::amounts;
use crate::commands::door::permission::may_read_all_keys;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Arity, Categories, Command, Context, Flags, Group, KeyFlags, KeySearch, KeySpec,
    Result, Run,
};
use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::resp::{Reply, Request};
use crate::types::lists::{FACTS, List, NewList};
use crate::types::sets::Member;
use crate::values::{Content, Value};
use options::{Sorting, target_position, uses_patterns};
use order::sorted;
use pattern::Pattern;

pub(super) const COMMANDS: &[Command] = &[SORT, SORT_RO];

/// The most bytes of one reply, or of what GET collects for STORE: several elements may have the same long
/// value.
const RESULT_BYTES_MAX: usize = 512 << 20;

/// The collection to sort.
const SOURCE: KeySpec = KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS));
/// The keys that BY and GET read.
const PATTERNS: KeySpec = KeySpec::searched(
    KeySearch::Unnamed(uses_patterns),
    KeyFlags::RO.and(KeyFlags::ACCESS),
    "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort",
);
/// The key that STORE writes.
const TARGET: KeySpec = KeySpec::searched(
    KeySearch::Position(target_position),
    KeyFlags::OW.and(KeyFlags::UPDATE),
    "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array",
);

const CATEGORIES: Categories =
    Categories::DANGEROUS.and(Categories::LIST).and(Categories::SET).and(Categories::SORTEDSET);

const BY: Argument = Argument::pattern("pattern").token("BY").optional().of_spec(1);
const LIMIT: Argument =
    Argument::block("offset_count", &[Argument::integer("offset"), Argument::integer("count")])
        .token("LIMIT")
        .optional();
const GET: Argument =
    Argument::pattern("pattern").token("GET").optional().multiple().multiple_token().of_spec(1);
const ORDER: Argument =
    Argument::one_of("order", &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")])
        .optional();
const ALPHA: Argument = Argument::pure_token("sorting", "ALPHA").optional();
const STORE: Argument = Argument::new("destination", ArgumentKind::Key).token("STORE").optional().of_spec(2);

const SORT: Command = Command {
    name: "sort",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[SOURCE, PATTERNS, TARGET],
    categories: CATEGORIES.and(Categories::WRITE),
    group: Group::Generic,
    summary: "Sorts a list, a set or a sorted set, and returns or stores the elements.",
    since: "1.0.0",
    complexity: "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
    reads_much: Some(amounts::sorted),
    arguments: &[Argument::KEY, BY, LIMIT, GET, ORDER, ALPHA, STORE],
    example: &[
        ("RPUSH mylist 3 10 2", "(integer) 3"),
        ("SORT mylist", "[\"2\", \"3\", \"10\"]"),
        ("SORT mylist DESC LIMIT 0 2", "[\"10\", \"3\"]"),
        ("MSET weight_2 9 weight_3 1 weight_10 5", "OK"),
        ("SORT mylist BY weight_* GET # GET weight_*", "[\"3\", \"1\", \"10\", \"5\", \"2\", \"9\"]"),
        ("SORT mylist ALPHA STORE sorted", "(integer) 3"),
        ("LRANGE sorted 0 -1", "[\"10\", \"2\", \"3\"]"),
    ],
    run: Run::Server(sort),
    ..Command::DEFAULTS
};

fn sort(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    sort_with(context, request, true, reply)
}

const SORT_RO: Command = Command {
    name: "sort_ro",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    keys: &[SOURCE, PATTERNS],
    categories: CATEGORIES.and(Categories::READ),
    group: Group::Generic,
    summary: "Sorts a list, a set or a sorted set, and returns the elements.",
    since: "7.0.0",
    complexity: "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
    reads_much: Some(amounts::sorted),
    arguments: &[Argument::KEY, BY, LIMIT, GET, ORDER, ALPHA],
    example: &[("RPUSH mylist c a b", "(integer) 3"), ("SORT_RO mylist ALPHA", "[\"a\", \"b\", \"c\"]")],
    run: Run::Server(sort_ro),
    ..Command::DEFAULTS
};

fn sort_ro(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    sort_with(context, request, false, reply)
}

fn sort_with(
    context: &mut Context<'_, '_>,
    request: Request<'_>,
    may_store: bool,
    reply: Reply<'_>,
) -> Result {
    let sorting = Sorting::parse(request, may_store, || may_read_all_keys(context, request))?;
    let key = request.at(1);
    // In a pause, data do not change.
    if context.instance.clients.pause.paused().is_none() {
        context.tx.free_expired(key);
    }
    let is_in_script = context.session.is_in_script;
    match sorting.target {
        None => {
            let elements = sorted(context.tx, key, &sorting, is_in_script)?;
            write(context.tx, &elements, &sorting.gets, reply)
        }
        Some(target) => store(context.tx, key, target, &sorting, is_in_script, reply),
    }
}

/// Replies with elements, or with what GET finds for each of them.
fn write(tx: &Transaction<'_>, elements: &[Member<'_>], gets: &[Pattern<'_>], reply: Reply<'_>) -> Result {
    reply.nested(|parts| {
        let begin = parts.written();
        parts.array(elements.len() * gets.len().max(1));
        for_each_found(tx, elements, gets, |found| {
            let _sent = parts.part().bulk_or_nil(found);
            if parts.written() - begin > RESULT_BYTES_MAX {
                return Err(Error::fixed("ERR reply exceeds maximum allowed size (512MB)"));
            }
            Ok(())
        })
    })
}

/// Calls `visit` for each element, or for what each GET finds for it.
fn for_each_found(
    tx: &Transaction<'_>,
    elements: &[Member<'_>],
    gets: &[Pattern<'_>],
    mut visit: impl FnMut(Option<&[u8]>) -> Result<()>,
) -> Result<()> {
    let mut key = Vec::new();
    for element in elements {
        if gets.is_empty() {
            visit(Some(element))?;
        }
        for get in gets {
            visit(get.find(tx, element, &mut key))?;
        }
    }
    Ok(())
}

/// Writes the result to a key, whatever that was before, or removes the key if there is no result. Replies
/// with the number of elements.
fn store(
    tx: &mut Transaction<'_>,
    key: &[u8],
    target: &[u8],
    sorting: &Sorting<'_>,
    is_in_script: bool,
    reply: Reply<'_>,
) -> Result {
    let (mut packed, mut bytes) = (Vec::new(), 0);
    let mut list = NewList::begin(&mut packed, tx.limit::<List>());
    let elements = sorted(tx, key, sorting, is_in_script)?;
    for_each_found(tx, &elements, &sorting.gets, |found| {
        // As in Redis, what is not found is empty.
        let found = found.unwrap_or_default();
        bytes += found.len();
        if bytes > RESULT_BYTES_MAX && !sorting.gets.is_empty() {
            return Err(Error::fixed("ERR result exceeds maximum allowed size (512MB)"));
        }
        list.push(found);
        Ok(())
    })?;
    drop(elements);
    let len = list.len();
    let large = list.finish();
    if len == 0 {
        if tx.remove(target) {
            tx.event(EventClass::GENERIC, "del", target);
        }
        return Ok(reply.count(0));
    }
    // The transaction takes the same nodes, and this function only lets them go.
    let content = large.as_ref().map_or(Content::Bytes(&packed), Content::Large);
    tx.put_any(target, Value { facts: &FACTS, content }, Expiry::Never);
    // Redis counts each element as a change.
    tx.count_more(target, len - 1);
    tx.event(EventClass::LIST, "sortstore", target);
    Ok(reply.count(len))
}
