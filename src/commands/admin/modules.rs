//! MODULE, for clients that ask which modules there are: none, and none can be loaded.
//!
//! The replies are those of a Redis without modules that does not allow clients to load any.

use crate::resp::{Reply, Request};
use crate::session::Session;

use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Command, Flags, Group, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[MODULE];

const MODULE: Command = Command {
    name: "module",
    group: Group::SERVER,
    summary: "Manages modules. The server has none and loads none.",
    since: "4.0.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[MODULE_HELP, MODULE_LIST, MODULE_LOAD, MODULE_LOADEX, MODULE_UNLOAD],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const MODULE_LIST: Command = Command {
    name: "module|list",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT),
    group: Group::SERVER,
    summary: "Lists the loaded modules: always none.",
    since: "4.0.0",
    complexity: "O(N) where N is the number of loaded modules.",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output_order"],
    example: &[("MODULE LIST", "[]")],
    run: Run::Session(list),
    ..Command::DEFAULTS
};

fn list(_: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.array_of(0..0, |_: usize, reply| reply.nil()))
}

/// The facts of the subcommands that load and unload.
const CHANGE: Command = Command {
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING),
    group: Group::SERVER,
    since: "4.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    run: Run::Session(refuse),
    ..Command::DEFAULTS
};

fn refuse(_: &mut Session, _: Request<'_>, _: Reply<'_>) -> Result {
    Err(Error::fixed(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can \
         run it from a local connection, otherwise you need to set this option in the configuration file, \
         and then restart the server.",
    ))
}

const MODULE_LOAD: Command = Command {
    name: "module|load",
    summary: "Loads a module. Always fails: the server supports no modules.",
    arguments: &[Argument::string("path"), Argument::string("arg").optional().multiple()],
    ..CHANGE
};

const MODULE_LOADEX: Command = Command {
    name: "module|loadex",
    summary: "Loads a module with options. Always fails: the server supports no modules.",
    since: "7.0.0",
    arguments: &[
        Argument::string("path"),
        Argument::block("configs", &[Argument::string("name"), Argument::string("value")])
            .token("CONFIG")
            .optional()
            .multiple()
            .multiple_token(),
        Argument::string("args").token("ARGS").optional().multiple(),
    ],
    ..CHANGE
};

const MODULE_UNLOAD: Command = Command {
    name: "module|unload",
    summary: "Unloads a module. Always fails: no module is loaded.",
    arguments: &[Argument::string("name")],
    ..CHANGE
};

const MODULE_HELP: Command = Command::help("module|help", "5.0.0", || &MODULE);
