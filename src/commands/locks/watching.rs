//! LOCKS: the holders of locks, the clients that wait for them, and misuse. No other server has it.

use redis_protocol::resp3::types::OwnedFrame;

use crate::clients::Who;
use crate::digest;
use crate::instance::Instance;
use crate::keyspace::{BondShown, Token, Totals, Transaction, WaitingClients};
use crate::lens::{Finding, Held, Lock, Refused, Rule, Tenure};
use crate::remote::Remote;
use crate::remote::row::{Key, Row};
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, tree};
use crate::types;
use crate::values::{SORTED_SET_KIND, STRING_KIND};

use super::correcting::{correct_in, is_lock};
use super::graph::LOCKS_GRAPH;
use super::patterns::LOCKS_PATTERNS;
use super::permits::Permits;
use super::showing::{Choice, client_fields, describe_client};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::permission;
use crate::commands::facts::{
    AllKeys, Argument, Categories, Command, Concern, Context, Flags, Group, KeyFlags, KeySpec, Result, Run,
    Scope,
};

/// Clients that are shown of those that wait for a lock in the store.
const WAITING_SHOWN: usize = 8;

/// What is shown of a lock.
pub(crate) type Fields = Vec<(&'static str, OwnedFrame)>;

pub(in crate::commands) const COMMANDS: &[Command] = &[LOCKS];

const LOCKS: Command = Command {
    name: "locks",
    group: Group::SERVER,
    summary: "Inspects locks: keys set by SETNX or SET NX, and hashes that a script creates with an expiry.",
    since: "1.0.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[
        LOCKS_GET,
        LOCKS_GRAPH,
        LOCKS_HELP,
        LOCKS_LIST,
        LOCKS_LOG,
        LOCKS_PATTERNS,
        LOCKS_RESET,
        LOCKS_STATS,
    ],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const LOCKS_LIST: Command = Command {
    name: "locks|list",
    flags: Flags::ADMIN.and(Flags::READONLY),
    scope: Scope::Everything,
    concern: Concern::AllKeys(AllKeys::Locks),
    categories: Categories::KEYSPACE,
    group: Group::SERVER,
    summary: "Lists held locks that the user may read, longest held first: 100 of the database, or a given number.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of locks that are followed, 4096 at most",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::pattern("pattern").token("MATCH").optional(),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[("LOCKS LIST MATCH nosuch*", "[]"), ("LOCKS LIST COUNT 0", "(error) ERR syntax error")],
    run: Run::Server(list),
    ..Command::DEFAULTS
};

fn list(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let choice = Choice::parse(request)?;
    let (now_ms, instance) = (context.tx.now_ms(), context.instance);
    let tx = &*context.tx;
    let held = instance.lens.held(now_ms, |lock| lock.database == tx.database() && choice.has(&lock.key));
    let may_read = permission::may_read(context.session, &LOCKS_LIST);
    // The lens may have missed news of a lock: the keyspace decides.
    let is_shown = |held: &Held| {
        tx.glance(&held.key).is_some_and(|value| is_lock(held, tx.is_lock(&held.key), value))
            && may_read(&held.key)
            && !instance.keyspace.hides(&held.key)
            && !instance.ignores_lock(&held.key)
    };
    let chosen: Vec<Held> = held.into_iter().filter(is_shown).take(choice.count).collect();
    drop(may_read);
    // The rest takes long, and needs no key but the lists at which clients wait.
    let mut shown = Vec::with_capacity(chosen.len());
    for held in &chosen {
        if !context.session.may_not_wait {
            context.tx.let_go();
        }
        let lock = instance.lens.get_held(held, now_ms);
        shown.extend(lock.map(|lock| describe(context, &lock, now_ms, false)));
    }
    Ok(reply.tree(&tree::array(shown)))
}

/// Describes a lock in the store by its row. Its holder may be connected to another server.
pub(crate) fn describe_in_store(key: &[u8], row: &Row, now_ms: u64) -> Option<OwnedFrame> {
    Some(tree::map(fields_in_store(key, row, now_ms)?))
}

/// The same, and to which connection to this front-end the lock is bound, and the clients here that wait for
/// it. `permits` reads the permits in the row, if there are any.
pub(crate) fn describe_one_in_store(
    (instance, remote): (&Instance, &Remote),
    key: &Key,
    row: &Row,
    permits: impl FnOnce() -> Option<Fields>,
) -> Option<OwnedFrame> {
    let mut fields = match fields_in_store(&key.name, row, remote.clock.now_ms()) {
        Some(mut fields) => {
            fields.extend(describe_bond(instance, remote.bond_of(key, None)));
            fields
        }
        None if row.live.as_ref().is_some_and(|live| live.kind == SORTED_SET_KIND) => permits()?,
        None => return None,
    };
    let (waiting, first) = remote.waiting_for(key, WAITING_SHOWN);
    let clients = first.iter().map(|client| describe_client(&Who::of(client)));
    fields.push(("waiting", tree::count(waiting)));
    fields.push(("waiting-clients", tree::array(clients)));
    Some(tree::map(fields))
}

/// Of permits in a row of the store, with the connections to this front-end to which they are bound. A
/// writer of Symfony Lock is one of them.
pub(crate) fn permits_in_row(
    (instance, remote): (&Instance, &Remote),
    tx: &Transaction<'_>,
    key: &Key,
) -> Option<Fields> {
    let permits = Permits::at(tx, &key.name).filter(|permits| permits.count() > 0)?;
    let state = if permits.has_writer() { "held" } else { "shared" };
    let bond = |token: &[u8]| describe_bond(instance, remote.bond_of(key, Some(token)));
    Some(permit_fields(permits, (&key.name, state), tx.now_ms(), bond))
}

fn fields_in_store(key: &[u8], row: &Row, now_ms: u64) -> Option<Fields> {
    let live = row.live.as_ref().filter(|live| live.is_lock)?;
    let tenure = row.tenure.as_ref()?;
    // A collection is no token.
    let token = (live.kind == STRING_KIND).then(|| Token::of(&live.value));
    let or_null = |value: Option<u64>| value.map_or(tree::null(), |value| tree::integer(value as i64));
    Some(vec![
        ("key", tree::bulk(key)),
        ("state", tree::bulk("held")),
        ("holder", tree::bulk(&tenure.holder)),
        ("since", tree::integer(tenure.since_ms as i64)),
        ("held-ms", tree::integer(now_ms.saturating_sub(tenure.since_ms) as i64)),
        ("expires-at", or_null(live.expires_at_ms)),
        ("expires-in-ms", or_null(live.expires_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms)))),
        ("type", tree::bulk(types::ALL.iter().find(|facts| facts.kind == live.kind)?.name)),
        ("token-digest", token.map_or(tree::null(), |token| tree::bulk(digest::to_text(token.digest)))),
        ("fencing", tree::integer(tenure.fence)),
    ])
}

