//! The commands at the ends of lists: pushing, popping and moving.

use crate::commands::costs;
use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, Sent};
use crate::types::lists::{List, ListEnd, ListView};

use crate::commands::args::{PopFromSeveral, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Deprecated, Flags, Group, KeyFlags, KeySpec, Only, Result,
    Run, Traits,
};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[LMOVE, LMPOP, LPOP, LPUSH, LPUSHX, RPOP, RPOPLPUSH, RPUSH, RPUSHX];

/// The keys of commands that move elements from one list to another.
pub(super) const MOVED_KEYS: &[KeySpec] = &[
    KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE)),
    KeySpec::range(2, 0, 1, KeyFlags::RW.and(KeyFlags::INSERT)),
];

/// The ends of a list, as COMMAND DOCS prints them.
pub(super) const ENDS: &[Argument] = &Argument::words(["LEFT", "RIGHT"]);

/// The facts that most commands of this file share.
const LIST: Command = Command { categories: Categories::LIST, group: Group::LIST, ..Command::DEFAULTS };

const LPUSH: Command = Command {
    name: "lpush",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::INSERT))],
    summary: "Adds elements at the head of a list, creating it if it is absent.",
    since: "1.0.0",
    complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
    traits: Traits::BRINGS_ARGUMENTS,
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("element").multiple()],
    example: &[
        ("LPUSH mylist world", "(integer) 1"),
        ("LPUSH mylist hello", "(integer) 2"),
        ("LRANGE mylist 0 -1", "[\"hello\", \"world\"]"),
    ],
    run: Run::Write(|tx, request, reply| push(tx, request, ListEnd::Head, reply)),
    ..LIST
};

/// Adds the elements of a request at an end of a list.
fn push(tx: &mut Transaction<'_>, request: Request<'_>, end: ListEnd, reply: Reply<'_>) -> Result {
    let len = tx.make::<List, _>(request.at(1), push_event(end), |list| {
        request.from(2).for_each(|element| list.push(end, element));
        list.view().len()
    })?;
    Ok(reply.count(len))
}

pub(super) fn push_event(end: ListEnd) -> &'static str {
    if end == ListEnd::Head { "lpush" } else { "rpush" }
}

pub(super) fn pop_event(end: ListEnd) -> &'static str {
    if end == ListEnd::Head { "lpop" } else { "rpop" }
}

const RPUSH: Command = Command {
    name: "rpush",
    summary: "Adds elements at the tail of a list, creating it if it is absent.",
    example: &[
        ("RPUSH mylist hello", "(integer) 1"),
        ("RPUSH mylist world", "(integer) 2"),
        ("LRANGE mylist 0 -1", "[\"hello\", \"world\"]"),
    ],
    run: Run::Write(|tx, request, reply| push(tx, request, ListEnd::Tail, reply)),
    ..LPUSH
};

const LPUSHX: Command = Command {
    name: "lpushx",
    summary: "Adds elements at the head of a list, only if the list is present.",
    since: "2.2.0",
    example: &[
        ("LPUSH mylist World", "(integer) 1"),
        ("LPUSHX mylist Hello", "(integer) 2"),
        ("LPUSHX myotherlist Hello", "(integer) 0"),
        ("LRANGE mylist 0 -1", "[\"Hello\", \"World\"]"),
    ],
    run: Run::Write(|tx, request, reply| push_if_there(tx, request, ListEnd::Head, reply)),
    ..LPUSH
};

/// Adds the elements of a request at an end of a list that is there.
fn push_if_there(tx: &mut Transaction<'_>, request: Request<'_>, end: ListEnd, reply: Reply<'_>) -> Result {
    let len = tx.change::<List, _>(request.at(1), push_event(end), |list| {
        request.from(2).for_each(|element| list.push(end, element));
        list.view().len()
    })?;
    Ok(reply.count(len.unwrap_or(0)))
}

const RPUSHX: Command = Command {
    name: "rpushx",
    summary: "Adds elements at the tail of a list, only if the list is present.",
    example: &[
        ("RPUSH mylist Hello", "(integer) 1"),
        ("RPUSHX mylist World", "(integer) 2"),
        ("RPUSHX myotherlist World", "(integer) 0"),
        ("LRANGE mylist 0 -1", "[\"Hello\", \"World\"]"),
    ],
    run: Run::Write(|tx, request, reply| push_if_there(tx, request, ListEnd::Tail, reply)),
    ..LPUSHX
};

const LPOP: Command = Command {
    name: "lpop",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns elements from the head of a list; an empty list is deleted.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of elements returned",
    traits: Traits::BRINGS_ARGUMENTS,
    cost: costs::AS_COUNTED_CHANGING.brief_up_to(2),
    arguments: &[Argument::KEY, Argument::integer("count").since("6.2.0").optional()],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("LPOP mylist", "\"one\""),
        ("LPOP mylist 2", "[\"two\", \"three\"]"),
        ("LPOP mylist", "(nil)"),
    ],
    run: Run::Write(|tx, request, reply| pop_of_request(tx, request, ListEnd::Head, reply)),
    ..LIST
};

