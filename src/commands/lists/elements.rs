//! Elements of lists by their positions or by their value.

use std::ops::Range;

use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};
use crate::types::lists::{Beside, List, ListEnd, ListView};

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run, Traits,
};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[LINDEX, LINSERT, LLEN, LPOS, LRANGE, LREM, LSET, LTRIM];

/// The facts that most commands of this file share.
const LIST: Command = Command { categories: Categories::LIST, group: Group::LIST, ..Command::DEFAULTS };

const LLEN: Command = Command {
    name: "llen",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns the number of elements in a list.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("RPUSH mylist Hello World", "(integer) 2"), ("LLEN mylist", "(integer) 2")],
    run: Run::Read(llen),
    ..LIST
};

fn llen(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(tx.get::<List>(request.at(1))?.map_or(0, ListView::len)))
}

const LRANGE: Command = Command {
    name: "lrange",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the elements between two positions; negative positions count from the tail.",
    since: "1.0.0",
    complexity: "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.",
    cost: costs::BETWEEN_RANKS,
    arguments: &[Argument::KEY, Argument::integer("start"), Argument::integer("stop")],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("LRANGE mylist 0 0", "[\"one\"]"),
        ("LRANGE mylist -2 100", "[\"two\", \"three\"]"),
        ("LRANGE mylist 5 10", "[]"),
    ],
    run: Run::Read(lrange),
    ..LIST
};

fn lrange(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (start, stop) = (args::integer(request.at(2))?, args::integer(request.at(3))?);
    let list = tx.get::<List>(request.at(1))?.unwrap_or(ListView::EMPTY);
    let elements = list.range(positions(start, stop, list.len()));
    Ok(reply.array_of(elements, |element, reply| reply.bulk(element)))
}

/// The position that an index stands for: a negative one counts from the tail.
fn position(index: i64, len: usize) -> Option<usize> {
    let number = usize::try_from(index.unsigned_abs()).ok()?;
    let position = if index < 0 { len.checked_sub(number)? } else { number };
    (position < len).then_some(position)
}

/// The positions from one index to another, both included.
fn positions(start: i64, stop: i64, len: usize) -> Range<usize> {
    let before = |index: i64| {
        let number = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        if index < 0 { len.checked_sub(number) } else { Some(number.min(len)) }
    };
    let (start, end) = (before(start).unwrap_or(0), before(stop).map_or(0, |stop| len.min(stop + 1)));
    if start < end { start..end } else { 0..0 }
}

const LINDEX: Command = Command {
    name: "lindex",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the element at a position; negative positions count from the tail.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::integer("index")],
    example: &[
        ("RPUSH mylist Hello World", "(integer) 2"),
        ("LINDEX mylist 0", "\"Hello\""),
        ("LINDEX mylist -1", "\"World\""),
        ("LINDEX mylist 3", "(nil)"),
    ],
    run: Run::Read(lindex),
    ..LIST
};

fn lindex(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    // As in Redis, a bad index is an error only if there is a list.
    let Some(list) = tx.get::<List>(request.at(1))? else { return Ok(reply.nil()) };
    let position = position(args::integer(request.at(2))?, list.len());
    Ok(reply.bulk_or_nil(position.and_then(|position| list.get(position))))
}

const LPOS: Command = Command {
    name: "lpos",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the positions of the elements that equal a value.",
    since: "6.0.6",
    complexity: "O(N) where N is the number of elements in the list, for the average case. When searching for elements near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant time.",
    cost: costs::UP_TO_ALL_COUNTED,
    arguments: &[
        Argument::KEY,
        Argument::string("element"),
        Argument::integer("rank").token("RANK").optional(),
        Argument::integer("num-matches").token("COUNT").optional(),
        Argument::integer("len").token("MAXLEN").optional(),
    ],
    example: &[
        ("RPUSH mylist a b c b", "(integer) 4"),
        ("LPOS mylist b", "(integer) 1"),
        ("LPOS mylist b RANK -1", "(integer) 3"),
        ("LPOS mylist b COUNT 0", "[(integer) 1, (integer) 3]"),
    ],
    run: Run::Read(lpos),
    ..LIST
};

fn lpos(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let wanted = request.at(2);
    let search = Search::parse(request)?;
    let list = tx.get::<List>(request.at(1))?.unwrap_or(ListView::EMPTY);
    let (len, looked_at) = (list.len(), search.looked_at.min(list.len()));
    let elements = match search.from {
        ListEnd::Head => list.range(0..looked_at),
        ListEnd::Tail => list.reversed(len - looked_at..len),
    };
    let matches = elements.enumerate().filter(|(_, element)| *element == wanted).skip(search.skipped);
    let mut found = matches.map(|(at, _)| if search.from == ListEnd::Head { at } else { len - 1 - at });
    Ok(match search.count {
        Some(count) => {
            let found: Vec<usize> = found.take(count).collect();
            reply.array_of(found.into_iter(), |position, reply| reply.count(position))
        }
        None => match found.next() {
            Some(position) => reply.count(position),
            None => reply.nil(),
        },
    })
}

/// Where LPOS looks for an element, and how many positions it returns.
struct Search {
    from: ListEnd,
    /// How many matches to pass over.
    skipped: usize,
    /// How many positions to return, as an array. Without it, one alone.
    count: Option<usize>,
    /// How many elements to look at.
    looked_at: usize,
}

impl Search {
    /// Reads RANK, COUNT and MAXLEN. A count or a length of 0 stands for all.
    fn parse(request: Request<'_>) -> Result<Search> {
        let mut search = Search { from: ListEnd::Head, skipped: 0, count: None, looked_at: usize::MAX };
        let mut options = Options::new(request, 3);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "rank") => search.set_rank(args::integer(options.value()?)?)?,
                _ if is_word(option, "count") => {
                    search.count = Some(count_or_all(options.value()?, "ERR COUNT can't be negative")?);
                }
                _ if is_word(option, "maxlen") => {
                    search.looked_at = count_or_all(options.value()?, "ERR MAXLEN can't be negative")?;
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(search)
    }

