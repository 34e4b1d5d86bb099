//! LOCKS GRAPH: who holds which lock, who waits for it, and which clients wait for each other.

use redis_protocol::resp3::types::OwnedFrame;

use crate::digest;
use crate::instance::Instance;
use crate::keyspace::Token;
use crate::lens::{GraphLock, Tenure, Wait, lines_of};
use crate::resp::{Reply, Request, tree};

use super::correcting::correct_in;
use super::permits::Permits;
use super::showing::{Choice, describe_client};
use crate::commands::costs;
use crate::commands::execution::permission;
use crate::commands::facts::{Argument, Command, Context, Flags, Group, Result, Run, Scope};

/// Clients that are shown of those that wait for a lock, and of one cycle.
const CLIENTS_MAX: usize = 8;
const CYCLE_CLIENTS_MAX: usize = 64;

pub(super) const LOCKS_GRAPH: Command = Command {
    name: "locks|graph",
    flags: Flags::ADMIN.and(Flags::READONLY),
    scope: Scope::Walk,
    group: Group::SERVER,
    summary: "Shows who holds which lock, who waits for it in line, and which clients wait for each other.",
    since: "1.0.0",
    complexity: "O(N+M) where N is the number of locks that are followed, 4096 at most, and M that of clients that wait",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::pattern("pattern").token("MATCH").optional(),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[("LOCKS GRAPH COUNT 0", "(error) ERR syntax error")],
    run: Run::Server(graph),
    ..Command::DEFAULTS
};

fn graph(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let choice = Choice::parse(request)?;
    correct_in(context.instance, context.tx)?;
    let (now_ms, instance) = (context.tx.now_ms(), context.instance);
    let may_read = permission::may_read(context.session, &LOCKS_GRAPH);
    let may_see = |key: &[u8]| may_read(key) && !instance.keyspace.hides(key) && !instance.ignores_lock(key);
    let graph = instance.lens.graph(now_ms, may_see, |key| choice.has(key));
    let shown = graph.locks.len().min(choice.count);
    let cycles = graph.cycles.iter().take(choice.count);
    let cycle_in_words = |lines: Vec<String>| tree::array(lines.iter().map(tree::bulk));
    let cycles = cycles.map(|cycle| cycle_in_words(lines_of(cycle).take(CYCLE_CLIENTS_MAX).collect()));
    // No transaction may hold a key while it begins another one.
    let may_look = !context.session.may_not_wait;
    let locks = graph.locks[..shown].iter().map(|lock| {
        let is_unknown = lock.tenure.is_none() && may_look;
        let permits = if is_unknown { describe_permits(instance, lock, now_ms) } else { Vec::new() };
        describe(lock, permits, now_ms)
    });
    Ok(reply.tree(&tree::map([
        ("cycles", tree::array(cycles)),
        ("locks", tree::array(locks)),
        ("more-locks", tree::count(graph.locks.len() - shown)),
    ])))
}

fn describe(lock: &GraphLock, permits: Vec<OwnedFrame>, now_ms: u64) -> OwnedFrame {
    let holders = lock.tenure.iter().map(|tenure| describe_holder(tenure, now_ms)).chain(permits);
    let waiting = lock.waits.iter().take(CLIENTS_MAX).map(|wait| describe_wait(wait, now_ms));
    tree::map([
        ("key", tree::bulk(&lock.place.key)),
        ("database", tree::count(lock.place.database)),
        ("holders", tree::array(holders)),
        ("waiting", tree::count(lock.waits.len())),
        ("waiting-clients", tree::array(waiting)),
        ("cycle", lock.cycle.map_or(tree::null(), |number| tree::count(number + 1))),
    ])
}

/// Describes the first permits to end, if several clients hold the lock: it is not known which clients.
fn describe_permits(instance: &Instance, lock: &GraphLock, now_ms: u64) -> Vec<OwnedFrame> {
    let (database, key) = (lock.place.database, &*lock.place.key);
    let Ok(tx) = instance.keyspace.begin(database, key) else { return Vec::new() };
    let describe = |(token, end_ms): (&[u8], u64)| {
        tree::map([
            ("client", tree::null()),
            ("token-digest", tree::bulk(digest::to_text(Token::of(token).digest))),
            ("fencing", tree::null()),
            ("held-ms", tree::null()),
            ("expires-in-ms", tree::integer(end_ms.saturating_sub(now_ms).cast_signed())),
        ])
    };
    let permits = Permits::at(&tx, key);
    permits.map_or_else(Vec::new, |permits| permits.first_to_end(CLIENTS_MAX).map(describe).collect())
}

fn describe_holder(tenure: &Tenure, now_ms: u64) -> OwnedFrame {
    let number = |value: u64| tree::integer(value.cast_signed());
    let left_ms = tenure.expires_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms));
    tree::map([
        ("client", describe_client(&tenure.holder)),
        ("token-digest", tree::bulk(digest::to_text(tenure.token.digest))),
        ("fencing", number(tenure.fence)),
        ("held-ms", number(now_ms.saturating_sub(tenure.since_ms))),
        ("expires-in-ms", left_ms.map_or(tree::null(), number)),
    ])
}

fn describe_wait(wait: &Wait, now_ms: u64) -> OwnedFrame {
    let token = wait.token.map(|token| tree::bulk(digest::to_text(token.digest)));
    tree::map([
        ("client", describe_client(&wait.who)),
        ("token-digest", token.unwrap_or_else(tree::null)),
        ("by", tree::bulk(wait.command())),
        ("waits-ms", tree::integer(now_ms.saturating_sub(wait.since_ms).cast_signed())),
    ])
}
