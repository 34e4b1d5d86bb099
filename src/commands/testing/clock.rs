//! CLOCK: stops and moves the server's clock, by which keys expire, so that tests need not wait.
//!
//! No other server has it. All clients see a change of the clock as one step: it holds all shards. Before any
//! other client sees the new time, and before the reply, the keys that expired are removed and reported.
//! Waits and measurements (CLIENT PAUSE, WAIT, timeouts, SLOWLOG's durations) go on in real time.

use crate::clock::{Clock, FIRST_MS, LAST_MS};
use crate::resp::{Reply, Request, tree};

use crate::commands::args;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::permission::check_enabled;
use crate::commands::facts::help::reply_help;
use crate::commands::facts::{Argument, Command, Context, Flags, Group, Result, Run, Scope};
use crate::commands::locks::losing;

pub(in crate::commands) const COMMANDS: &[Command] = &[CLOCK];

/// The facts that most commands of this file share.
const SERVER: Command =
    Command { flags: FLAGS, group: Group::SERVER, cost: costs::ARGUMENTS, ..Command::DEFAULTS };

const CLOCK: Command = Command {
    name: "clock",
    flags: FLAGS,
    cost: costs::ARGUMENTS,
    is_system: true,
    group: Group::SERVER,
    summary: "Controls the server's clock, for tests; off unless `enable-clock-command` allows it.",
    since: "1.0.0",
    complexity: "Depends on subcommand.",
    subcommands: &[CLOCK_ADVANCE, CLOCK_FREEZE, CLOCK_HELP, CLOCK_INFO, CLOCK_RESUME, CLOCK_SET],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

/// The flags of all subcommands. Time does not pass in a script, so that none may change the clock.
const FLAGS: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

const CLOCK_FREEZE: Command = Command {
    name: "clock|freeze",
    scope: Scope::Everything,
    is_system: true,
    summary: "Stops the clock; has no effect on a clock that is stopped already.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys",
    example: &[
        ("CLOCK FREEZE", "OK"),
        ("SET lock token NX PX 30000", "OK"),
        ("PTTL lock", "(integer) 30000"),
    ],
    run: Run::Server(freeze),
    ..SERVER
};

fn freeze(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    turn(context, reply, |clock| {
        clock.freeze();
        Ok(())
    })
}

const CLOCK_ADVANCE: Command = Command {
    name: "clock|advance",
    scope: Scope::Everything,
    is_system: true,
    summary: "Moves the clock forward. Returns when every key that expired has been removed and reported.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys",
    arguments: &[Argument::integer("milliseconds")],
    example: &[
        ("SET lock token NX PX 30000", "OK"),
        ("CLOCK ADVANCE 30000", "OK"),
        ("DBSIZE", "(integer) 0"),
        ("SETNX lock another", "(integer) 1"),
    ],
    run: Run::Server(advance),
    ..SERVER
};

fn advance(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    let by_ms = u64::try_from(args::integer(request.at(2))?)
        .map_err(|_| Error::fixed("ERR milliseconds must not be negative: CLOCK SET sets the clock back"))?;
    turn(context, reply, |clock| {
        clock.advance(by_ms).map_err(|_| {
            Error::text(format!("ERR the clock cannot be set beyond {LAST_MS} milliseconds since 1970"))
        })
    })
}

const CLOCK_SET: Command = Command {
    name: "clock|set",
    scope: Scope::Everything,
    is_system: true,
    summary: "Sets the clock to a Unix time in milliseconds, past or future. It stays stopped or running.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys",
    arguments: &[Argument::unix_time("unix-time-milliseconds")],
    example: &[
        ("CLOCK FREEZE", "OK"),
        ("CLOCK SET 1000000000000", "OK"),
        ("TIME", "[\"1000000000\", \"0\"]"),
        ("SET lock token NX PX 30000", "OK"),
        ("PEXPIRETIME lock", "(integer) 1000000030000"),
    ],
    run: Run::Server(set),
    ..SERVER
};

fn set(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    // A negative time is refused like 0, which is below the clock's range.
    let moment_ms = u64::try_from(args::integer(request.at(2))?).unwrap_or(0);
    turn(context, reply, |clock| {
        clock.set(moment_ms).map_err(|_| {
            Error::text(format!(
                "ERR the time must be between {FIRST_MS} and {LAST_MS} milliseconds since 1970"
            ))
        })
    })
}

const CLOCK_RESUME: Command = Command {
    name: "clock|resume",
    scope: Scope::Everything,
    is_system: true,
    summary: "Returns the clock to the system's time and starts it.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys",
    example: &[("CLOCK FREEZE", "OK"), ("CLOCK ADVANCE 30000", "OK"), ("CLOCK RESUME", "OK")],
    run: Run::Server(resume),
    ..SERVER
};

fn resume(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    turn(context, reply, |clock| {
        clock.resume();
        Ok(())
    })
}

/// Changes the clock, and removes at once the keys that the sweep for expired keys would remove later. While
/// the sweep is off (DEBUG SET-ACTIVE-EXPIRE, CLIENT PAUSE), expired keys count as absent, and stay in memory
/// until a command uses them.
fn turn(context: &mut Context<'_, '_>, reply: Reply<'_>, turn: impl FnOnce(&Clock) -> Result<()>) -> Result {
    let mut everything = context.tx.everything_mut()?;
    everything.turn_clock(turn)?;
    context.instance.note_clock_turned(&context.session.client.address);
    context.instance.end_logins();
    losing::lose_turned(context.instance, &mut everything);
    if context.instance.frees_expired() {
        everything.free_all_expired();
    }
    // In a pause no data change: then they only look again, and wait for its end.
    if context.instance.clients.pause.paused().is_none() {
        everything.offer_by_time();
    }
    // No command removed these keys, so that clients get the news even if they exclude their own changes
    // (NOLOOP). In a transaction the news follows the reply, which may hold values of removed keys.
    if !context.session.may_not_wait {
        let effects = context.tx.take_effects();
        if !effects.is_empty() {
            context.session.logged.commit(context.tx);
            context.instance.notify(effects, None);
        }
    }
    Ok(reply.ok())
}

const CLOCK_INFO: Command = Command {
    name: "clock|info",
    is_system: true,
    summary: "Returns whether the clock is stopped, its time, and its offset from the system's time.",
    since: "1.0.0",
    complexity: "O(1)",
    tips: &["nondeterministic_output"],
    run: Run::Server(info),
    ..SERVER
};

fn info(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    let reading = context.instance.clock.read();
    Ok(reply.tree(&tree::map([
        ("frozen", tree::boolean(reading.is_frozen)),
        ("time-ms", tree::integer(reading.now_ms as i64)),
        ("offset-ms", tree::integer(reading.ahead_ms)),
    ])))
}

const CLOCK_HELP: Command = Command {
    flags: FLAGS,
    is_system: true,
    run: Run::Server(help),
    ..Command::help("clock|help", "0.1.0", || &CLOCK)
};

fn help(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    Ok(reply_help(&CLOCK, reply))
}

/// Whether `enable-clock-command` lets this client in.
fn check_gate(context: &Context<'_, '_>) -> Result<()> {
    let enabled = &context.instance.config.enable_clock_command;
    check_enabled(context, "CLOCK", "enable-clock-command", enabled)
}