const LOCKS_GET: Command = Command {
    name: "locks|get",
    flags: Flags::ADMIN.and(Flags::READONLY),
    // The digest of a short token is as good as the token.
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    concern: Concern::Holders,
    categories: Categories::KEYSPACE,
    group: Group::SERVER,
    summary: "Returns details of a lock: holder, depth, past holders, refused and waiting clients, history.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY],
    example: &[("LOCKS GET nosuchlock", "(nil)")],
    run: Run::Server(get),
    ..Command::DEFAULTS
};

fn get(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(2);
    let now_ms = context.tx.now_ms();
    let hash = context.instance.keyspace.hash(key);
    let instance = context.instance;
    if instance.ignores_lock(key) {
        return Ok(reply.nil());
    }
    if let Some(permits) = describe_permits(context, key, now_ms) {
        return Ok(reply.tree(&permits));
    }
    let found = instance.lens.get(hash, context.tx.database(), key, now_ms);
    let is_marked = context.tx.is_lock(key);
    let is_open = instance.config.lock_lens.get();
    match found {
        // A key that is held has its mark, unless the lens has missed news of it.
        Some(lock) if lock.is_held() == is_marked || !lock.is_held() && !is_open => {
            Ok(reply.tree(&describe(context, &lock, now_ms, true)))
        }
        None if !is_marked => Ok(reply.nil()),
        _ => match context.tx.peek_expiry(key) {
            Some(expires_at_ms) if is_open => {
                Ok(reply.tree(&describe_unfollowed(context, key, expires_at_ms)))
            }
            _ => Ok(reply.nil()),
        },
    }
}

/// Describes a lock that several clients hold, with the permits that end first. The lens follows none of
/// them.
fn describe_permits(context: &mut Context<'_, '_>, key: &[u8], now_ms: u64) -> Option<OwnedFrame> {
    let permits =
        Permits::at(context.tx, key).filter(|permits| !permits.has_writer() && permits.count() > 0)?;
    let bond = |token: &[u8]| describe_bond(context.instance, context.tx.bond_of(key, Some(token)));
    let mut fields = permit_fields(permits, (key, "shared"), now_ms, bond);
    let waiting = waiting_at(context, key).filter(|waiting| waiting.count > 0);
    fields.extend(describe_waiting(context, waiting.as_ref()));
    Some(tree::map(fields))
}

