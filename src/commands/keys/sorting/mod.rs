//! SORT and SORT_RO: the elements of a list, a set or a sorted set in another order.
//!
//! [`options`] reads the request, [`pattern`] finds the keys that BY and GET stand for, [`order`] sorts. BY
//! and GET read keys that the request does not name: a transaction for them begins with everything, and the
//! client must be allowed to read all keys. [`keys`] tells how it lets go of them soon if they are many. A
//! request without such patterns holds only the keys that it names.

mod keys;
mod options;
mod order;
mod pattern;

use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::permission::may_read_all_keys;
use crate::commands::execution::tracking::remember;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Context, Derived, Flags, Group, KeyFlags, KeySearch,
    KeySpec, Prepares, Result, Run,
};
use crate::commands::storing::{self, derived};
use crate::keyspace::{Survey, Transaction};
use crate::resp::{Reply, Request, Sent};
use crate::types::lists::{FACTS, List, NewList};
use crate::types::sets::Member;
use crate::values::{Kept, Limit};
use keys::{Keys, begin_survey};
use options::{Sorting, target_position, uses_patterns};
use order::{Unsorted, sorted};
use pattern::Pattern;

pub(in crate::commands) const COMMANDS: &[Command] = &[SORT, SORT_RO];

/// The most bytes of one reply, or of what GET collects for STORE: several elements may have the same long
/// value.
const RESULT_BYTES_MAX: usize = 512 << 20;

/// A request that looks up more keys than this holds them one after the other. This number takes a
/// millisecond at most.
const HELD_KEYS_MAX: usize = 4096;
/// How often such a request begins anew because a key has changed that it has read. Then it holds all.
const SURVEYS_MAX: usize = 3;

/// The collection to sort.
const SOURCE: KeySpec = KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS));
/// The keys that BY and GET read.
const PATTERNS: KeySpec = KeySpec::searched(
    KeySearch::Unnamed(uses_patterns),
    KeyFlags::RO.and(KeyFlags::ACCESS),
)
.noted(
    "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort",
);
/// The key that STORE writes.
const TARGET: KeySpec = KeySpec::searched(
    KeySearch::Position(target_position),
    KeyFlags::OW.and(KeyFlags::UPDATE),
)
.noted(
    "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array",
);

const CATEGORIES: Categories =
    Categories::DANGEROUS.and(Categories::LIST).and(Categories::SET).and(Categories::SORTEDSET);

const BY: Argument = Argument::pattern("by-pattern").shown_as("pattern").token("BY").optional().of_spec(1);
const LIMIT: Argument = Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
    .token("LIMIT")
    .optional();
const GET: Argument = Argument::pattern("get-pattern")
    .shown_as("pattern")
    .token("GET")
    .optional()
    .multiple()
    .multiple_token()
    .of_spec(1);
const ORDER: Argument = Argument::one_of("order", &Argument::words(["ASC", "DESC"])).optional();
const ALPHA: Argument = Argument::pure_token("sorting", "ALPHA").optional();
const STORE: Argument = Argument::new("destination", ArgumentKind::Key).token("STORE").optional().of_spec(2);

const SORT: Command = Command {
    name: "sort",
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[SOURCE, PATTERNS, TARGET],
    categories: CATEGORIES.and(Categories::WRITE),
    group: Group::GENERIC,
    summary: "Sorts a list, a set or a sorted set, and returns or stores the elements.",
    since: "1.0.0",
    complexity: "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
    cost: costs::SORTED,
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
    prepares: Prepares::Derived(made),
    run: Run::Server(sort),
    ..Command::DEFAULTS
};

fn sort(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    sort_with(context, &SORT, request, reply)
}

const SORT_RO: Command = Command {
    name: "sort_ro",
    flags: Flags::READONLY,
    keys: &[SOURCE, PATTERNS],
    categories: CATEGORIES.and(Categories::READ),
    group: Group::GENERIC,
    summary: "Sorts a list, a set or a sorted set, and returns the elements.",
    since: "7.0.0",
    complexity: "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
    cost: costs::SORTED,
    arguments: &[Argument::KEY, BY, LIMIT, GET, ORDER, ALPHA],
    example: &[("RPUSH mylist c a b", "(integer) 3"), ("SORT_RO mylist ALPHA", "[\"a\", \"b\", \"c\"]")],
    run: Run::Server(sort_ro),
    ..Command::DEFAULTS
};

