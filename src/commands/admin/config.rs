//! CONFIG: reads and changes the parameters.

use std::fs;
use std::io::ErrorKind;

use crate::allocator::{COUNTS_NOTHING, is_counting};
use crate::config::rewrite::{FILE_BYTES_MAX, rewrite as rewritten};
use crate::config::{Changes, Checked, Config, Owner, Parameter, is_known, is_secret, parameters};
use crate::files::{self, Rights};
use crate::glob::Pattern;
use crate::instance::Instance;
use crate::remote::without_password;
use crate::resp::{Reply, Request, tree};

use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::permission::is_enabled;
use crate::commands::facts::{Argument, Command, Context, Flags, Group, Reach, Result, Run, Scope, Secrets};

pub(in crate::commands) const COMMANDS: &[Command] = &[CONFIG];

const CONFIG: Command = Command {
    name: "config",
    group: Group::SERVER,
    summary: "Reads and changes configuration parameters.",
    since: "2.0.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[CONFIG_GET, CONFIG_HELP, CONFIG_RESETSTAT, CONFIG_REWRITE, CONFIG_SET],
    ..Command::DEFAULTS
};

const CONFIG_GET: Command = Command {
    name: "config|get",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::SERVER,
    summary: "Returns the parameters whose names match any of the patterns, with their values.",
    since: "2.0.0",
    complexity: "O(N) when N is the number of configuration parameters provided",
    cost: costs::described::<500, 1>(),
    arguments: &[Argument::string("parameter").multiple()],
    example: &[("CONFIG GET databases", "[\"databases\", \"16\"]"), ("CONFIG GET nosuch", "[]")],
    run: Run::Server(get),
    ..Command::DEFAULTS
};

fn get(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    // As in Redis, the reply repeats a whole name as the client spells it.
    let mut found: Vec<(&[u8], &Parameter)> = Vec::new();
    for asked in request.from(2) {
        let is_pattern = asked.iter().any(|byte| b"[*?".contains(byte));
        let mut add = |name, parameter| {
            if !found.iter().any(|(known, _)| *known == name) {
                found.push((name, parameter));
            }
        };
        if !is_pattern {
            Parameter::named(asked).into_iter().for_each(|parameter| add(asked, parameter));
            continue;
        }
        let pattern = Pattern::new(asked, true);
        let shown = parameters().filter(|parameter| !parameter.is_hidden);
        let mut named: Vec<_> =
            shown.flat_map(|parameter| parameter.names().map(move |name| (name, parameter))).collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        let meant = named.into_iter().filter(|(name, _)| pattern.matches(name.as_bytes()));
        meant.for_each(|(name, parameter)| add(name.as_bytes(), parameter));
    }
    let config = &context.instance.config;
    Ok(reply.tree(&tree::map_of(
        found.iter().map(|(name, parameter)| (tree::bulk(name), tree::bulk(shown(parameter, config)))),
    )))
}

/// The value of a parameter as a client may see it: the URL of the store has a password that the client need
/// not know.
fn shown(parameter: &Parameter, config: &Config) -> Vec<u8> {
    let value = parameter.print(config);
    match parameter.name {
        "store" => without_password(&String::from_utf8_lossy(&value)).into_bytes(),
        _ => value,
    }
}

