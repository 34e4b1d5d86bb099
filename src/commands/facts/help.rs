//! The reply of HELP: the subcommands of a command, made of their facts.

use super::argument::{Argument, ArgumentKind};
use super::command::Command;
use crate::resp::{Reply, Sent};

/// The reply of a HELP subcommand: each subcommand with its arguments and its summary.
pub(in crate::commands) fn reply_help(command: &'static Command, reply: Reply<'_>) -> Sent {
    let name = command.name.to_ascii_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for subcommand in command.subcommands {
        let arguments: String =
            subcommand.arguments.iter().map(|argument| format!(" {}", usage(argument))).collect();
        lines.push(format!("{}{arguments}", subcommand.own_name().to_ascii_uppercase()));
        lines.push(format!("    {}", subcommand.summary));
    }
    reply.array_of(lines.iter(), |line, reply| reply.simple(line))
}

/// An argument as the documentation writes it: `[NX | XX]`, `EX seconds`, `key [key ...]`.
fn usage(argument: &Argument) -> String {
    let parts = |separator: &str| argument.arguments.iter().map(usage).collect::<Vec<_>>().join(separator);
    let own = match argument.kind {
        ArgumentKind::PureToken => String::new(),
        ArgumentKind::OneOf => parts(" | "),
        ArgumentKind::Block => parts(" "),
        _ => format!("<{}>", argument.name),
    };
    let own = match (argument.kind, argument.token) {
        (ArgumentKind::OneOf, Some(token)) => format!("{token} ({own})"),
        (ArgumentKind::OneOf, None) if !argument.is_optional => format!("({own})"),
        (_, Some(token)) => format!("{token} {own}").trim_end().to_owned(),
        (_, None) => own,
    };
    match (argument.is_optional, argument.is_multiple) {
        (true, true) => format!("[{own} ...]"),
        (true, false) => format!("[{own}]"),
        (false, true) => format!("{own} [{own} ...]"),
        (false, false) => own,
    }
}