/// The permits of a lock that end first. `more` says more of that of a token.
fn permit_fields(
    permits: Permits<'_>,
    (key, state): (&[u8], &str),
    now_ms: u64,
    more: impl Fn(&[u8]) -> [(&'static str, OwnedFrame); 2],
) -> Fields {
    const SHOWN_MAX: usize = 100;
    let times = |end_ms: u64| {
        let times = [("expires-at", end_ms), ("expires-in-ms", end_ms.saturating_sub(now_ms))];
        times.map(|(name, value)| (name, tree::integer(value as i64)))
    };
    let permit = |(token, end_ms): (&[u8], u64)| {
        let digest = [("token-digest", tree::bulk(digest::to_text(Token::of(token).digest)))];
        tree::map(digest.into_iter().chain(times(end_ms)).chain(more(token)))
    };
    let mut fields = vec![("key", tree::bulk(key)), ("state", tree::bulk(state))];
    fields.push(("holders", tree::count(permits.count())));
    fields.extend(times(permits.expires_at_ms()));
    fields.push(("permits", tree::array(permits.first_to_end(SHOWN_MAX).map(permit))));
    fields
}

/// How many clients wait, and the first of them.
fn describe_waiting(
    context: &Context<'_, '_>,
    waiting: Option<&WaitingClients>,
) -> [(&'static str, OwnedFrame); 2] {
    let first = waiting.into_iter().flat_map(|waiting| &waiting.first);
    let first = first.filter_map(|(id, overtaken)| Some((context.instance.clients.get(*id)?, *overtaken)));
    let clients = tree::array(first.map(|(client, overtaken)| {
        let overtaken = ("overtaken", tree::integer(overtaken as i64));
        tree::map(client_fields(&Who::of(&client)).into_iter().chain([overtaken]))
    }));
    let count = waiting.map_or(tree::null(), |waiting| tree::count(waiting.count));
    [("waiting", count), ("waiting-clients", clients)]
}

/// Describes a key that is or was a lock, but so much happened at once that the lens does not know it.
fn describe_unfollowed(context: &Context<'_, '_>, key: &[u8], expires_at_ms: Option<u64>) -> OwnedFrame {
    let or_null = |value: Option<u64>| value.map_or(tree::null(), |value| tree::integer(value as i64));
    let left_ms = expires_at_ms.map(|at_ms| context.tx.remaining_ms(at_ms));
    tree::map([
        ("key", tree::bulk(key)),
        ("state", tree::bulk("not-followed")),
        ("expires-at", or_null(expires_at_ms)),
        ("expires-in-ms", or_null(left_ms)),
        (
            "hint",
            tree::bulk("More happened than the lens follows. It follows this key when it is taken again."),
        ),
    ])
}

/// Describes a lock, with its history or without.
fn describe(context: &mut Context<'_, '_>, lock: &Lock, now_ms: u64, has_history: bool) -> OwnedFrame {
    let tenure = &lock.tenure;
    let state = tenure.ended.map_or("held", |ended| ended.how.name());
    let bond = if has_history { context.tx.bond_of(&lock.key, None) } else { None };
    let mut fields = vec![
        ("key", tree::bulk(&lock.key)),
        ("state", tree::bulk(state)),
        ("holder", describe_client(&tenure.holder)),
        ("holder-connected", tree::boolean(context.instance.clients.get(tenure.holder.id).is_some())),
    ];
    fields.extend(lock.field.as_ref().map(|field| ("field", tree::bulk(field))));
    fields.extend(describe_tenure(context.tx, tenure, now_ms));
    fields.push(("refused", tree::integer(lock.refused as i64)));
    let refused = |refused: &Refused| {
        let times = [("times", refused.times), ("last-at", refused.last_ms)];
        let times = times.map(|(name, value)| (name, tree::integer(value as i64)));
        tree::map([("client", describe_client(&refused.who))].into_iter().chain(times))
    };
    fields.push((
        "refused-clients",
        tree::array(lock.refused_by.iter().rev().filter(|refused| refused.times > 0).map(refused)),
    ));
    let list = waiting_list(context, lock);
    // Clients that wait with LOCK ACQUIRE wait for the key itself.
    let waiting = match &list {
        Some(list) => waiting_at(context, list),
        None => waiting_at(context, &lock.key).filter(|waiting| waiting.count > 0),
    };
    fields.push(("waiting-list", list.map_or(tree::null(), tree::bulk)));
    fields.extend(describe_waiting(context, waiting.as_ref()));
    fields.push(("woken", tree::integer(lock.woken as i64)));
    if has_history {
        let past = |tenure: &Tenure| {
            let ended = tenure.ended.map_or("", |ended| ended.how.name());
            let who = [("holder", describe_client(&tenure.holder)), ("state", tree::bulk(ended))];
            tree::map(who.into_iter().chain(describe_tenure(context.tx, tenure, now_ms)))
        };
        fields.push(("past", tree::array(lock.past.iter().map(past))));
        fields.push(("timeline-since", tree::integer(lock.timeline_since_ms() as i64)));
        fields.push(("timeline", tree::array(lock.timeline().iter().map(tree::bulk))));
        fields.push(("evidence", lock.evidence().map_or(tree::null(), tree::bulk)));
        fields.extend(describe_bond(context.instance, bond));
    }
    tree::map(fields)
}

/// To which connection a lock is bound, and how many locks hang there.
fn describe_bond(instance: &Instance, bond: Option<BondShown>) -> [(&'static str, OwnedFrame); 2] {
    let client = bond.and_then(|bond| instance.clients.get(bond.client));
    let bound_to = client.map_or(tree::null(), |client| describe_client(&Who::of(&client)));
    let locks = bond.map_or(tree::null(), |bond| tree::integer(bond.locks as i64));
    [("bound-to", bound_to), ("bound-there", locks)]
}

/// The list at which clients wait for a lock. A release has shown it; until then, it is the one that
/// python-redis-lock uses, if a client waits there.
fn waiting_list(context: &mut Context<'_, '_>, lock: &Lock) -> Option<Box<[u8]>> {
    if lock.signal.is_some() {
        return lock.signal.clone();
    }
    let name = lock.key.strip_prefix(b"lock:")?;
    let list = [b"lock-signal:", name].concat();
    waiting_at(context, &list).is_some_and(|waiting| waiting.count > 0).then(|| list.into())
}

/// The clients that wait at a list, if that can be seen. A command of an EXEC or a script keeps what it
/// holds, and does not wait for more.
fn waiting_at(context: &mut Context<'_, '_>, list: &[u8]) -> Option<WaitingClients> {
    if context.tx.hold_if_free(list) {
        return Some(context.tx.waiting_for(list));
    }
    if context.session.may_not_wait {
        return None;
    }
    context.tx.let_go();
    let tx = context.instance.keyspace.begin(context.tx.database(), list).ok()?;
    Some(tx.waiting_for(list))
}

fn describe_tenure(tx: &Transaction<'_>, tenure: &Tenure, now_ms: u64) -> Vec<(&'static str, OwnedFrame)> {
    let until_ms = tenure.ended.map_or(now_ms, |ended| ended.at_ms);
    let or_null = |value: Option<u64>| value.map_or(tree::null(), |value| tree::integer(value as i64));
    let mut fields = vec![
        ("taken-by", tree::bulk(tenure.command)),
        ("since", tree::integer(tenure.since_ms as i64)),
        ("held-ms", tree::integer(until_ms.saturating_sub(tenure.since_ms) as i64)),
        ("expires-at", or_null(tenure.expires_at_ms)),
    ];
    match tenure.ended {
        Some(ended) => fields.push(("ended-at", tree::integer(ended.at_ms as i64))),
        None => {
            let left_ms = tenure.expires_at_ms.map(|at_ms| tx.remaining_ms(at_ms));
            fields.push(("expires-in-ms", or_null(left_ms)));
        }
    }
    let entered = tenure.entered.as_ref();
    fields.push(("owner", entered.map_or(tree::null(), |entered| tree::bulk(&entered.owner))));
    fields.push(("depth", or_null(entered.map(|entered| entered.depth))));
    fields.push(("token-digest", tree::bulk(digest::to_text(tenure.token.digest))));
    fields.push(("fencing", tree::integer(tenure.fence as i64)));
    fields.push(("renewals", tree::integer(tenure.renewals.times as i64)));
    fields.push(("renewed-at", or_null(tenure.renewals.last_ms)));
    fields
}

const LOCKS_LOG: Command = Command {
    name: "locks|log",
    flags: Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE),
    group: Group::SERVER,
    summary: "Lists misuse of locks that the user may read: the newest ten findings, a given number, or all (-1).",
    since: "1.0.0",
    complexity: "O(N) where N is the number of findings, 128 at most",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::integer("count").optional()],
    example: &[
        ("LOCKS LOG 0", "[]"),
        ("LOCKS LOG -2", "(error) ERR count should be greater than or equal to -1"),
    ],
    run: Run::Server(log),
    ..Command::DEFAULTS
};

fn log(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    const COUNT: i64 = 10;
    if request.len() > 3 {
        return Err(Error::SYNTAX);
    }
    let count = request.get(2).map_or(Some(COUNT), parse_integer).filter(|count| *count >= -1);
    let count = count.ok_or(Error::fixed("ERR count should be greater than or equal to -1"))?;
    let mut findings = context.instance.lens.findings(usize::MAX);
    let may_read = permission::may_read(context.session, &LOCKS_LOG);
    findings.retain(|finding| may_read(&finding.key) && finding.others.iter().all(|key| may_read(key)));
    // -1 is all.
    findings.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(reply.tree(&tree::array(findings.iter().map(|finding| describe_finding(context.instance, finding)))))
}

fn describe_finding(instance: &Instance, finding: &Finding) -> OwnedFrame {
    tree::map([
        ("id", tree::integer(finding.id as i64)),
        ("rule", tree::bulk(finding.rule.name())),
        ("key", tree::bulk(&finding.key)),
        ("database", tree::count(instance.keyspace.shown_database(finding.database))),
        ("at", tree::integer(finding.at_ms as i64)),
        ("clients", tree::array(finding.clients.iter().map(|who| describe_client(who)))),
        ("hint", tree::bulk(finding.advice.hint)),
        ("instead", tree::bulk(finding.advice.instead)),
        ("timeline", tree::array(finding.timeline.iter().map(tree::bulk))),
        ("pattern", tree::bulk(&finding.pattern)),
        ("alike", tree::integer(finding.alike as i64)),
    ])
}

const LOCKS_STATS: Command = Command {
    name: "locks|stats",
    flags: Flags::ADMIN.and(Flags::READONLY),
    scope: Scope::Walk,
    group: Group::SERVER,
    summary: "Returns counts of locks, of what happened to them, and of misuse.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of locks that are followed, 4096 at most",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    run: Run::Server(stats),
    ..Command::DEFAULTS
};

fn stats(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    correct_in(context.instance, context.tx)?;
    let totals = context.tx.walk()?.totals();
    let counted = fields(context.instance, context.tx.now_ms(), Some(&totals));
    Ok(reply.tree(&tree::map(counted.iter().map(|(name, value)| (*name, tree::integer(*value as i64))))))
}

/// The fields of LOCKS STATS, INFO and metrics. Only the shards know how many locks are not followed, and how
/// many attempts were not reported.
pub(in crate::commands) fn fields(
    instance: &Instance,
    now_ms: u64,
    totals: Option<&Totals>,
) -> Vec<(&'static str, u64)> {
    let stats = instance.lens.stats(now_ms);
    let refused_unseen = totals.map_or(0, |totals| totals.refused_unseen);
    let mut fields = vec![
        ("followed", stats.followed as u64),
        ("held", stats.held as u64),
        ("taken", stats.taken),
        ("refused", stats.refused + refused_unseen),
        ("released", stats.released),
        ("expired", stats.expired),
        ("reentered", stats.reentered),
        ("woken", stats.woken),
    ];
    fields.extend(totals.map(|totals| ("unfollowed", totals.unfollowed_locks)));
    fields.extend(Rule::ALL.iter().map(|rule| rule.name()).zip(stats.findings));
    fields
}

const LOCKS_RESET: Command = Command {
    name: "locks|reset",
    flags: Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE),
    scope: Scope::Everything,
    group: Group::SERVER,
    summary: "Removes all findings and sets the counts to zero; held locks stay tracked.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of findings, 128 at most",
    cost: costs::ARGUMENTS,
    example: &[("LOCKS RESET", "OK"), ("LOCKS LOG", "[]")],
    run: Run::Server(reset),
    ..Command::DEFAULTS
};

fn reset(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    context.instance.lens.reset();
    context.tx.everything_mut()?.reset_unfollowed_locks();
    // Reports from before the reset must not use up the client's allowance for later reports.
    context.instance.allow_lock_news();
    Ok(reply.ok())
}

const LOCKS_HELP: Command = Command::help("locks|help", "0.1.0", || &LOCKS);
