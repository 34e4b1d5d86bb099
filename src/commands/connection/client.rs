//! CLIENT: the settings of a connection, and the list of the others.

use std::sync::Arc;

use crate::clients::Leaving;
use crate::clients::description::describe;
use crate::commands::costs;
use crate::resp::{Reply, Request};
use crate::session::{Replies, Session};

use super::client_filter::{self, Filter};
use super::tracking;
use crate::commands::admin::waiting;
use crate::commands::args::{self, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Arity, Categories, Command, Context, Flags, Group, Result, Run, Traits,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[CLIENT];

/// The facts that most commands of this file share.
const CONNECTION: Command = Command {
    categories: Categories::CONNECTION,
    group: Group::CONNECTION,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const CLIENT: Command = Command {
    name: "client",
    traits: Traits::KEEPS_CACHING,
    group: Group::CONNECTION,
    summary: "Manages client connections.",
    since: "2.4.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[
        tracking::CLIENT_CACHING,
        CLIENT_CAPA,
        CLIENT_GETNAME,
        tracking::CLIENT_GETREDIR,
        CLIENT_HELP,
        CLIENT_ID,
        CLIENT_IMPORT_SOURCE,
        CLIENT_INFO,
        CLIENT_KILL,
        CLIENT_LIST,
        CLIENT_NO_EVICT,
        CLIENT_NO_TOUCH,
        CLIENT_REPLY,
        CLIENT_SETINFO,
        CLIENT_SETNAME,
        tracking::CLIENT_TRACKING,
        tracking::CLIENT_TRACKINGINFO,
        waiting::CLIENT_PAUSE,
        waiting::CLIENT_UNBLOCK,
        waiting::CLIENT_UNPAUSE,
    ],
    ..Command::DEFAULTS
};

const CLIENT_ID: Command = Command {
    name: "client|id",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Returns the ID of this connection, which is never used again.",
    since: "5.0.0",
    complexity: "O(1)",
    run: Run::Session(id),
    ..CONNECTION
};

fn id(session: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.integer(session.client.id as i64))
}

const CLIENT_GETNAME: Command = Command {
    name: "client|getname",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Returns the name of this connection.",
    since: "2.6.9",
    complexity: "O(1)",
    example: &[("CLIENT GETNAME", "(nil)"), ("CLIENT SETNAME me", "OK"), ("CLIENT GETNAME", "\"me\"")],
    run: Run::Session(get_name),
    ..CONNECTION
};

fn get_name(session: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    let name = session.client.profile.lock().name.clone();
    Ok(reply.bulk_or_nil(Some(name.as_slice()).filter(|name| !name.is_empty())))
}

const CLIENT_SETNAME: Command = Command {
    name: "client|setname",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Sets the name of this connection, shown by CLIENT LIST.",
    since: "2.6.9",
    complexity: "O(1)",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::string("connection-name")],
    example: &[("CLIENT SETNAME me", "OK")],
    run: Run::Session(set_name_command),
    ..CONNECTION
};

fn set_name_command(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    set_name(session, request.at(2))?;
    Ok(reply.ok())
}