    fn set_rank(&mut self, rank: i64) -> Result<()> {
        if rank == i64::MIN {
            return Err(Error::HAS_NO_OPPOSITE);
        }
        let number = usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX);
        self.from = if rank < 0 { ListEnd::Tail } else { ListEnd::Head };
        self.skipped = number.checked_sub(1).ok_or(Error::fixed(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
             negative to start from the end of the list",
        ))?;
        Ok(())
    }
}

/// A number of things, of which 0 stands for all.
fn count_or_all(text: &[u8], error: &'static str) -> Result<usize> {
    let number = parse_integer(text).and_then(|number| usize::try_from(number).ok());
    Ok(match number.ok_or(Error::fixed(error))? {
        0 => usize::MAX,
        number => number,
    })
}

const LINSERT: Command = Command {
    name: "linsert",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::INSERT))],
    summary: "Inserts an element before or after the first one that equals a pivot.",
    since: "2.2.0",
    complexity: "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere on the right end (tail) is O(N).",
    traits: Traits::BRINGS_ARGUMENTS,
    cost: costs::SEARCHED,
    arguments: &[
        Argument::KEY,
        Argument::one_of("where", &Argument::words(["BEFORE", "AFTER"])),
        Argument::string("pivot"),
        Argument::string("element"),
    ],
    example: &[
        ("RPUSH mylist Hello World", "(integer) 2"),
        ("LINSERT mylist BEFORE World There", "(integer) 3"),
        ("LRANGE mylist 0 -1", "[\"Hello\", \"There\", \"World\"]"),
    ],
    run: Run::Write(linsert),
    ..LIST
};

fn linsert(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let beside = match request.at(2) {
        word if is_word(word, "before") => Beside::Before,
        word if is_word(word, "after") => Beside::After,
        _ => return Err(Error::SYNTAX),
    };
    let len = tx.change::<List, _>(request.at(1), "linsert", |list| {
        list.insert(beside, request.at(3), request.at(4)).then(|| list.view().len())
    })?;
    Ok(match len {
        None => reply.count(0),
        Some(None) => reply.integer(-1),
        Some(Some(len)) => reply.count(len),
    })
}

const LSET: Command = Command {
    name: "lset",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Replaces the element at a position; negative positions count from the tail.",
    since: "1.0.0",
    complexity: "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).",
    traits: Traits::BRINGS_ARGUMENTS,
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::integer("index"), Argument::string("element")],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("LSET mylist -2 five", "OK"),
        ("LRANGE mylist 0 -1", "[\"one\", \"five\", \"three\"]"),
        ("LSET mylist 3 six", "(error) ERR index out of range"),
    ],
    run: Run::Write(lset),
    ..LIST
};

fn lset(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let len = tx.peek::<List>(request.at(1))?.ok_or(Error::NO_SUCH_KEY)?.len();
    let position = position(args::integer(request.at(2))?, len);
    let position = position.ok_or(Error::fixed("ERR index out of range"))?;
    tx.change::<List, _>(request.at(1), "lset", |list| list.set(position, request.at(3)))?;
    Ok(reply.ok())
}

const LREM: Command = Command {
    name: "lrem",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Removes elements that equal a value: all, or a number of them from the head or the tail.",
    since: "1.0.0",
    complexity: "O(N+M) where N is the length of the list and M is the number of elements removed.",
    traits: Traits::BRINGS_ARGUMENTS,
    cost: costs::SEARCHED,
    arguments: &[Argument::KEY, Argument::integer("count"), Argument::string("element")],
    example: &[
        ("RPUSH mylist hello hello foo hello", "(integer) 4"),
        ("LREM mylist -2 hello", "(integer) 2"),
        ("LRANGE mylist 0 -1", "[\"hello\", \"foo\"]"),
    ],
    run: Run::Write(lrem),
    ..LIST
};

fn lrem(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let count = args::integer(request.at(2))?;
    if count == i64::MIN {
        return Err(Error::HAS_NO_OPPOSITE);
    }
    let end = if count < 0 { ListEnd::Tail } else { ListEnd::Head };
    let count_max = match count.unsigned_abs() {
        0 => usize::MAX,
        count => usize::try_from(count).unwrap_or(usize::MAX),
    };
    let removed =
        tx.change::<List, _>(request.at(1), "lrem", |list| list.remove(request.at(3), end, count_max))?;
    Ok(reply.count(removed.unwrap_or(0)))
}

const LTRIM: Command = Command {
    name: "ltrim",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Keeps only the elements between two positions, and removes the others.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of elements to be removed by the operation.",
    traits: Traits::BRINGS_ARGUMENTS,
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::integer("start"), Argument::integer("stop")],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("LTRIM mylist 1 -1", "OK"),
        ("LRANGE mylist 0 -1", "[\"two\", \"three\"]"),
    ],
    run: Run::Write(ltrim),
    ..LIST
};

fn ltrim(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, start, stop) = (request.at(1), args::integer(request.at(2))?, args::integer(request.at(3))?);
    let has_changed = tx.change::<List, _>(key, "ltrim", |list| {
        list.trim(positions(start, stop, list.view().len()));
        list.has_changed()
    })?;
    // Redis reports the event even if every element stays, and those who watch the key hear of it.
    if has_changed == Some(false) {
        tx.event(EventClass::LIST, "ltrim", key);
        tx.signal_written(key);
    }
    Ok(reply.ok())
}
