//! SANDBOX: servers behind database numbers. No other server has it.

use std::sync::Arc;
use std::time::Duration;

use redis_protocol::resp3::types::OwnedFrame;

use crate::clients::description::describe;
use crate::config::Parameter;
use crate::instance::{Instance, Place, ShownSandbox};
use crate::resp::{Reply, Request, tree};
use crate::scripting::Interpreter;
use crate::session::Session;

use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::admission::busy;
use crate::commands::execution::initial::{check_again, fill};
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, Reach, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[SANDBOX];

/// The facts that the subcommands share.
const SANDBOXES: Command = Command {
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::NO_MULTI),
    is_system: true,
    reach: Reach::Process,
    group: Group::SERVER,
    since: "1.0.0",
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const SANDBOX: Command = Command {
    name: "sandbox",
    summary: "Leases, lists and resets sandboxes: servers behind database numbers.",
    subcommands: &[
        SANDBOX_CLIENTS,
        SANDBOX_DROP,
        SANDBOX_HELP,
        SANDBOX_INFO,
        SANDBOX_LEASE,
        SANDBOX_LIST,
        SANDBOX_RESET,
    ],
    complexity: "Depends on subcommand.",
    run: Run::Subcommands,
    ..SANDBOXES
};

const SANDBOX_HELP: Command =
    Command { is_system: true, ..Command::help("sandbox|help", "1.0.0", || &SANDBOX) };

const NONE: Error = Error::fixed("ERR This server has no sandboxes: it was started without --sandboxes");

/// For how long a leased sandbox is kept when all have gone, if the client does not say it.
const LIFETIME_MS: i64 = 60_000;
/// The longest time that a client may ask for: a day.
const LIFETIME_MS_MAX: i64 = 86_400_000;

fn place(instance: &Instance) -> Result<&Place> {
    instance.place.as_ref().ok_or(NONE)
}

/// The sandbox of a database, by its number as clients know it.
fn numbered(place: &Place, argument: &[u8]) -> Result<usize> {
    let number = usize::try_from(args::integer(argument)?).map_err(|_| Error::NO_SUCH_DATABASE)?;
    place.all.find(number).map(|(sandbox, _)| sandbox).ok_or(Error::NO_SUCH_DATABASE)
}

const SANDBOX_LEASE: Command = Command {
    name: "sandbox|lease",
    summary: "Returns the database number of a sandbox of one's own, and keeps it for this connection.",
    complexity: "O(N) where N is the number of sandboxes",
    arguments: &[Argument::integer("milliseconds").token("TTL").optional()],
    example: &[("SANDBOX LEASE TTL 0", "(error) ERR TTL should be between 1 and 86400000")],
    run: Run::Message(lease),
    ..SANDBOXES
};

fn lease(instance: &Instance, session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let lifetime_ms = match (request.get(2), request.get(3), request.len()) {
        (None, ..) => LIFETIME_MS,
        (Some(option), Some(lifetime), 4) if is_word(option, "ttl") => args::integer(lifetime)?,
        _ => return Err(Error::SYNTAX),
    };
    let lifetime_ms = Some(lifetime_ms).filter(|ms| (1..=LIFETIME_MS_MAX).contains(ms));
    let lifetime_ms = lifetime_ms
        .ok_or_else(|| Error::text(format!("ERR TTL should be between 1 and {LIFETIME_MS_MAX}")))?;
    let lifetime = Duration::from_millis(lifetime_ms.unsigned_abs());
    match place(instance)?.all.lease(session.client.id, lifetime) {
        Some(database) => Ok(reply.count(database)),
        None => Err(Error::fixed("ERR All sandboxes of the upper half of the numbers are taken")),
    }
}

const SANDBOX_LIST: Command = Command {
    name: "sandbox|list",
    flags: SANDBOXES.flags.and(Flags::READONLY),
    summary: "Lists the sandboxes that there are.",
    complexity: "O(N) where N is the number of sandboxes",
    tips: &["nondeterministic_output"],
    example: &[(
        "SANDBOX LIST",
        "(error) ERR This server has no sandboxes: it was started without --sandboxes",
    )],
    run: Run::Message(list),
    ..SANDBOXES
};

fn list(instance: &Instance, _: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    let shown = place(instance)?.all.shown();
    Ok(reply.tree(&tree::array(shown.iter().map(describe_sandbox))))
}

const SANDBOX_INFO: Command = Command {
    name: "sandbox|info",
    flags: SANDBOXES.flags.and(Flags::READONLY),
    summary: "Describes the sandbox of a database; nil if there is none now.",
    complexity: "O(N) where N is the number of sandboxes",
    arguments: &[Argument::integer("index")],
    tips: &["nondeterministic_output"],
    example: &[(
        "SANDBOX INFO x",
        "(error) ERR This server has no sandboxes: it was started without --sandboxes",
    )],
    run: Run::Message(info),
    ..SANDBOXES
};

fn info(instance: &Instance, _: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let place = place(instance)?;
    let database = numbered(place, request.at(2))? * place.all.databases();
    let shown = place.all.shown();
    Ok(match shown.iter().find(|shown| shown.database == database) {
        Some(shown) => reply.tree(&describe_sandbox(shown)),
        None => reply.nil(),
    })
}

