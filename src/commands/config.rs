//! CONFIG: reads and changes the parameters.

use std::fs;
use std::io::ErrorKind;

use crate::config::rewrite::rewrite as rewritten;
use crate::config::{ALIASES, Changes, Checked, PARAMETERS, Parameter};
use crate::resp::{Reply, Request, tree};
use crate::session::Session;
use crate::{files, glob};

use super::args::is_word;
use super::command::{Argument, Arity, Command, Context, Flags, Group, Result, Run, Scope};
use super::error::Error;
use super::introspection;
use super::permission::is_enabled;

pub(super) const COMMANDS: &[Command] = &[CONFIG];

const CONFIG: Command = Command {
    name: "config",
    arity: Arity::AtLeast(2),
    group: Group::Server,
    summary: "Everything about parameters.",
    since: "2.0.0",
    complexity: "Depends on subcommand.",
    subcommands: &[CONFIG_GET, CONFIG_HELP, CONFIG_RESETSTAT, CONFIG_REWRITE, CONFIG_SET],
    ..Command::DEFAULTS
};

const CONFIG_GET: Command = Command {
    name: "config|get",
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::Server,
    summary: "Tells the values of all parameters whose names match any of these patterns.",
    since: "2.0.0",
    complexity: "O(N) when N is the number of configuration parameters provided",
    arguments: &[Argument::block("parameter", &[Argument::string("parameter")]).multiple()],
    example: &[("CONFIG GET databases", "[\"databases\", \"16\"]"), ("CONFIG GET nosuch", "[]")],
    run: Run::Server(get),
    ..Command::DEFAULTS
};

fn get(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_asked_for =
        |name: &str| request.from(2).any(|pattern| glob::matches(pattern, name.as_bytes(), true));
    let config = &context.instance.config;
    let aliases = ALIASES.iter().filter_map(|(alias, own)| Some((*alias, Parameter::named(own.as_bytes())?)));
    let named = PARAMETERS.iter().map(|parameter| (parameter.name, parameter)).chain(aliases);
    let found = named.filter(|(name, _)| is_asked_for(name));
    Ok(reply.tree(&tree::map(found.map(|(name, parameter)| (name, tree::bulk(parameter.print(config)))))))
}

const CONFIG_SET: Command = Command {
    name: "config|set",
    arity: Arity::AtLeast(4),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::Server,
    summary: "Changes parameters: all of them, or none if any value is refused.",
    since: "2.0.0",
    complexity: "O(N) when N is the number of configuration parameters provided",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::block(
        "parameter_value",
        &[Argument::string("parameter"), Argument::string("value")],
    )
    .multiple()],
    example: &[
        ("CONFIG SET timeout 0", "OK"),
        (
            "CONFIG SET nosuch 1",
            "(error) ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
    ],
    run: Run::Server(set),
    ..Command::DEFAULTS
};

fn set(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let settings = parse_settings(context, request)?;
    let (instance, config) = (context.instance, &context.instance.config);
    let had_log = config.appendonly.get();
    let named = request.from(2).step_by(2).filter_map(Parameter::named);
    let before: Vec<_> = named.map(|parameter| (parameter, parameter.print(config))).collect();
    settings.into_iter().for_each(|checked| config.store(checked));
    if config.appendonly.get()
        && !had_log
        && let Err(why) = instance.probe_log()
    {
        tracing::warn!("{why}");
        // All of them are made, or none.
        before.iter().filter_map(|(parameter, value)| parameter.check(value).ok()).for_each(|old| {
            config.store(old);
        });
        return Err(refuse("appendonly", "Unable to turn on AOF. Check server logs."));
    }
    if request.from(2).step_by(2).any(|name| is_word(name, "requirepass")) {
        instance.apply_requirepass();
    }
    instance.apply_config();
    Ok(reply.ok())
}

/// Checks every setting before any is made.
fn parse_settings(context: &Context<'_, '_>, request: Request<'_>) -> Result<Vec<Checked>> {
    if !request.len().is_multiple_of(2) {
        return Err(Error::wrong_arity("config|set"));
    }
    let mut parameters: Vec<&'static Parameter> = Vec::new();
    for name in request.from(2).step_by(2) {
        let unknown =
            || Error::quoting("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'");
        let parameter = Parameter::named(name).ok_or_else(unknown)?;
        if parameter.changes == Changes::AtStart {
            return Err(refuse(parameter.name, "can't set immutable config"));
        }
        let is_protected = parameter.changes == Changes::Protected;
        if is_protected && !is_enabled(context.session, &context.instance.config.enable_protected_configs) {
            return Err(refuse(parameter.name, "can't set protected config"));
        }
        if parameters.iter().any(|other| std::ptr::eq(*other, parameter)) {
            return Err(refuse(parameter.name, "duplicate parameter"));
        }
        parameters.push(parameter);
    }
    let values = request.from(3).step_by(2);
    let check = |(parameter, value): (&'static Parameter, &[u8])| {
        parameter.check(value).map_err(|refusal| refuse(parameter.name, &refusal.to_string()))
    };
    parameters.into_iter().zip(values).map(check).collect()
}

fn refuse(name: &str, why: &str) -> Error {
    Error::text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

const CONFIG_RESETSTAT: Command = Command {
    name: "config|resetstat",
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    scope: Scope::Everything,
    group: Group::Server,
    summary: "Sets the counters of INFO to zero.",
    since: "2.0.0",
    complexity: "O(1)",
    example: &[("CONFIG RESETSTAT", "OK")],
    run: Run::Server(reset_statistics),
    ..Command::DEFAULTS
};

fn reset_statistics(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    context.instance.statistics.reset();
    context.instance.persistence.reset_counts();
    context.instance.users.log.reset_counts();
    context.tx.reset_counters();
    Ok(reply.ok())
}

const CONFIG_REWRITE: Command = Command {
    name: "config|rewrite",
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::Server,
    summary: "Writes the parameters as they are now into the configuration file that the server was started with.",
    since: "2.8.0",
    complexity: "O(1)",
    example: &[("CONFIG REWRITE", "(error) ERR The server is running without a config file")],
    run: Run::Server(rewrite),
    ..Command::DEFAULTS
};

fn rewrite(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let instance = context.instance;
    let missing = Error::fixed("ERR The server is running without a config file");
    let path = instance.config.file.as_deref().ok_or(missing)?;
    // Users who have a file of their own are not in this one.
    let users = if instance.acl_file().is_some() { Vec::new() } else { instance.users.describe() };
    // Somebody may have taken the old one away.
    let old = fs::read(path).or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(Vec::new()),
        _ => Err(error),
    });
    let written = old.and_then(|old| files::replace(path, &rewritten(&old, &instance.config, &users)));
    written.map_err(|error| {
        let reason = files::reason(&error);
        tracing::warn!("CONFIG REWRITE failed: {reason}");
        Error::text(format!("ERR Rewriting config file: {reason}"))
    })?;
    tracing::warn!("CONFIG REWRITE executed with success.");
    Ok(reply.ok())
}

const CONFIG_HELP: Command = Command {
    name: "config|help",
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.and(Flags::STALE),
    group: Group::Server,
    summary: "Lists the subcommands.",
    since: "5.0.0",
    complexity: "O(1)",
    run: Run::Session(help),
    ..Command::DEFAULTS
};

fn help(_: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(introspection::help(&CONFIG, reply))
}
