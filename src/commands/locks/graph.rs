//! LOCKS GRAPH: who holds which lock, who waits for it, and which clients wait for each other.

use redis_protocol::resp3::types::OwnedFrame;

use crate::digest;
use crate::instance::Instance;
use crate::keyspace::Token;
use crate::lens::{GraphLock, Tenure, Wait, lines_of};
use crate::resp::{Reply, Request, tree};

use super::awaiting::Awaiting;
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
    let may_see_in_store = |key: &[u8]| may_read(key) && !instance.ignores_lock(key);
    let remote = instance.remote.get();
    let awaiting = remote.map(|remote| Awaiting::at(remote, may_see_in_store, |key| choice.has(key)));
    let in_words = |lines: Vec<String>| tree::array(lines.iter().take(CYCLE_CLIENTS_MAX).map(tree::bulk));
    let cycles = graph.cycles.iter().map(|cycle| lines_of(cycle).take(CYCLE_CLIENTS_MAX).collect());
    let cycles = cycles.chain(awaiting.iter().flat_map(Awaiting::cycles)).take(choice.count).map(in_words);
    let mut locks: Vec<Shown<'_>> = graph.locks.iter().map(Shown::InMemory).collect();
    if let Some(awaiting) = &awaiting {
        let cycle_of = |lock| awaiting.cycle_of(lock).map(|number| graph.cycles.len() + number);
        locks.extend(awaiting.shown().map(|lock| Shown::InStore { awaiting, lock, cycle: cycle_of(lock) }));
    }
    // Those in memory are in their order already.
    locks.sort_by_key(|lock| {
        let (cycle, waiting) = lock.rank();
        (cycle.unwrap_or(usize::MAX), usize::MAX - waiting)
    });
    let more = locks.len().saturating_sub(choice.count);
    // No transaction may hold a key while it begins another one.
    let may_look = !context.session.may_not_wait;
    let locks = locks.iter().take(choice.count).map(|lock| match *lock {
        Shown::InStore { awaiting, lock, cycle } => awaiting.describe(lock, CLIENTS_MAX, cycle),
        Shown::InMemory(lock) => {
            let is_unknown = lock.tenure.is_none() && may_look;
            let permits = if is_unknown { describe_permits(instance, lock, now_ms) } else { Vec::new() };
            describe(instance, lock, permits, now_ms)
        }
    });
    Ok(reply.tree(&tree::map([
        ("cycles", tree::array(cycles)),
        ("locks", tree::array(locks)),
        ("more-locks", tree::count(more)),
    ])))
}

/// A lock that is shown.
enum Shown<'a> {
    InMemory(&'a GraphLock),
    InStore {
        awaiting: &'a Awaiting,
        /// Its index there.
        lock: usize,
        /// The cycle to which it belongs, by its index.
        cycle: Option<usize>,
    },
}

impl Shown<'_> {
    /// The cycle to which it belongs, and how many clients wait for it.
    fn rank(&self) -> (Option<usize>, usize) {
        match self {
            Shown::InMemory(lock) => (lock.cycle, lock.waits.len()),
            Shown::InStore { awaiting, lock, cycle } => (*cycle, awaiting.waiting(*lock)),
        }
    }
}

fn describe(instance: &Instance, lock: &GraphLock, permits: Vec<OwnedFrame>, now_ms: u64) -> OwnedFrame {
    let holders = lock.tenure.iter().map(|tenure| describe_holder(tenure, now_ms)).chain(permits);
    let waiting = lock.waits.iter().take(CLIENTS_MAX).map(|wait| describe_wait(wait, now_ms));
    tree::map([
        ("key", tree::bulk(&lock.place.key)),
        ("database", tree::count(instance.keyspace.shown_database(lock.place.database))),
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
