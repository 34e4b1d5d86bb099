//! CLIENT: what a connection tells about itself, and who else is there.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::acl::{self, User, Users};
use crate::clients::{Address, Client, Leaving};
use crate::excerpt::excerpt;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};
use crate::session::{Replies, Session};

use super::args::{self, Options, is_word};
use super::error::Error;
use super::facts::{Argument, Arity, Categories, Command, Context, Flags, Group, Result, Run};
use super::tracking;
use super::waiting;

pub(super) const COMMANDS: &[Command] = &[CLIENT];

const CLIENT: Command = Command {
    name: "client",
    arity: Arity::AtLeast(2),
    group: Group::Connection,
    summary: "Everything about connections.",
    since: "2.4.0",
    complexity: "Depends on subcommand.",
    subcommands: &[
        tracking::CLIENT_CACHING,
        CLIENT_CAPA,
        CLIENT_GETNAME,
        tracking::CLIENT_GETREDIR,
        CLIENT_HELP,
        CLIENT_ID,
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
    summary: "Tells the number of this connection, which no other has or had.",
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
    summary: "Tells the name of this connection.",
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
    summary: "Names this connection, for those who list them.",
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

/// Names a connection; an empty name takes it away.
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
    summary: "Tells which library this connection is made by.",
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
    summary: "Describes this connection.",
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
    summary: "Describes all connections, or some.",
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::one_of(
            "normal_master_replica_pubsub",
            &[
                Argument::pure_token("normal", "NORMAL"),
                Argument::pure_token("master", "MASTER"),
                Argument::pure_token("replica", "REPLICA"),
                Argument::pure_token("pubsub", "PUBSUB"),
            ],
        )
        .token("TYPE")
        .since("5.0.0")
        .optional(),
        Argument::block("id", &[Argument::integer("client-id").multiple()])
            .token("ID")
            .since("6.2.0")
            .optional(),
    ],
    example: &[("CLIENT LIST TYPE foo", "(error) ERR Unknown client type 'foo'")],
    run: Run::Server(list),
    ..Command::DEFAULTS
};

fn list(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let filter = parse_list_filter(request)?;
    let Context { instance, session, .. } = context;
    let now_ms = instance.clients.now_ms();
    let all = instance.clients.all();
    let meant = all.iter().filter(|client| filter.matches(client));
    let lines: String = meant
        .map(|client| match client.id == session.client.id {
            // The client that asks is not idle.
            true => describe(client, 0, Some(request)),
            false => describe(client, client.idle_s(now_ms), None),
        })
        .collect();
    Ok(reply.verbatim(&lines))
}

