//! Commands on all keys beside a store: each one concerns those in memory and those in the store.

use std::sync::Arc;

use crate::commands::Command;
use crate::commands::error::Error;
use crate::commands::execution::permission::may_read;
use crate::commands::facts::{AllKeys, Concern, Result};
use crate::commands::keys::browsing::{Filter, matching};
use crate::commands::locks::showing::Choice;
use crate::commands::locks::watching::describe_in_store;
use crate::commands::random_and_scan::parse_cursor;
use crate::engine::remote::{NotAnswered, OUTCOME_UNKNOWN};
use crate::keyspace::Cursor;
use crate::remote::all_keys::{NAMES_MAX, NotTold, Question, SLOTS_OF_PLACE, Told};
use crate::remote::news::News;
use crate::remote::{OwnWrites, Remote};
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};
use crate::session::{Pending, Session};

/// A cursor of SCAN with this bit goes on in the store, from the place whose number the other bits are. It is
/// below 2^53, since there are clients that keep numbers as floating point.
const IN_STORE: u64 = 1 << Cursor::BITS;

/// The question of a request to the store; `None` if it concerns memory alone.
///
/// # Errors
///
/// If the request is wrong.
fn question(
    has_all: bool,
    session: &Session,
    command: &Command,
    request: Request<'_>,
) -> Result<Option<Question>> {
    let database = session.database as u32;
    let Concern::AllKeys(wish) = command.concern else { return Ok(None) };
    Ok(Some(match wish {
        AllKeys::Count => Question::Count(database),
        AllKeys::Names => Question::Names(database),
        AllKeys::Any => Question::Any { database, from: fastrand::i64(0..1 << 62) },
        AllKeys::Locks => Question::Locks(database),
        AllKeys::Flush => Question::Flush(Some(database)),
        AllKeys::FlushAll => Question::Flush(None),
        AllKeys::Scan => {
            let cursor = parse_cursor(request.at(1)).ok_or(Error::fixed("ERR invalid cursor"))?;
            if cursor & IN_STORE == 0 && !(has_all && cursor == 0) {
                return Ok(None);
            }
            let filter = Filter::parse(request)?;
            let from = (cursor & (IN_STORE - 1)) as i64 * SLOTS_OF_PLACE;
            Question::Some { database, from, keys: filter.keys, with_types: filter.asks_for_type() }
        }
    }))
}

/// Asks the store, and joins its answer with what `memory` replies, which runs the request there.
///
/// # Errors
///
/// [`NotAnswered`]: the caller executes the request again when the store has answered.
pub(crate) fn execute(
    remote: &Arc<Remote>,
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    memory: impl FnOnce(&mut Session, &mut Vec<u8>) -> Result<()>,
    out: &mut Vec<u8>,
) -> std::result::Result<Result<()>, NotAnswered> {
    let question = match question(remote.settings.store_keys.has_all(), session, command, request) {
        Ok(question) => question,
        Err(error) => return Ok(Err(error)),
    };
    let Some(question) = question else {
        let mut reply = Vec::new();
        if let Err(error) = memory(session, &mut reply) {
            return Ok(Err(error));
        }
        out.extend_from_slice(&on_to_the_store(reply));
        return Ok(Ok(()));
    };
    let before = session.pending.take().and_then(|pending| Some((pending.told?, pending.own_writes)));
    let Some((told, own_writes)) = before else {
        let own_writes = match question {
            Question::Flush(database) => remote.own_flush(session.client.id, database),
            _ => None,
        };
        let answering = Some(remote.ask(question));
        session.pending = Some(Box::new(Pending { answering, own_writes, ..Pending::default() }));
        return Err(NotAnswered::Store);
    };
    match told {
        Err(NotTold::Unknown) if matches!(question, Question::Flush(_)) => Ok(Err(OUTCOME_UNKNOWN)),
        Err(why) => Ok(Err(Error::text(format!("STOREDOWN The store has not done this: {why}")))),
        Ok(told) => {
            own_writes.into_iter().for_each(OwnWrites::settle);
            if let Question::Flush(database) = question {
                remote.tell(&News::Flushed(database));
                remote.was_flushed(database);
            }
            let mut reply = Vec::new();
            if !matches!(question, Question::Some { .. })
                && let Err(error) = memory(session, &mut reply)
            {
                return Ok(Err(error));
            }
            let now_ms = remote.clock.now_ms();
            Ok(join((command, request, question), told, &reply, (session, now_ms), out))
        }
    }
}