const CONFIG_SET: Command = Command {
    name: "config|set",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::SERVER,
    summary: "Sets parameters; if one value is invalid, none is changed.",
    since: "2.0.0",
    complexity: "O(N) when N is the number of configuration parameters provided",
    cost: costs::ARGUMENTS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[
        Argument::block("data", &[Argument::string("parameter"), Argument::string("value")]).multiple()
    ],
    example: &[
        ("CONFIG SET timeout 0", "OK"),
        (
            "CONFIG SET nosuch 1",
            "(error) ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
    ],
    secrets: Secrets::At(set_secrets),
    run: Run::Server(set),
    ..Command::DEFAULTS
};

fn set(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (instance, settings) = (context.instance, parse_settings(context, request)?);
    let Some(place) = &instance.place else {
        let before = set_all(instance, settings)?;
        note_before(instance, before);
        return Ok(reply.ok());
    };
    let is_own = |(named, _): &(Named<'_>, Checked)| named.parameter.owner == Owner::Sandbox;
    let (own, servers): (Vec<_>, Vec<_>) = settings.into_iter().partition(is_own);
    if !servers.is_empty() {
        let first = place.all.first().ok_or(Error::fixed("ERR The server ends"))?;
        let values: Vec<_> = servers.iter().map(|(_, checked)| checked.clone()).collect();
        set_all(&first, servers)?;
        place.all.spread(&values);
    }
    if !own.is_empty() {
        // Of these none can be refused any more.
        let before = set_all(instance, own)?;
        note_before(instance, before);
    }
    Ok(reply.ok())
}

/// Remembers the first values of parameters, for SANDBOX RESET.
fn note_before(instance: &Instance, before: Before<'_>) {
    let mut settings = instance.own_settings.lock();
    before.into_iter().for_each(|(named, value)| _ = settings.entry(named.parameter.name).or_insert(value));
}

/// Parameters with the values that they had.
type Before<'a> = Vec<(Named<'a>, Vec<u8>)>;

/// Makes all of these settings, or none. Returns the values before.
fn set_all<'a>(instance: &Instance, settings: Vec<(Named<'a>, Checked)>) -> Result<Before<'a>> {
    let config = &instance.config;
    let had_log = config.appendonly.get();
    let before: Vec<_> =
        settings.iter().map(|(name, _)| (*name, name.parameter, name.parameter.print(config))).collect();
    let names: Vec<Named> = before.iter().map(|(name, ..)| *name).collect();
    settings.into_iter().for_each(|(_, checked)| config.store(checked));
    // TLS comes last of what can fail: what new connections are greeted with need not be restored.
    if let Err(error) = apply(instance, &names, had_log).and_then(|()| renew_tls(instance, &names)) {
        tracing::warn!("Failed applying new configuration. Restoring previous settings.");
        // All of them are made, or none.
        for (_, parameter, value) in &before {
            parameter.check(value).ok().into_iter().for_each(|old| config.store(old));
        }
        // What was in effect before can be again.
        let _ = apply(instance, &names, config.appendonly.get());
        return Err(error);
    }
    // Nothing can fail any more. The password in effect need not be that of the parameter: a user's rules may
    // have changed it since. So it could not be restored from there.
    if names.iter().any(|name| name.parameter.name == "requirepass") {
        instance.apply_requirepass();
    }
    warn_of_inert(config, &before);
    Ok(before.into_iter().map(|(named, _, value)| (named, value)).collect())
}

/// Logs which of the parameters have got a value that has no effect, other than their default.
fn warn_of_inert(config: &Config, before: &[(Named<'_>, &'static Parameter, Vec<u8>)]) {
    let inert = config.inert_names();
    for (_, parameter, value) in before {
        if inert.contains(&parameter.name) && parameter.print(config) != *value {
            tracing::warn!("This parameter has no effect in Keyfast: {}", parameter.name);
        }
    }
}

/// A parameter by the name that the client uses.
#[derive(Clone, Copy)]
struct Named<'a> {
    name: &'a [u8],
    parameter: &'static Parameter,
}

impl Named<'_> {
    /// The name in lower case, as the table has it.
    fn shown(&self) -> String {
        String::from_utf8_lossy(self.name).to_ascii_lowercase()
    }
}

/// Makes effective what was set, except for the password and TLS.
///
/// # Errors
///
/// With the parameter that cannot be what it was set to, in the words of Redis.
fn apply(instance: &Instance, names: &[Named<'_>], had_log: bool) -> Result<()> {
    let config = &instance.config;
    let first_of = |set: &[&str]| names.iter().copied().find(|name| set.contains(&name.parameter.name));
    if let Some(name) = first_of(&["appendonly"])
        && config.appendonly.get()
        && !had_log
        && let Err(why) = instance.probe_aof()
    {
        tracing::warn!("{why}");
        return Err(refuse(&name.shown(), "Unable to turn on AOF. Check server logs."));
    }
    if let Some(name) = first_of(&["maxmemory"]).filter(|_| config.maxmemory.size() > 0 && !is_counting()) {
        return Err(refuse(&name.shown(), COUNTS_NOTHING));
    }
    let clients_max = config.maxclients.get();
    instance.apply_config();
    let possible = config.maxclients.get();
    if let Some(name) = first_of(&["maxclients"]).filter(|_| possible < clients_max) {
        let why = "The operating system is not able to handle the specified number of clients, try with";
        return Err(refuse(&name.shown(), &format!("{why} {possible}")));
    }
    match first_of(&["oom-score-adj", "oom-score-adj-values"]) {
        Some(name) => instance.adjust_oom_score().map_err(|why| refuse(&name.shown(), why)),
        None => Ok(()),
    }
}

/// Has new connections over TLS greeted by what was set. As in Redis, also if a file has the same name as
/// before: what is in it may be new.
///
/// # Errors
///
/// With the parameter, in the words of Redis. Nothing has changed then.
fn renew_tls(instance: &Instance, names: &[Named<'_>]) -> Result<()> {
    let is_about_tls =
        |name: &&Named<'_>| name.parameter.name.starts_with("tls-") && !name.parameter.is_inert();
    let Some((name, renew)) = names.iter().find(is_about_tls).zip(instance.renew_tls.get()) else {
        return Ok(());
    };
    renew(&instance.config).map_err(|why| {
        tracing::warn!("{why}");
        refuse(&name.shown(), "Unable to update TLS configuration. Check server logs.")
    })
}

/// Checks every setting before any is made.
fn parse_settings<'a>(context: &Context<'_, '_>, request: Request<'a>) -> Result<Vec<(Named<'a>, Checked)>> {
    if !request.len().is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    let mut settings: Vec<Named<'_>> = Vec::new();
    for name in request.from(2).step_by(2) {
        let unknown =
            || Error::quoting("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'");
        let parameter = Parameter::named(name).ok_or_else(unknown)?;
        // As the client spells it.
        let refuse = |why| Err(refuse(&String::from_utf8_lossy(name), why));
        if matches!(parameter.changes, Changes::AtStart | Changes::Never) {
            return refuse("can't set immutable config");
        }
        let is_protected = parameter.changes == Changes::Protected;
        let enabled = &context.instance.config.enable_protected_configs;
        if is_protected && !is_enabled(context.instance, context.session, enabled) {
            return refuse("can't set protected config");
        }
        // By both of its names it may be set at once, as in Redis: the last one counts.
        if settings.iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
            return refuse("duplicate parameter");
        }
        settings.push(Named { name, parameter });
    }
    let values = request.from(3).step_by(2);
    let directory = context.instance.config.directory();
    let check = |(named, value): (Named<'a>, &[u8])| {
        let checked = named.parameter.check_in(&directory, value);
        checked.map(|checked| (named, checked)).map_err(|why| refuse(&named.shown(), &why.to_string()))
    };
    settings.into_iter().zip(values).map(check).collect()
}