fn describe_sandbox(shown: &ShownSandbox) -> OwnedFrame {
    let instance = shown.instance.as_deref();
    let keys = match instance.map(|instance| instance.keyspace.totals_soon()) {
        // Without an instance there are none. A script may have the keys.
        Some(None) => tree::null(),
        Some(Some(totals)) => tree::count(totals.sizes.iter().map(|size| size.keys).sum()),
        None => tree::count(0),
    };
    tree::map([
        ("database", tree::count(shown.database)),
        ("keys", keys),
        ("clients", tree::count(instance.map_or(0, |instance| instance.clients.count()))),
        ("leased", tree::integer(i64::from(shown.is_leased))),
        ("ends-in-ms", shown.left.map_or(tree::null(), |left| tree::integer(left.as_millis() as i64))),
    ])
}

const SANDBOX_CLIENTS: Command = Command {
    name: "sandbox|clients",
    flags: SANDBOXES.flags.and(Flags::ADMIN),
    summary: "Lists the clients of all sandboxes, as CLIENT LIST does.",
    complexity: "O(N) where N is the number of client connections",
    tips: &["nondeterministic_output"],
    example: &[(
        "SANDBOX CLIENTS",
        "(error) ERR This server has no sandboxes: it was started without --sandboxes",
    )],
    run: Run::Message(clients),
    ..SANDBOXES
};

fn clients(instance: &Instance, _: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    let all = &place(instance)?.all;
    let instances: Vec<Arc<Instance>> = all.first().into_iter().chain(all.living()).collect();
    let mut lines = String::new();
    for instance in instances {
        let now_ms = instance.clients.now_ms();
        for client in instance.clients.all() {
            lines += &describe(&client, client.idle_s(now_ms), None);
        }
    }
    Ok(reply.verbatim(&lines))
}

const SANDBOX_DROP: Command = Command {
    name: "sandbox|drop",
    flags: SANDBOXES.flags.and(Flags::ADMIN),
    categories: Categories::DANGEROUS,
    summary: "Ends a sandbox with everything in it, and disconnects its clients.",
    complexity: "O(N) where N is the number of its keys and clients",
    arguments: &[Argument::integer("index")],
    example: &[(
        "SANDBOX DROP 1",
        "(error) ERR This server has no sandboxes: it was started without --sandboxes",
    )],
    run: Run::Message(drop_one),
    ..SANDBOXES
};

fn drop_one(instance: &Instance, session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let place = place(instance)?;
    let number = numbered(place, request.at(2))?;
    if number == 0 {
        return Err(Error::fixed("ERR The first sandbox is the server itself: SANDBOX RESET 0 empties it"));
    }
    let is_own = place.all.get(number).is_some_and(|own| own.clients.get(session.client.id).is_some());
    if is_own {
        return Err(Error::fixed("ERR The client is in this sandbox itself"));
    }
    Ok(reply.bool(place.all.drop_sandbox(number)))
}

const SANDBOX_RESET: Command = Command {
    name: "sandbox|reset",
    reach: Reach::Sandbox,
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    summary: "Makes the sandbox, or that of a database, as it was when it was made. Its clients stay connected.",
    complexity: "O(N) where N is the number of keys",
    arguments: &[Argument::integer("index").optional()],
    example: &[("SET mykey Hello", "OK"), ("SANDBOX RESET", "OK"), ("EXISTS mykey", "(integer) 0")],
    run: Run::Message(reset),
    ..SANDBOXES
};

fn reset(instance: &Instance, session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    Error::check_longest(request, 3)?;
    let Some(argument) = request.get(2) else {
        make_new(instance, session)?;
        return Ok(reply.ok());
    };
    let place = place(instance)?;
    let number = numbered(place, argument)?;
    // One that no client has entered has nothing to reset.
    if let Some(other) = place.all.get(number) {
        make_new(&other, session)?;
    }
    Ok(reply.ok())
}

/// Takes everything away that clients have left in an instance: keys, scripts, functions, settings, faults, a
/// turned clock, a pause, what is counted, and what the logs and the lens have noted.
fn make_new(instance: &Instance, session: &mut Session) -> Result<()> {
    let is_logged = instance.persistence.aof.is_on();
    let in_words = |why: String| Error::text(format!("ERR {why}"));
    check_again(instance, is_logged).map_err(in_words)?;
    let mut everything = instance.keyspace.begin_all(0).map_err(|_busy| busy(instance))?;
    everything.flush_all();
    everything.free_in_background();
    everything.reset_unfollowed_locks();
    everything.reset_counters();
    instance.scripting.with(Interpreter::forget_scripts);
    instance.scripting.forget_libraries();
    everything.note_request(&[b"FUNCTION", b"FLUSH"]);
    instance.persistence.note_change();
    let is_turned = instance.clock.is_turned();
    if is_turned {
        everything.turn_clock(|clock| {
            clock.resume();
            Ok::<(), Error>(())
        })?;
    }
    let filled = fill(instance, &mut everything.as_mut(), is_logged);
    instance.faults.clear();
    instance.clients.pause.end();
    for (name, value) in std::mem::take(&mut *instance.own_settings.lock()) {
        let before = Parameter::named(name.as_bytes()).and_then(|parameter| parameter.check(&value).ok());
        before.into_iter().for_each(|before| instance.config.store(before));
    }
    instance.apply_config();
    everything.serve_blocked();
    let effects = everything.take_effects();
    // The log of another instance is no concern of the client's replies: it has none.
    if instance.first_sandbox().is_none() {
        session.logged.commit(&mut everything);
    }
    instance.notify(effects, None);
    drop(everything);
    instance.note_begun();
    instance.lens.reset();
    instance.allow_lock_news();
    instance.acl_log.clear();
    let statistics = &instance.statistics;
    statistics.reset();
    statistics.command_logs.clear();
    statistics.latency.forget(|_| true);
    filled.map_err(in_words)
}