/// The number that a reply begins with: an integer, or how many elements follow.
fn number_in(reply: &[u8]) -> i64 {
    let line = reply.iter().position(|byte| *byte == b'\r').unwrap_or(0);
    reply.get(1..line).and_then(parse_integer).unwrap_or(0)
}

/// Where SCAN has seen all of memory, it goes on in the store.
fn on_to_the_store(reply: Vec<u8>) -> Vec<u8> {
    const END: &[u8] = b"*2\r\n$1\r\n0\r\n";
    match reply.strip_prefix(END) {
        Some(keys) => {
            let cursor = IN_STORE.to_string();
            [format!("*2\r\n${}\r\n{cursor}\r\n", cursor.len()).as_bytes(), keys].concat()
        }
        None => reply,
    }
}

/// Joins the parts of a reply from memory and from the store.
fn join(
    (command, request, question): (&Command, Request<'_>, Question),
    told: Told,
    memory: &[u8],
    (session, now_ms): (&Session, u64),
    out: &mut Vec<u8>,
) -> Result<()> {
    let line = memory.iter().position(|byte| *byte == b'\r').unwrap_or(0);
    let number = number_in(memory);
    let rest = memory.get(line + 2..).unwrap_or_default();
    let reply_to = |out: &mut Vec<u8>, keys: &[Vec<u8>]| {
        for key in keys {
            let _ = Reply::new(out, session.protocol).bulk(key);
        }
    };
    match question {
        Question::Count(_) => {
            let _ = Reply::new(out, session.protocol).integer(number + told.count as i64);
        }
        Question::Names(_) => {
            if told.keys.len() > NAMES_MAX {
                return Err(Error::text(format!("ERR The store has more than {NAMES_MAX} keys: use SCAN")));
            }
            let keys = matching(request.at(1), told.keys);
            out.extend_from_slice(format!("*{}\r\n", number as usize + keys.len()).as_bytes());
            out.extend_from_slice(rest);
            reply_to(out, &keys);
        }
        Question::Any { .. } => match told.keys.into_iter().next() {
            Some((key, _)) if memory.starts_with(b"$-1") || memory.starts_with(b"_") || fastrand::bool() => {
                reply_to(out, &[key]);
            }
            _ => out.extend_from_slice(memory),
        },
        Question::Some { .. } => {
            let filter = Filter::parse(request)?;
            let keys = told.keys.into_iter().filter(|(key, kind)| filter.matches(key, kind));
            let keys: Vec<Vec<u8>> = keys.map(|(key, _)| key).collect();
            let next = told.next.map_or(0, |slot| IN_STORE | (slot / SLOTS_OF_PLACE) as u64).to_string();
            out.extend_from_slice(
                format!("*2\r\n${}\r\n{next}\r\n*{}\r\n", next.len(), keys.len()).as_bytes(),
            );
            reply_to(out, &keys);
        }
        Question::Locks(_) => {
            let choice = Choice::parse(request)?;
            let may_read = may_read(session, command);
            let locks = told.locks.iter().filter(|(key, _)| choice.has(key) && may_read(key));
            let locks = locks.filter_map(|(key, row)| describe_in_store(key, row, now_ms));
            let locks: Vec<_> = locks.take(choice.count.saturating_sub(number as usize)).collect();
            out.extend_from_slice(format!("*{}\r\n", number as usize + locks.len()).as_bytes());
            out.extend_from_slice(rest);
            locks.iter().for_each(|lock| drop(Reply::new(out, session.protocol).tree(lock)));
        }
        Question::Flush(_) => out.extend_from_slice(memory),
    }
    Ok(())
}