fn sort_ro(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    sort_with(context, &SORT_RO, request, reply)
}

fn sort_with(
    context: &mut Context<'_, '_>,
    command: &Command,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let sorting = Sorting::parse(request, command.writes(), || may_read_all_keys(context, request))?;
    let key = request.at(1);
    // In a pause, data do not change.
    if context.instance.clients.pause.paused().is_none() {
        context.tx.free_expired(key);
    }
    let mut reply = reply;
    for _ in 0..SURVEYS_MAX {
        let Some(survey) = survey_if_many(context, key, &sorting)? else { break };
        if context.session.tracking.is_some() {
            // The client gets an invalidation for each change of the key from now on.
            remember(context.instance, context.session, command, request);
        }
        let source = context.tx.get_any(key).map(Kept::of);
        context.tx.let_go();
        match reply.attempt(|reply| sort_one_by_one(context.tx, source.as_ref(), &sorting, &survey, reply)) {
            Ok(sent) => return Ok(sent),
            Err((Some(error), _)) => return Err(error),
            Err((None, unused)) => reply = unused,
        }
        drop(survey);
        context.tx.hold_all_at_last();
    }
    if sorting.target.is_some() {
        let made = derived(context.tx, request, made)?;
        return Ok(put(context.tx, &sorting, &made, reply));
    }
    let tx = &*context.tx;
    let (unsorted, mut keys) = (Unsorted::of(tx.get_any(key))?, Keys::Held(tx));
    let elements = sorted(&unsorted, &mut keys, &sorting, context.session.is_in_script)?;
    write(&mut keys, &elements, &sorting.gets, reply)
}

/// What a request stores. It is known that the client may read all keys.
fn made(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    let sorting = Sorting::parse(request, true, || true)?;
    let (unsorted, mut keys) = (Unsorted::of(tx.get_any(request.at(1)))?, Keys::Held(tx));
    let elements = sorted(&unsorted, &mut keys, &sorting, false)?;
    make(&mut keys, &elements, &sorting.gets, tx.limit::<List>())
}

/// Begins a survey for a request that looks up many keys, unless others are executed with it as one.
fn survey_if_many<'a>(
    context: &Context<'_, 'a>,
    key: &[u8],
    sorting: &Sorting<'_>,
) -> Result<Option<Survey<'a>>> {
    let lookups = sorting.surveyed().len();
    if lookups == 0 || context.session.may_not_wait || context.session.is_in_script {
        return Ok(None);
    }
    let len = Unsorted::of(context.tx.peek_any(key))?.len();
    let are_many = len.saturating_mul(lookups) > HELD_KEYS_MAX;
    Ok(if are_many { begin_survey(context.tx, key, sorting) } else { None })
}

/// Sorts what a key had, and locks the keys that patterns stand for one after the other. Fails without an
/// error if all must be held.
fn sort_one_by_one(
    tx: &mut Transaction<'_>,
    source: Option<&Kept>,
    sorting: &Sorting<'_>,
    survey: &Survey<'_>,
    reply: Reply<'_>,
) -> std::result::Result<Sent, Option<Error>> {
    let limit = tx.limit::<List>();
    let mut keys = Keys::one_by_one(tx);
    let unsorted = Unsorted::of(source.map(Kept::value))?;
    let elements = sorted(&unsorted, &mut keys, sorting, false);
    let done = elements.and_then(|elements| match sorting.target {
        None => write(&mut keys, &elements, &sorting.gets, reply).map(|sent| (Some(sent), None)),
        Some(_) => {
            let made = make(&mut keys, &elements, &sorting.gets, limit)?;
            Ok((None, Some((made, reply))))
        }
    });
    let is_given_up = keys.is_given_up();
    tx.let_go();
    if is_given_up || survey.is_overtaken() {
        return Err(None);
    }
    match done? {
        (Some(sent), _) => Ok(sent),
        (None, made) => {
            // From now on no key changes any more.
            tx.hold_all_at_last();
            let (made, reply) = made.ok_or(None)?;
            if survey.is_overtaken() { Err(None) } else { Ok(put(tx, sorting, &made, reply)) }
        }
    }
}