/// Pops one element, or as many as the request counts.
fn pop_of_request(tx: &mut Transaction<'_>, request: Request<'_>, end: ListEnd, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let Some(count) = request.get(2) else {
        let popped = pop(tx, key, end, 1, reply, |popped, reply| reply.bulk_or_nil(popped.first()))?;
        return Ok(popped.unwrap_or_else(Reply::nil));
    };
    if request.len() > 3 {
        return Err(Error::wrong_arity(pop_event(end)));
    }
    let count = parse_integer(count).and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(Error::fixed("ERR value is out of range, must be positive"))?;
    let popped = pop(tx, key, end, count, reply, |popped, reply| popped.write(reply))?;
    Ok(popped.unwrap_or_else(Reply::nil_array))
}

/// Elements that are about to be popped.
pub(super) struct Popped<'p> {
    tx: &'p Transaction<'p>,
    list: ListView<'p>,
    end: ListEnd,
    count: usize,
}

impl<'p> Popped<'p> {
    /// The outermost of them.
    pub(super) fn first(&self) -> Option<&'p [u8]> {
        self.list.outermost(self.end, self.count).next()
    }

    /// Replies with all of them. Many are written when the locks are free.
    fn write(self, reply: Reply<'_>) -> Sent {
        let Popped { tx, list, end, count } = self;
        if let ListView::Large(elements) = list
            && let Some(bytes) = costs::long_part(elements, count)
        {
            let elements = elements.share();
            let write = move |reply: Reply<'_>| write_elements(ListView::Large(&elements), end, count, reply);
            return tx.reply_later(bytes, reply, write);
        }
        write_elements(list, end, count, reply)
    }
}

fn write_elements(list: ListView<'_>, end: ListEnd, count: usize, reply: Reply<'_>) -> Sent {
    reply.array_of(list.outermost(end, count), |element, reply| reply.bulk(element))
}

/// Pops up to `count` elements at an end of a list. `write` replies with them before they are removed, the
/// outermost first. If the key is absent, returns the permission to reply.
///
/// # Errors
///
/// [`Error::WRONG_TYPE`]
pub(super) fn pop<'r>(
    tx: &mut Transaction<'_>,
    key: &[u8],
    end: ListEnd,
    count: usize,
    reply: Reply<'r>,
    write: impl FnOnce(Popped<'_>, Reply<'r>) -> Sent,
) -> Result<std::result::Result<Sent, Reply<'r>>> {
    let Some(list) = tx.peek::<List>(key)? else { return Ok(Err(reply)) };
    let count = count.min(list.len());
    let sent = write(Popped { tx, list, end, count }, reply);
    if count > 0 {
        tx.change::<List, _>(key, pop_event(end), |list| list.pop(end, count))?;
    }
    Ok(Ok(sent))
}

const RPOP: Command = Command {
    name: "rpop",
    summary: "Removes and returns elements from the tail of a list; an empty list is deleted.",
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("RPOP mylist", "\"three\""),
        ("RPOP mylist 2", "[\"two\", \"one\"]"),
        ("RPOP mylist", "(nil)"),
    ],
    run: Run::Write(|tx, request, reply| pop_of_request(tx, request, ListEnd::Tail, reply)),
    ..LPOP
};

const LMPOP: Command = Command {
    name: "lmpop",
    keys: &[KeySpec::counted(1, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    summary: "Removes and returns elements from an end of the first non-empty list.",
    since: "7.0.0",
    complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
    cost: costs::WITH_COUNT_CHANGING,
    arguments: &[
        Argument::integer("numkeys"),
        Argument::KEY.multiple(),
        Argument::one_of("where", ENDS),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("LMPOP 2 nolist mylist LEFT COUNT 2", "[\"mylist\", [\"one\", \"two\"]]"),
        ("LMPOP 1 nolist LEFT", "(nil)"),
    ],
    run: Run::Write(lmpop),
    ..LIST
};

fn lmpop(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let keys = KeysToPop::parse(request, 1)?;
    Ok(keys.pop(tx, None, reply)?.unwrap_or_else(Reply::nil_array))
}

/// The lists of LMPOP, BLMPOP and their relatives, which pop from the first that is not empty.
pub(super) struct KeysToPop<'a> {
    request: Request<'a>,
    pop: PopFromSeveral<ListEnd>,
}

impl<'a> KeysToPop<'a> {
    /// Reads the number of keys, which is at this position, the keys, the end and COUNT.
    ///
    /// # Errors
    ///
    /// As [`PopFromSeveral::parse`].
    pub(super) fn parse(request: Request<'a>, at: usize) -> Result<KeysToPop<'a>> {
        Ok(KeysToPop { request, pop: PopFromSeveral::parse(request, at, parse_end)? })
    }

    /// Pops from the first list that is there, or only from that of one key, and replies with the key and the
    /// elements. If all keys are absent, returns the permission to reply.
    ///
    /// # Errors
    ///
    /// [`Error::WRONG_TYPE`]
    pub(super) fn pop<'r>(
        &self,
        tx: &mut Transaction<'_>,
        only: Only<'_>,
        reply: Reply<'r>,
    ) -> Result<std::result::Result<Sent, Reply<'r>>> {
        let PopFromSeveral { end, count, .. } = self.pop;
        self.pop.pop_first(self.request, only, reply, |key, reply| {
            pop(tx, key, end, count, reply, |popped, reply| {
                reply.pair(|reply| reply.bulk(key), |reply| popped.write(reply))
            })
        })
    }
}

