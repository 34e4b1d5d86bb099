//! CLIENT: the settings of a connection, and the list of the others.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::acl;
use crate::clients::{Address, Client, Leaving, Profile};
use crate::commands::amounts;
use crate::excerpt::excerpt;
use crate::resp::{Reply, Request};
use crate::session::{Replies, Session};

use super::client_filter::{self, Filter};
use super::tracking;
use crate::commands::admin::waiting;
use crate::commands::args::{self, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Arity, Categories, Command, Context, Flags, Group, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[CLIENT];

const CLIENT: Command = Command {
    name: "client",
    arity: Arity::AtLeast(2),
    group: Group::Connection,
    summary: "Manages client connections.",
    since: "2.4.0",
    complexity: "Depends on subcommand.",
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
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Returns the ID of this connection, which is never used again.",
    since: "5.0.0",
    complexity: "O(1)",
    run: Run::Session(id),
    ..Command::DEFAULTS
};

fn id(session: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.integer(session.client.id as i64))
}

const CLIENT_GETNAME: Command = Command {
    name: "client|getname",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Returns the name of this connection.",
    since: "2.6.9",
    complexity: "O(1)",
    example: &[("CLIENT GETNAME", "(nil)"), ("CLIENT SETNAME me", "OK"), ("CLIENT GETNAME", "\"me\"")],
    run: Run::Session(get_name),
    ..Command::DEFAULTS
};

fn get_name(session: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    let name = session.client.profile.lock().name.clone();
    Ok(reply.bulk_or_nil(Some(name.as_slice()).filter(|name| !name.is_empty())))
}

const CLIENT_SETNAME: Command = Command {
    name: "client|setname",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Sets the name of this connection, shown by CLIENT LIST.",
    since: "2.6.9",
    complexity: "O(1)",
    arguments: &[Argument::string("connection-name")],
    example: &[("CLIENT SETNAME me", "OK")],
    run: Run::Session(set_name_command),
    ..Command::DEFAULTS
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
    arity: Arity::Exactly(4),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
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
    ..Command::DEFAULTS
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
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Returns the details of this connection.",
    since: "6.2.0",
    complexity: "O(1)",
    tips: &["nondeterministic_output"],
    run: Run::Session(info),
    ..Command::DEFAULTS
};

fn info(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    session.show(|_| {});
    Ok(reply.verbatim(&describe(&session.client, 0, Some(request))))
}

const CLIENT_LIST: Command = Command {
    name: "client|list",
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Lists all connections, or those that match every filter.",
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    reads_much: Some(amounts::all),
    tips: &["nondeterministic_output"],
    arguments: client_filter::OF_LIST,
    example: &[("CLIENT LIST TYPE foo", "(error) ERR Unknown client type 'foo'")],
    run: Run::Server(list),
    ..Command::DEFAULTS
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
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Closes the connection from an address, or those that match every filter.",
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    arguments: &[Argument::one_of(
        "filter",
        &[
            Argument::string("ip:port").deprecated_since("2.8.12"),
            Argument::one_of("new-format", client_filter::OF_KILL).multiple(),
        ],
    )],
    example: &[
        ("CLIENT KILL ID 999999", "(integer) 0"),
        ("CLIENT KILL 1.2.3.4:5", "(error) ERR No such client"),
    ],
    run: Run::Server(kill),
    ..Command::DEFAULTS
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

/// One line of CLIENT LIST, with the fields of Redis 7.2 in its order, for a client that has been idle for
/// `idle_s` seconds, or whose `request` is being executed.
fn describe(client: &Client, idle_s: u64, request: Option<Request<'_>>) -> String {
    line(client, idle_s, request, |text| String::from_utf8_lossy(text).into_owned())
}

/// The same without its end, and with long names cut, for logs and records.
pub fn describe_briefly(client: &Client) -> String {
    let mut line = line(client, 0, None, |text| String::from_utf8_lossy(&excerpt(text)).into_owned());
    line.truncate(line.trim_end().len());
    line
}

/// A line in which the client's names are as `text` makes them.
fn line(
    client: &Client,
    idle_s: u64,
    request: Option<Request<'_>>,
    text: impl Fn(&[u8]) -> String,
) -> String {
    let profile = client.profile.lock().clone();
    let flags = flags(client, &profile);
    let [channels, patterns, shard_channels] = profile.state.subscriptions;
    let (mut input, output) = (client.footprint.input(), client.output());
    let mut memory_bytes = client.footprint.bytes();
    if let Some(request) = request {
        // A connection shows nothing of a request that is executed as soon as it is there.
        input.query_bytes = request.bytes() + "\r\n".len();
        input.argument_bytes = request.from(0).map(<[u8]>::len).sum();
        memory_bytes += input.query_bytes + input.argument_bytes;
    }
    // Redis has a fixed buffer of this size for each client, and a list only for what exceeds it.
    let is_listed = output.bytes > Client::FREE_OUTPUT_BYTES;
    let (listed_pieces, listed_bytes) = if is_listed { (output.pieces, output.memory_bytes) } else { (0, 0) };
    let mut line = String::new();
    let _ = writeln!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={channels} \
         psub={patterns} ssub={shard_channels} multi={} qbuf={} qbuf-free={} argv-mem={} \
         multi-mem={} rbs=0 rbp=0 obl={} oll={listed_pieces} omem={listed_bytes} tot-mem={} events={} cmd={} \
         user={} redir={} resp={} lib-name={} lib-ver={}",
        client.id,
        client.address,
        client.local_address,
        client.descriptor,
        text(&profile.name),
        client.connected_at.elapsed().as_secs(),
        idle_s,
        profile.state.database,
        profile.state.queued.map_or(-1, |queued| queued as i64),
        input.query_bytes,
        input.query_free_bytes,
        input.argument_bytes,
        input.queued_bytes,
        output.bytes.min(Client::FREE_OUTPUT_BYTES),
        memory_bytes,
        if output.bytes > 0 { "rw" } else { "r" },
        profile.state.last_command,
        text(profile.user.as_ref().map_or(acl::DEFAULT, |user| user.name())),
        profile.tracking.map_or(-1, |tracked| tracked.redirect as i64),
        profile.state.protocol.number(),
        text(&profile.lib_name),
        text(&profile.lib_version),
    );
    line
}