/// Replies with elements, or with what GET finds for each of them.
fn write(keys: &mut Keys<'_, '_>, elements: &[Member<'_>], gets: &[Pattern<'_>], reply: Reply<'_>) -> Result {
    reply.nested(|parts| {
        let begin = parts.written();
        parts.array(elements.len() * gets.len().max(1));
        for_each_found(keys, elements, gets, |found| {
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
    keys: &mut Keys<'_, '_>,
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
            visit(get.find(element, &mut key, |key| keys.value(key)))?;
        }
    }
    Ok(())
}

/// Makes a list of elements, or of what GET finds for each of them.
fn make(
    keys: &mut Keys<'_, '_>,
    elements: &[Member<'_>],
    gets: &[Pattern<'_>],
    limit: Limit,
) -> Result<Derived> {
    let (mut packed, mut bytes) = (Vec::new(), 0);
    let mut list = NewList::in_buffer(&mut packed, limit);
    for_each_found(keys, elements, gets, |found| {
        // As in Redis, what is not found is empty.
        let found = found.unwrap_or_default();
        bytes += found.len();
        if bytes > RESULT_BYTES_MAX && !gets.is_empty() {
            return Err(Error::fixed("ERR result exceeds maximum allowed size (512MB)"));
        }
        list.push(found);
        Ok(())
    })?;
    let count = list.len();
    let large = list.finish();
    let value = (count > 0).then(|| Kept::made(&FACTS, packed, large));
    Ok(Derived { value, count, ..Derived::default() })
}

/// Stores the result at the key that the request names, and replies with the number of elements.
fn put(tx: &mut Transaction<'_>, sorting: &Sorting<'_>, made: &Derived, reply: Reply<'_>) -> Sent {
    let target = sorting.target.unwrap_or_default();
    storing::put(tx, target, made, "sortstore");
    // Redis counts each element as a change.
    tx.count_more(target, made.count.saturating_sub(1));
    reply.count(made.count)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clients::Address;
    use crate::commands::known;
    use crate::config::Config;
    use crate::instance::{Hooks, Instance};
    use crate::keyspace::Expiry;
    use crate::resp::{OwnedRequest, Protocol};
    use crate::session::Session;
    use crate::types::strings::Text;
    use crate::values::{Content, Value};

    const ELEMENTS: usize = 2 * HELD_KEYS_MAX;

    /// A server without sockets, with a list and a weight for each of its elements.
    fn instance() -> Instance {
        let instance = Instance::new(Config::new(), 1, known(&[]), Hooks::default());
        let mut packed = Vec::new();
        let mut all = instance.keyspace.begin_all(0).expect("nothing is in its way");
        let mut list = NewList::in_buffer(&mut packed, all.limit::<List>());
        for number in 0..ELEMENTS {
            list.push(number.to_string().as_bytes());
            let weight = (number * 7919 % ELEMENTS).to_string();
            all.put(format!("w_{number}").as_bytes(), weight.as_bytes(), Expiry::Never);
        }
        let large = list.finish();
        let content = large.as_ref().map_or(Content::Bytes(&[]), Content::Large);
        all.put_any(b"l", Value { facts: &FACTS, content }, Expiry::Never);
        drop(all);
        instance
    }

    /// Sorts, alone or within a transaction; returns the reply, and whether all keys were held to the end.
    fn sort(instance: &Instance, line: &str, is_in_exec: bool) -> (Vec<u8>, bool) {
        let nowhere = Address::Unix(Path::new("").into());
        let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
        let mut session = Session::new(registration.client.clone(), &instance.users);
        session.may_not_wait = is_in_exec;
        let request = OwnedRequest::of_line(line.as_bytes()).expect("a line");
        let request = request.request().expect("a request");
        let hold = instance.keyspace.hold_all().expect("nothing is in its way");
        let mut tx = instance.keyspace.begin_on(0, hold, Vec::new());
        let (mut out, command) = (Vec::new(), if request.at(0) == b"SORT" { &SORT } else { &SORT_RO });
        let mut context = Context { instance, session: &mut session, tx: &mut tx };
        let reply = Reply::new(&mut out, Protocol::Resp2);
        if let Err(error) = sort_with(&mut context, command, request, reply) {
            out = error.as_bytes().to_vec();
        }
        (out, tx.everything().is_ok())
    }

    #[test]
    fn keys_of_patterns_are_held_one_by_one_and_the_result_is_the_same() {
        let instance = instance();
        for (line, is_held) in [
            ("SORT l BY w_* GET # GET w_* GET none_*", false),
            ("SORT_RO l BY w_* ALPHA DESC LIMIT 7 5000", false),
            ("SORT_RO l BY none_* ALPHA GET w_*->f", false),
            ("SORT l BY nosort GET w_*", false),
            ("SORT l BY w_* STORE sorted", true),
            ("SORT l BY nosort GET none_* LIMIT 5 0 STORE sorted", true),
            ("SORT l DESC", true),
            ("SORT w_1 BY w_*", true),
        ] {
            let (in_exec, is_held_in_exec) = sort(&instance, line, true);
            assert!(is_held_in_exec, "{line}");
            let stored = |key: &[u8]| {
                let tx = instance.keyspace.begin(0, key).expect("nothing is in its way");
                let list = tx.get::<List>(key).expect("a list");
                list.map_or(Vec::new(), |list| list.iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
            };
            let stored_in_exec = stored(b"sorted");
            assert_eq!(sort(&instance, line, false), (in_exec, is_held), "{line}");
            assert_eq!(stored(b"sorted"), stored_in_exec, "{line}");
        }
        instance.keyspace.begin(0, b"w_1").expect("it is free").put(b"w_1", b"x", Expiry::Never);
        let (wrong, is_held) = sort(&instance, "SORT l BY w_*", false);
        assert!(wrong.starts_with(b"ERR One or more scores") && !is_held);
    }

    #[test]
    fn few_keys_are_held_at_once() {
        let instance = instance();
        let (_, is_held) = sort(&instance, "SORT l BY nosort GET w_*", false);
        instance.keyspace.begin(0, b"l").expect("it is free").remove(b"l");
        let (_, is_held_without) = sort(&instance, "SORT l BY nosort GET w_*", false);
        assert!(!is_held && is_held_without);
    }

    #[test]
    fn a_request_whose_keys_change_begins_anew() {
        let instance = instance();
        let begin = || instance.keyspace.begin_all(0).expect("nothing is in its way");
        let request = OwnedRequest::of_line(b"SORT l BY w_* GET w_*").expect("a line");
        let request = request.request().expect("a request");
        let sorting = Sorting::parse(request, true, || true).expect("a request that is right");
        let all = begin();
        let survey = begin_survey(&all, b"l", &sorting).expect("it holds all");
        let source = all.get_any(b"l").map(Kept::of);
        drop(all);
        let mut tx = instance.keyspace.begin_none(0);
        let mut out = Vec::new();
        let mut try_again = |out: &mut Vec<u8>| {
            let reply = Reply::new(out, Protocol::Resp2);
            sort_one_by_one(&mut tx, source.as_ref(), &sorting, &survey, reply)
        };
        assert!(try_again(&mut out).is_ok());
        let put = |key: &[u8]| {
            let mut tx = instance.keyspace.begin(0, key).expect("no key is held");
            tx.put(key, b"5", Expiry::Never);
            assert!(tx.get::<Text>(key).is_ok());
        };
        put(b"another");
        assert!(try_again(&mut out).is_ok());
        put(b"w_new");
        assert!(matches!(try_again(&mut out), Err(None)));
    }
}