/// The values of secret parameters, and of unknown ones: their names may be misspelt. Where
/// the arguments are no pairs, any may be a secret.
fn set_secrets(request: Request<'_>) -> Vec<usize> {
    if !request.len().is_multiple_of(2) {
        return (2..request.len()).collect();
    }
    let names =
        (2..request.len()).step_by(2).filter(|at| is_secret(request.at(*at)) || !is_known(request.at(*at)));
    names.map(|at| at + 1).collect()
}

fn refuse(name: &str, why: &str) -> Error {
    Error::text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

const CONFIG_RESETSTAT: Command = Command {
    name: "config|resetstat",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    scope: Scope::Everything,
    group: Group::SERVER,
    summary: "Resets the counters of INFO to zero.",
    since: "2.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    example: &[("CONFIG RESETSTAT", "OK")],
    run: Run::Server(reset_statistics),
    ..Command::DEFAULTS
};

fn reset_statistics(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    context.instance.statistics.reset();
    context.instance.persistence.reset_counts();
    context.instance.persistence.aof.reset_counts();
    context.instance.freed.reset();
    context.instance.exceeding.reset();
    context.instance.clients.reset_counts();
    context.instance.scripting.reset_counts();
    context.instance.acl_log.reset_counts();
    context.tx.everything_mut()?.reset_counters();
    Ok(reply.ok())
}

const CONFIG_REWRITE: Command = Command {
    name: "config|rewrite",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::SERVER,
    summary: "Saves the current parameters to the configuration file that the server was started with.",
    since: "2.8.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    example: &[("CONFIG REWRITE", "(error) ERR The server is running without a config file")],
    reach: Reach::Process,
    run: Run::Server(rewrite),
    ..Command::DEFAULTS
};

fn rewrite(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    rewrite_file(context.instance, false)?;
    Ok(reply.ok())
}

/// Writes the configuration file: what differs from the defaults, or all.
pub(in crate::commands) fn rewrite_file(instance: &Instance, writes_all: bool) -> Result<()> {
    let missing = Error::fixed("ERR The server is running without a config file");
    let path = instance.config.file.as_deref().ok_or(missing)?;
    // Users from an ACL file are not in this file.
    let users = if instance.acl_file().is_some() { Vec::new() } else { describe_users(instance)? };
    // The old one may have been taken away.
    let old = fs::read(path).or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(Vec::new()),
        _ => Err(error),
    });
    let written = old.and_then(|old| {
        let new = rewritten(&old, &instance.config, &users, writes_all);
        if new.len() > FILE_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        files::replace(path, &new, Rights::Kept)
    });
    written.map_err(|error| {
        let reason = files::reason(&error);
        tracing::warn!("CONFIG REWRITE failed: {reason}");
        Error::text(format!("ERR Rewriting config file: {reason}"))
    })?;
    tracing::warn!("CONFIG REWRITE executed with success.");
    Ok(())
}

/// The lines of all users.
///
/// # Errors
///
/// If one of them is declared outside of the file: the next server would find it declared twice, and not
/// start. Redis writes such a file.
fn describe_users(instance: &Instance) -> Result<Vec<Vec<u8>>> {
    let mut elsewhere = instance.config.users_elsewhere.iter();
    match elsewhere.find(|name| instance.users.get(name).is_some()) {
        None => Ok(instance.users.describe()),
        Some(name) => Err(Error::quoting(
            "ERR Rewriting config file: an included file or an option declares the user '",
            name,
            "', which can be declared only once. Declare it in the configuration file itself, or use aclfile",
        )),
    }
}

const CONFIG_HELP: Command = Command::help("config|help", "5.0.0", || &CONFIG);