/// The letters for a client's state in CLIENT LIST (`flags`).
pub(in crate::commands) fn flags(client: &Client, profile: &Profile) -> String {
    let mut flags = String::new();
    if profile.is_monitor {
        flags.push('O');
    }
    if profile.state.subscriptions != [0; 3] {
        flags.push('P');
    }
    if profile.state.queued.is_some() {
        flags.push('x');
    }
    if client.is_blocked() {
        flags.push('b');
    }
    if let Some(tracked) = profile.tracking {
        flags.push('t');
        flags.extend(tracked.is_broken.then_some('R'));
        flags.extend(tracked.has_prefixes.then_some('B'));
    }
    if matches!(client.address, Address::Unix(_)) {
        flags.push('U');
    }
    if profile.is_kept_from_eviction {
        flags.push('e');
    }
    if profile.state.leaves_keys_untouched {
        flags.push('T');
    }
    if flags.is_empty() {
        flags.push('N');
    }
    flags
}

const CLIENT_NO_EVICT: Command = Command {
    name: "client|no-evict",
    arity: Arity::Exactly(3),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Protects this connection from client eviction, or ends that protection.",
    since: "7.0.0",
    complexity: "O(1)",
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    example: &[("CLIENT NO-EVICT on", "OK")],
    run: Run::Session(no_evict),
    ..Command::DEFAULTS
};

fn no_evict(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_on = args::on_or_off(request.at(2))?;
    session.show(|profile| profile.is_kept_from_eviction = is_on);
    Ok(reply.ok())
}

const CLIENT_NO_TOUCH: Command = Command {
    name: "client|no-touch",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Sets whether commands on this connection count as a use of their keys.",
    since: "7.2.0",
    complexity: "O(1)",
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    example: &[("CLIENT NO-TOUCH on", "OK")],
    run: Run::Session(no_touch),
    ..Command::DEFAULTS
};

fn no_touch(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_on = args::on_or_off(request.at(2))?;
    session.leaves_keys_untouched = is_on;
    session.show(|_| {});
    Ok(reply.ok())
}

const CLIENT_REPLY: Command = Command {
    name: "client|reply",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Sets whether commands on this connection get replies: ON, OFF, or SKIP for the next one.",
    since: "3.2.0",
    complexity: "O(1)",
    arguments: &[Argument::one_of(
        "on_off_skip",
        &[
            Argument::pure_token("on", "ON"),
            Argument::pure_token("off", "OFF"),
            Argument::pure_token("skip", "SKIP"),
        ],
    )],
    example: &[("CLIENT REPLY ON", "OK")],
    run: Run::Session(reply_mode),
    ..Command::DEFAULTS
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
    group: Group::Connection,
    ..Command::help("client|help", "5.0.0", || &CLIENT)
};

const CLIENT_CAPA: Command = Command {
    name: "client|capa",
    arity: Arity::AtLeast(3),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Declares capabilities of the client. Only filters use them: there are no redirects.",
    since: "8.0.0",
    complexity: "O(1)",
    arguments: &[Argument::string("capability").multiple()],
    example: &[("CLIENT CAPA redirect", "OK")],
    run: Run::Session(capa),
    ..Command::DEFAULTS
};

fn capa(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.from(2).any(|capability| is_word(capability, "redirect")) {
        session.show(|profile| profile.can_be_redirected = true);
    }
    Ok(reply.ok())
}

const CLIENT_IMPORT_SOURCE: Command = Command {
    name: "client|import-source",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Marks the connection as an import source. Always fails: the server never imports.",
    since: "8.1.0",
    complexity: "O(1)",
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    example: &[("CLIENT IMPORT-SOURCE on", "(error) ERR Server is not in import mode")],
    run: Run::Session(import_source),
    ..Command::DEFAULTS
};

fn import_source(_: &mut Session, _: Request<'_>, _: Reply<'_>) -> Result {
    Err(Error::fixed("ERR Server is not in import mode"))
}