fn parse_list_filter(request: Request<'_>) -> Result<Filter<'_>> {
    let mut filter = Filter::default();
    match request.get(2) {
        None => {}
        Some(option) if is_word(option, "type") && request.len() == 4 => {
            filter.kind = Some(Kind::parse(request.at(3))?);
        }
        Some(option) if is_word(option, "id") && request.len() > 3 => {
            for id in request.from(3) {
                let id = parse_integer(id).ok_or(Error::fixed("ERR Invalid client ID"))?;
                filter.ids.get_or_insert_default().extend(u64::try_from(id));
            }
        }
        Some(_) => return Err(Error::SYNTAX),
    }
    Ok(filter)
}

const CLIENT_KILL: Command = Command {
    name: "client|kill",
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Closes connections: that from an address, or all that match every filter.",
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    arguments: &[Argument::one_of(
        "filter",
        &[
            Argument::string("ip:port").deprecated_since("2.8.12"),
            Argument::one_of(
                "new-format",
                &[
                    Argument::integer("client-id").token("ID").since("2.8.12").optional(),
                    Argument::one_of(
                        "normal_master_slave_pubsub",
                        &[
                            Argument::pure_token("normal", "NORMAL"),
                            Argument::pure_token("master", "MASTER").since("3.2.0"),
                            Argument::pure_token("slave", "SLAVE"),
                            Argument::pure_token("replica", "REPLICA").since("5.0.0"),
                            Argument::pure_token("pubsub", "PUBSUB"),
                        ],
                    )
                    .token("TYPE")
                    .since("2.8.12")
                    .optional(),
                    Argument::string("username").token("USER").optional(),
                    Argument::string("ip:port").token("ADDR").optional(),
                    Argument::string("ip:port").token("LADDR").since("6.2.0").optional(),
                    Argument::string("yes/no").token("SKIPME").optional(),
                    Argument::integer("maxage").token("MAXAGE").since("7.4.0").optional(),
                ],
            )
            .multiple(),
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
    let filter = if is_old_form {
        Filter { address: Some(request.at(2)), includes_own: true, ..Filter::default() }
    } else {
        parse_kill_filters(request, &context.instance.users)?
    };
    let mut killed = 0;
    for client in context.instance.clients.all() {
        let is_own = Arc::ptr_eq(&client, &context.session.client);
        if !filter.matches(&client) || (is_own && !filter.includes_own) {
            continue;
        }
        killed += 1;
        if is_own {
            // It is told how many went with it.
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

fn parse_kill_filters<'a>(request: Request<'a>, users: &Users) -> Result<Filter<'a>> {
    let mut filter = Filter::default();
    let mut options = Options::new(request, 2);
    while let Some(option) = options.next() {
        let value = options.value()?;
        match option {
            _ if is_word(option, "id") => {
                let id = parse_integer(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                filter.ids = Some(vec![id.ok_or(Error::fixed("ERR client-id should be greater than 0"))?]);
            }
            _ if is_word(option, "type") => filter.kind = Some(Kind::parse(value)?),
            _ if is_word(option, "addr") => filter.address = Some(value),
            _ if is_word(option, "laddr") => filter.local_address = Some(value),
            _ if is_word(option, "user") => {
                let unknown = || Error::quoting("ERR No such user '", value, "'");
                filter.user = Some(users.get(value).ok_or_else(unknown)?);
            }
            _ if is_word(option, "maxage") => {
                let no_integer = Error::fixed("ERR maxage is not an integer or out of range");
                let seconds = u64::try_from(parse_integer(value).ok_or(no_integer)?).unwrap_or(0);
                let too_low = Error::fixed("ERR maxage should be greater than 0");
                filter.age_s_min = Some(seconds).filter(|seconds| *seconds > 0);
                filter.age_s_min.ok_or(too_low)?;
            }
            _ if is_word(option, "skipme") && is_word(value, "yes") => filter.includes_own = false,
            _ if is_word(option, "skipme") && is_word(value, "no") => filter.includes_own = true,
            _ => return Err(Error::SYNTAX),
        }
    }
    Ok(filter)
}

/// Which clients are meant: those that everything given here applies to.
#[derive(Default)]
struct Filter<'a> {
    ids: Option<Vec<u64>>,
    kind: Option<Kind>,
    user: Option<Arc<User>>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    age_s_min: Option<u64>,
    includes_own: bool,
}

/// What a client is to the server. There are no replicas, and nobody subscribes, so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Primary,
    Replica,
    Subscriber,
}

impl Kind {
    fn of(client: &Client) -> Kind {
        if client.is_listening() { Kind::Subscriber } else { Kind::Normal }
    }

    fn parse(word: &[u8]) -> Result<Kind> {
        match word {
            _ if is_word(word, "normal") => Ok(Kind::Normal),
            _ if is_word(word, "master") => Ok(Kind::Primary),
            _ if is_word(word, "slave") || is_word(word, "replica") => Ok(Kind::Replica),
            _ if is_word(word, "pubsub") => Ok(Kind::Subscriber),
            _ => Err(Error::quoting("ERR Unknown client type '", word, "'")),
        }
    }
}

impl Filter<'_> {
    fn matches(&self, client: &Client) -> bool {
        let is_user = |user| client.profile.lock().user.as_ref().is_some_and(|own| Arc::ptr_eq(own, user));
        self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && self.user.as_ref().is_none_or(is_user)
            && self.kind.is_none_or(|kind| kind == Kind::of(client))
            && self.address.is_none_or(|address| address == client.address.to_string().as_bytes())
            && self.age_s_min.is_none_or(|least| client.connected_at.elapsed().as_secs() >= least)
            && self.local_address.is_none_or(|address| address == client.local_address.to_string().as_bytes())
    }
}

/// One line of CLIENT LIST, with the fields of Redis 7.2 in its order, for a client that has done nothing for
/// so many seconds, or sends the request which is being executed.
fn describe(client: &Client, idle_s: u64, request: Option<Request<'_>>) -> String {
    line(client, idle_s, request, |text| String::from_utf8_lossy(text).into_owned())
}

/// The same without its end, and with long names cut, for those who keep it.
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
    let [channels, patterns, shard_channels] = profile.state.subscriptions;
    let (mut input, output) = (client.footprint.input(), client.output());
    let mut memory_bytes = client.footprint.bytes();
    if let Some(request) = request {
        // A connection shows nothing of a request that is executed as soon as it is there.
        input.query_bytes = request.bytes() + "\r\n".len();
        input.argument_bytes = request.from(0).map(<[u8]>::len).sum();
        memory_bytes += input.query_bytes + input.argument_bytes;
    }
    // Redis keeps so much in a buffer that each client has, and only what is more in a list.
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

const CLIENT_NO_EVICT: Command = Command {
    name: "client|no-evict",
    arity: Arity::Exactly(3),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::Connection,
    summary: "Keeps this connection when clients are evicted to save memory.",
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
    summary: "Keeps this connection's commands from counting as use of their keys.",
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
    summary: "Chooses whether commands are answered: all, none, or all but the next.",
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
    // Only the one who wants replies reads this one.
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
    summary: "Says what the client can do. Nothing here depends on it: there are no replicas that redirect.",
    since: "8.0.0",
    complexity: "O(1)",
    arguments: &[Argument::string("capability").multiple()],
    example: &[("CLIENT CAPA redirect", "OK")],
    run: Run::Session(capa),
    ..Command::DEFAULTS
};

fn capa(_: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.ok())
}