/// Sets the name of a connection; an empty name removes it.
pub(super) fn set_name(session: &Session, name: &[u8]) -> Result<()> {
    if !is_printable(name) {
        return Err(Error::fixed("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    session.show(|profile| profile.name = name.to_vec());
    Ok(())
}

/// Whether a text keeps CLIENT LIST readable: no blanks, nothing but visible ASCII.
fn is_printable(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

const CLIENT_SETINFO: Command = Command {
    name: "client|setinfo",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Sets the name or version of the client library of this connection.",
    since: "7.2.0",
    complexity: "O(1)",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "attr",
        &[Argument::string("libname").token("LIB-NAME"), Argument::string("libver").token("LIB-VER")],
    )],
    example: &[("CLIENT SETINFO LIB-NAME mylib", "OK"), ("CLIENT SETINFO LIB-VER 1.0", "OK")],
    run: Run::Session(set_info),
    ..CONNECTION
};

fn set_info(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (attribute, value) = (request.at(2), request.at(3));
    let is_name = is_word(attribute, "lib-name");
    if !is_name && !is_word(attribute, "lib-ver") {
        return Err(Error::quoting("ERR Unrecognized option '", attribute, "'"));
    }
    if !is_printable(value) {
        let wrong = " cannot contain spaces, newlines or special characters.";
        return Err(Error::quoting("ERR ", attribute, wrong));
    }
    session.show(|profile| {
        let field = if is_name { &mut profile.lib_name } else { &mut profile.lib_version };
        *field = value.to_vec();
    });
    Ok(reply.ok())
}

const CLIENT_INFO: Command = Command {
    name: "client|info",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Returns the details of this connection.",
    since: "6.2.0",
    complexity: "O(1)",
    tips: &["nondeterministic_output"],
    run: Run::Session(info),
    ..CONNECTION
};

fn info(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    session.show(|_| {});
    Ok(reply.verbatim(&describe(&session.client, 0, Some(request))))
}

const CLIENT_LIST: Command = Command {
    name: "client|list",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    summary: "Lists all connections, or those that match every filter.",
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    cost: costs::ALL,
    tips: &["nondeterministic_output"],
    arguments: client_filter::OF_LIST,
    example: &[("CLIENT LIST TYPE foo", "(error) ERR Unknown client type 'foo'")],
    run: Run::Server(list),
    ..CONNECTION
};

fn list(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let Context { instance, session, .. } = context;
    let filter = Filter::of_list(request, instance)?;
    let now_ms = instance.clients.now_ms();
    let all = instance.clients.all();
    let meant = all.iter().filter(|client| filter.matches(client, session, now_ms));
    let lines: String = meant
        .map(|client| match client.id == session.client.id {
            // The client that asks is active now.
            true => describe(client, 0, Some(request)),
            false => describe(client, client.idle_s(now_ms), None),
        })
        .collect();
    Ok(reply.verbatim(&lines))
}

const CLIENT_KILL: Command = Command {
    name: "client|kill",
    arity: Some(Arity::AtLeast(3)),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    summary: "Closes the connection from an address, or those that match every filter.",
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    arguments: &[Argument::one_of(
        "filter",
        &[
            Argument::string("old-format").shown_as("ip:port").deprecated_since("2.8.12"),
            Argument::one_of("new-format", client_filter::OF_KILL).multiple(),
        ],
    )],
    example: &[
        ("CLIENT KILL ID 999999", "(integer) 0"),
        ("CLIENT KILL 1.2.3.4:5", "(error) ERR No such client"),
    ],
    run: Run::Server(kill),
    ..CONNECTION
};

fn kill(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    // The form of Redis 2.4: one address, this connection's own included, and an error if it is not there.
    let is_old_form = request.len() == 3;
    let filter = match is_old_form {
        true => Filter::of_address(request.at(2)),
        false => Filter::of_kill(request, context.instance)?,
    };
    let mut killed = 0;
    let now_ms = context.instance.clients.now_ms();
    for client in context.instance.clients.all() {
        if !filter.matches(&client, context.session, now_ms) {
            continue;
        }
        let is_own = Arc::ptr_eq(&client, &context.session.client);
        killed += 1;
        if is_own {
            // It gets its reply, the number of closed connections, before it is closed.
            context.session.is_closing = true;
        } else {
            client.ask_to_leave(Leaving::Now);
        }
    }
    match (is_old_form, killed) {
        (true, 0) => Err(Error::fixed("ERR No such client")),
        (true, _) => Ok(reply.ok()),
        (false, _) => Ok(reply.integer(killed)),
    }
}

/// The argument of commands that switch something on and off.
const ON_OR_OFF: Argument = Argument::one_of("enabled", &Argument::words(["ON", "OFF"]));

const CLIENT_NO_EVICT: Command = Command {
    name: "client|no-evict",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    summary: "Protects this connection from client eviction, or ends that protection.",
    since: "7.0.0",
    complexity: "O(1)",
    arguments: &[ON_OR_OFF],
    example: &[("CLIENT NO-EVICT on", "OK")],
    run: Run::Session(no_evict),
    ..CONNECTION
};

fn no_evict(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_on = args::on_or_off(request.at(2))?;
    session.show(|profile| profile.is_kept_from_eviction = is_on);
    Ok(reply.ok())
}

const CLIENT_NO_TOUCH: Command = Command {
    name: "client|no-touch",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Sets whether commands on this connection count as a use of their keys.",
    since: "7.2.0",
    complexity: "O(1)",
    arguments: &[ON_OR_OFF],
    example: &[("CLIENT NO-TOUCH on", "OK")],
    run: Run::Session(no_touch),
    ..CONNECTION
};

fn no_touch(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_on = args::on_or_off(request.at(2))?;
    session.leaves_keys_untouched = is_on;
    session.show(|_| {});
    Ok(reply.ok())
}

const CLIENT_REPLY: Command = Command {
    name: "client|reply",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Sets whether commands on this connection get replies: ON, OFF, or SKIP for the next one.",
    since: "3.2.0",
    complexity: "O(1)",
    arguments: &[Argument::one_of("action", &Argument::words(["ON", "OFF", "SKIP"]))],
    example: &[("CLIENT REPLY ON", "OK")],
    run: Run::Session(reply_mode),
    ..CONNECTION
};

fn reply_mode(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let mode = request.at(2);
    session.replies = match session.replies {
        _ if is_word(mode, "on") => Replies::On,
        _ if is_word(mode, "off") => Replies::Off,
        Replies::Off if is_word(mode, "skip") => Replies::Off,
        _ if is_word(mode, "skip") => Replies::SkipNext,
        _ => return Err(Error::SYNTAX),
    };
    // The reply is for a client that has turned replies on; all others get none.
    Ok(reply.ok())
}

const CLIENT_HELP: Command = Command {
    categories: Categories::CONNECTION,
    group: Group::CONNECTION,
    ..Command::help("client|help", "5.0.0", || &CLIENT)
};

const CLIENT_CAPA: Command = Command {
    name: "client|capa",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY),
    summary: "Declares capabilities of the client. Only filters use them: there are no redirects.",
    since: "8.0.0",
    complexity: "O(1)",
    arguments: &[Argument::string("capability").multiple()],
    example: &[("CLIENT CAPA redirect", "OK")],
    run: Run::Session(capa),
    ..CONNECTION
};

fn capa(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.from(2).any(|capability| is_word(capability, "redirect")) {
        session.show(|profile| profile.can_be_redirected = true);
    }
    Ok(reply.ok())
}

const CLIENT_IMPORT_SOURCE: Command = Command {
    name: "client|import-source",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Marks the connection as an import source. Always fails: the server never imports.",
    since: "8.1.0",
    complexity: "O(1)",
    arguments: &[ON_OR_OFF],
    example: &[("CLIENT IMPORT-SOURCE on", "(error) ERR Server is not in import mode")],
    run: Run::Session(import_source),
    ..CONNECTION
};

fn import_source(_: &mut Session, _: Request<'_>, _: Reply<'_>) -> Result {
    Err(Error::fixed("ERR Server is not in import mode"))
}