/// LEFT or RIGHT.
fn parse_end(word: &[u8]) -> Result<ListEnd> {
    match word {
        _ if is_word(word, "left") => Ok(ListEnd::Head),
        _ if is_word(word, "right") => Ok(ListEnd::Tail),
        _ => Err(Error::SYNTAX),
    }
}

const LMOVE: Command = Command {
    name: "lmove",
    flags: Flags::DENYOOM,
    keys: MOVED_KEYS,
    summary: "Moves an element from an end of one list to an end of another, and returns it.",
    since: "6.2.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key).of_spec(1),
        Argument::one_of("wherefrom", ENDS),
        Argument::one_of("whereto", ENDS),
    ],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("LMOVE mylist myotherlist RIGHT LEFT", "\"three\""),
        ("LMOVE mylist myotherlist LEFT RIGHT", "\"one\""),
        ("LRANGE myotherlist 0 -1", "[\"three\", \"one\"]"),
    ],
    run: Run::Write(lmove),
    ..LIST
};

fn lmove(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let MoveEnds { from, to } = MoveEnds::parse(request)?;
    let moved = move_between(tx, (request.at(1), from), (request.at(2), to))?;
    Ok(reply.bulk_or_nil(moved.as_deref()))
}

/// The ends between which LMOVE and BLMOVE move an element.
#[derive(Clone, Copy)]
pub(super) struct MoveEnds {
    pub(in crate::commands) from: ListEnd,
    pub(in crate::commands) to: ListEnd,
}

impl MoveEnds {
    /// Reads both ends.
    ///
    /// # Errors
    ///
    /// [`Error::SYNTAX`]
    pub(super) fn parse(request: Request<'_>) -> Result<MoveEnds> {
        Ok(MoveEnds { from: parse_end(request.at(3))?, to: parse_end(request.at(4))? })
    }
}

/// Moves an element from an end of a list to an end of another one, which may be the same. Returns the
/// element, or `None` if the source is absent.
///
/// # Errors
///
/// [`Error::WRONG_TYPE`]
pub(super) fn move_between(
    tx: &mut Transaction<'_>,
    (source, from): (&[u8], ListEnd),
    (target, to): (&[u8], ListEnd),
) -> Result<Option<Vec<u8>>> {
    let Some(list) = tx.peek::<List>(source)? else { return Ok(None) };
    let element = list.outermost(from, 1).next().unwrap_or_default().to_vec();
    // First the target, as in Redis: its event comes first. Within one list both ends come out right, too,
    // since a list with one element more is popped at the end that holds this element.
    tx.make::<List, _>(target, push_event(to), |list| list.push(to, &element))?;
    let counted = tx.counted_changes(source);
    tx.change::<List, _>(source, pop_event(from), |list| list.pop(from, 1))?;
    // Redis counts a move as one change.
    tx.count_changes_as(source, counted, 0);
    Ok(Some(element))
}

const RPOPLPUSH: Command = Command {
    name: "rpoplpush",
    flags: Flags::DENYOOM,
    keys: MOVED_KEYS,
    summary: "Moves an element from the tail of one list to the head of another, and returns it.",
    since: "1.2.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    deprecated: Some(Deprecated {
        since: "6.2.0",
        replaced_by: "`LMOVE` with the `RIGHT` and `LEFT` arguments",
    }),
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key).of_spec(1),
    ],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("RPOPLPUSH mylist myotherlist", "\"three\""),
        ("LRANGE myotherlist 0 -1", "[\"three\"]"),
    ],
    run: Run::Write(rpoplpush),
    ..LIST
};

fn rpoplpush(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let moved = move_between(tx, (request.at(1), ListEnd::Tail), (request.at(2), ListEnd::Head))?;
    Ok(reply.bulk_or_nil(moved.as_deref()))
}
