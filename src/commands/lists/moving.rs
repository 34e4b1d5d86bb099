//! Moving several elements from one list to another at once: LMOVEM and BLMOVEM.

use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request, Sent};
use crate::types::lists::{List, ListEnd};
use crate::values::LIST_KIND;

use super::ends::{ENDS, MOVED_KEYS, MoveEnds, pop_event, push_event};
use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, ArgumentKind, Blocking, Categories, Command, Flags, Group, Only, Result, Run, Taken, Timeout,
    WaitingRules,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[BLMOVEM, LMOVEM];

/// How many elements are moved, and in which order, as COMMAND DOCS prints it.
const HOW_MANY: Argument = Argument::block(
    "how-many",
    &[
        Argument::one_of(
            "selector",
            &[Argument::integer("count").token("COUNT"), Argument::integer("exactly").token("EXACTLY")],
        ),
        Argument::one_of("ordering", &Argument::words(["OBO", "BULK"])),
    ],
);

const LMOVEM: Command = Command {
    name: "lmovem",
    flags: Flags::DENYOOM,
    keys: MOVED_KEYS,
    categories: Categories::LIST,
    group: Group::LIST,
    summary: "Moves several elements from an end of one list to an end of another, and returns them.",
    since: "8.10.0",
    complexity: "O(N) where N is the number of elements moved.",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key).of_spec(1),
        Argument::one_of("wherefrom", ENDS),
        Argument::one_of("whereto", ENDS),
        HOW_MANY.optional(),
    ],
    example: &[
        ("RPUSH mylist one two three four", "(integer) 4"),
        ("LMOVEM mylist other LEFT RIGHT COUNT 2 BULK", "[\"one\", \"two\"]"),
        ("LMOVEM mylist other RIGHT RIGHT COUNT 9 OBO", "[\"four\", \"three\"]"),
        ("LMOVEM other mylist LEFT LEFT EXACTLY 5 BULK", "(nil)"),
    ],
    run: Run::Write(lmovem),
    ..Command::DEFAULTS
};

fn lmovem(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let moving = Moving::parse(request, 5)?;
    match moving.move_elements(tx, request)? {
        Some(elements) => Ok(array(&elements, reply)),
        None if moving.is_exact => Ok(reply.nil_array()),
        None => Ok(array(&[], reply)),
    }
}

fn array(elements: &[Vec<u8>], reply: Reply<'_>) -> Sent {
    reply.array_of(elements.iter(), |element, reply| reply.bulk(element))
}

const BLMOVEM: Command = Command {
    name: "blmovem",
    flags: Flags::BLOCKING.and(Flags::DENYOOM),
    keys: MOVED_KEYS,
    categories: Categories::LIST,
    group: Group::LIST,
    summary: "Moves several elements from one list to another; blocks if there are none, or fewer than EXACTLY.",
    since: "8.10.0",
    complexity: "O(N) where N is the number of elements moved.",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::new("source", ArgumentKind::Key),
        Argument::new("destination", ArgumentKind::Key).of_spec(1),
        Argument::one_of("wherefrom", ENDS),
        Argument::one_of("whereto", ENDS),
        Argument::double("timeout"),
        HOW_MANY.optional(),
    ],
    example: &[
        ("RPUSH mylist one two three", "(integer) 3"),
        ("BLMOVEM mylist other LEFT RIGHT 0 EXACTLY 2 BULK", "[\"one\", \"two\"]"),
        ("BLMOVEM mylist other LEFT RIGHT 0.01 EXACTLY 2 BULK", "(nil)"),
    ],
    run: Run::Block(&Blocking {
        kind: LIST_KIND,
        keys: 1,
        check: |request| Moving::parse(request, 6).map(|_| Timeout::Seconds(request.at(5)).into()),
        take: blmovem,
        nothing: |reply| reply.nil_array(),
        // A client that waits for many elements does not stop one behind it that waits for few.
        waiting: WaitingRules { is_shared: true, ..WaitingRules::PLAIN },
    }),
    ..Command::DEFAULTS
};

fn blmovem<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    _only: Only<'_>,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let moving = Moving::parse(request, 6)?;
    Ok(match moving.move_elements(tx, request)? {
        Some(elements) => Taken::Something(array(&elements, reply)),
        None => Taken::Nothing(reply),
    })
}

/// The number of elements to move, and their order.
struct Moving {
    ends: MoveEnds,
    count: usize,
    /// Whether nothing is moved if there are fewer.
    is_exact: bool,
    /// Whether each element is pushed before the next one is popped.
    is_one_by_one: bool,
}

impl Moving {
    /// Reads the ends, and how many are moved, from position `at` on.
    fn parse(request: Request<'_>, at: usize) -> Result<Moving> {
        let ends = MoveEnds::parse(request)?;
        let mut moving = Moving { ends, count: 1, is_exact: false, is_one_by_one: true };
        match (request.get(at), request.get(at + 1), request.get(at + 2), request.get(at + 3)) {
            (None, ..) => Ok(moving),
            (Some(selector), Some(count), Some(ordering), None) => {
                moving.is_exact = is_word(selector, "exactly");
                moving.is_one_by_one = is_word(ordering, "obo");
                if !(moving.is_exact || is_word(selector, "count"))
                    || !(moving.is_one_by_one || is_word(ordering, "bulk"))
                {
                    return Err(Error::SYNTAX);
                }
                moving.count = args::positive(count, "ERR count should be greater than 0")?;
                Ok(moving)
            }
            _ => Err(Error::SYNTAX),
        }
    }

    /// Moves the elements; returns them in the order that they have in the target, or `None` if there are
    /// none, or too few.
    fn move_elements(&self, tx: &mut Transaction<'_>, request: Request<'_>) -> Result<Option<Vec<Vec<u8>>>> {
        let (source, target, MoveEnds { from, to }) = (request.at(1), request.at(2), self.ends);
        let Some(list) = tx.peek::<List>(source)? else { return Ok(None) };
        if self.is_exact && list.len() < self.count {
            return Ok(None);
        }
        let count = self.count.min(list.len());
        // From the outermost one inwards.
        let mut elements: Vec<Vec<u8>> = list.outermost(from, count).map(<[u8]>::to_vec).collect();
        // A wrong type of the target is found before anything changes.
        let _ = tx.peek::<List>(target)?;
        // In the order in which they lie in the target, from its head on.
        let is_turned = match self.is_one_by_one {
            true => to == ListEnd::Head,
            false => from == ListEnd::Tail,
        };
        if is_turned {
            elements.reverse();
        }
        if source == target && from == to {
            let first = if to == ListEnd::Head { 0 } else { list.len() - count };
            let moved: Vec<usize> = (0..count)
                .filter(|at| list.get(first + at).is_none_or(|old| *old != *elements[*at]))
                .collect();
            let turned = tx.change::<List, _>(source, push_event(to), |list| {
                moved.iter().for_each(|at| list.set(first + at, &elements[*at]));
                list.has_changed()
            })?;
            if turned == Some(true) {
                tx.event(EventClass::LIST, pop_event(from), source);
            }
            return Ok(Some(elements));
        }
        // First the target, as LMOVE does. Within one list both ends come out right, too.
        tx.make::<List, _>(target, push_event(to), |list| match to {
            ListEnd::Head => elements.iter().rev().for_each(|element| list.push(to, element)),
            ListEnd::Tail => elements.iter().for_each(|element| list.push(to, element)),
        })?;
        tx.change::<List, _>(source, pop_event(from), |list| list.pop(from, count))?;
        Ok(Some(elements))
    }
}
