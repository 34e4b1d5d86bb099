//! The connection: its user, its protocol and its database.

use crate::acl;
use crate::acl::Proof;
use crate::acl::log::Reason;
use crate::resp::number::parse_integer;
use crate::resp::{Protocol, Reply, Request, tree};
use crate::session::{Session, Wait};

use super::client;
use super::tracking;
use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::origin::Origin;
use crate::commands::execution::permission;
use crate::commands::facts::{
    Argument, Arity, Categories, Command, Context, Deprecated, Flags, Group, Result, Run, Secrets, Traits,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[AUTH, ECHO, HELLO, PING, QUIT, RESET, SELECT];

/// The facts that most commands of this file share.
const CONNECTION: Command = Command {
    categories: Categories::CONNECTION,
    group: Group::CONNECTION,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const HELLO: Command = Command {
    name: "hello",
    flags: Flags::NOSCRIPT
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::FAST)
        .and(Flags::NO_AUTH)
        .and(Flags::ALLOW_BUSY),
    traits: Traits::NEVER_STRUCK,
    summary: "Sets the protocol version; can also authenticate and name the connection.",
    since: "6.0.0",
    complexity: "O(1)",
    arguments: &[Argument::block(
        "arguments",
        &[
            Argument::integer("protover"),
            Argument::block("auth", &[Argument::string("username"), Argument::string("password")])
                .token("AUTH")
                .optional(),
            Argument::string("clientname").token("SETNAME").optional(),
        ],
    )
    .optional()],
    example: &[("HELLO 4", "(error) NOPROTO unsupported protocol version")],
    secrets: Secrets::At(hello_secrets),
    run: Run::Server(hello),
    ..CONNECTION
};

fn hello(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let greeting = Greeting::parse(request, context.session.protocol)?;
    if let Some((user, password)) = greeting.credentials {
        authenticate(context, request, user, password)?;
    }
    if !context.session.is_authenticated {
        return Err(Error::HELLO_NOT_AUTHENTICATED);
    }
    if let Some(name) = greeting.name {
        client::set_name(context.session, name)?;
    }
    context.session.protocol = greeting.protocol;
    context.session.show(|_| {});
    Ok(reply.in_protocol(greeting.protocol).tree(&tree::map([
        ("server", tree::bulk("redis")),
        ("version", tree::bulk(context.instance.config.redis_version.get())),
        ("proto", tree::integer(greeting.protocol.number())),
        ("id", tree::integer(context.session.client.id as i64)),
        ("mode", tree::bulk("standalone")),
        ("role", tree::bulk("master")),
        ("modules", tree::array([])),
    ])))
}

/// The arguments of HELLO.
struct Greeting<'a> {
    protocol: Protocol,
    credentials: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Greeting<'a> {
    fn parse(request: Request<'a>, current: Protocol) -> Result<Greeting<'a>> {
        let mut greeting = Greeting { protocol: current, credentials: None, name: None };
        let Some(version) = request.get(1) else { return Ok(greeting) };
        greeting.protocol = match parse_integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(Error::fixed("NOPROTO unsupported protocol version")),
            None => return Err(Error::fixed("ERR Protocol version is not an integer or out of range")),
        };
        for option in hello_options(request) {
            match option {
                HelloOption::Auth(at) => {
                    greeting.credentials = Some((request.at(at + 1), request.at(at + 2)));
                }
                HelloOption::SetName(at) => greeting.name = Some(request.at(at + 1)),
                HelloOption::Wrong(at) => {
                    return Err(Error::quoting("ERR Syntax error in HELLO option '", request.at(at), "'"));
                }
            }
        }
        Ok(greeting)
    }
}

/// An option of HELLO, with its place.
enum HelloOption {
    /// AUTH, before the name of a user and a password.
    Auth(usize),
    /// SETNAME, before a name.
    SetName(usize),
    /// A word that is no option, or lacks its arguments.
    Wrong(usize),
}

/// The options of HELLO, up to the first that is wrong.
fn hello_options(request: Request<'_>) -> impl Iterator<Item = HelloOption> + use<'_> {
    const FIRST: usize = 2;
    let mut next = FIRST;
    std::iter::from_fn(move || {
        let (at, option) = (next, request.get(next)?);
        let following = request.len() - at - 1;
        let (option, arguments) = match option {
            _ if is_word(option, "auth") && following >= 2 => (HelloOption::Auth(at), 2),
            _ if is_word(option, "setname") && following >= 1 => (HelloOption::SetName(at), 1),
            _ => (HelloOption::Wrong(at), following),
        };
        next += 1 + arguments;
        Some(option)
    })
}

/// After what is wrong anything may be a password.
fn hello_secrets(request: Request<'_>) -> Vec<usize> {
    let secrets = hello_options(request).flat_map(|option| match option {
        HelloOption::Auth(at) => at + 1..at + 3,
        HelloOption::SetName(_) => 0..0,
        HelloOption::Wrong(at) => at..request.len(),
    });
    secrets.collect()
}

const AUTH: Command = Command {
    name: "auth",
    flags: Flags::NOSCRIPT
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::FAST)
        .and(Flags::NO_AUTH)
        .and(Flags::ALLOW_BUSY),
    traits: Traits::NEVER_STRUCK,
    summary: "Authenticates the connection.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of passwords defined for the user",
    arguments: &[Argument::string("username").since("6.0.0").optional(), Argument::string("password")],
    example: &[
        (
            "AUTH secret",
            "(error) ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        ),
        ("AUTH default secret", "OK"),
    ],
    secrets: Secrets::At(|request| (1..request.len()).collect()),
    run: Run::Server(auth),
    ..CONNECTION
};

fn auth(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let instance = context.instance;
    let (user, password) = match request.len() {
        2 if instance.users.default_user().grants().needs_no_password
            && !instance.may_be_token(request.at(1)) =>
        {
            return Err(Error::NO_PASSWORD_SET);
        }
        2 => (acl::DEFAULT, request.at(1)),
        3 => (request.at(1), request.at(2)),
        _ => return Err(Error::SYNTAX),
    };
    authenticate(context, request, user, password)?;
    Ok(reply.ok())
}

/// Authenticates a client by the password of a user, or by a token in its place; ACL LOG records a failure.
fn authenticate(
    context: &mut Context<'_, '_>,
    request: Request<'_>,
    user: &[u8],
    password: &[u8],
) -> Result<()> {
    let Context { instance, session, .. } = context;
    let judged = instance.judge_token(user, password, &session.client.address);
    let proof = match judged {
        None => Proof::Password(password),
        Some(None) => Proof::OwnPassword(password),
        Some(Some(_)) => Proof::Token,
    };
    session.authenticate(&instance.users, user, proof).map_err(|_| {
        let object = request.name();
        let context = permission::context(Origin::of(session));
        permission::note(instance, session, Reason::Auth, context, user, object);
        Error::WRONG_PASSWORD
    })?;
    session.client.set_login_end(judged.flatten());
    Ok(())
}

const PING: Command = Command {
    name: "ping",
    flags: Flags::FAST,
    traits: Traits::LISTENING.and(Traits::HEALTH_CHECK),
    summary: "Returns PONG, or the given message, to show that the connection works.",
    since: "1.0.0",
    complexity: "O(1)",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[Argument::string("message").optional()],
    example: &[("PING", "PONG"), ("PING \"hello world\"", "\"hello world\"")],
    run: Run::Session(ping),
    ..CONNECTION
};

fn ping(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_listening = !session.subscriptions.is_empty() && session.protocol == Protocol::Resp2;
    match request.len() {
        // So that clients can distinguish it from a message.
        1 | 2 if is_listening => {
            let message = request.get(1).unwrap_or(b"");
            Ok(reply.pair(|reply| reply.bulk(b"pong"), |reply| reply.bulk(message)))
        }
        1 => Ok(reply.simple("PONG")),
        2 => Ok(reply.bulk(request.at(1))),
        _ => Err(Error::wrong_arity("ping")),
    }
}

const ECHO: Command = Command {
    name: "echo",
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    summary: "Returns the given message.",
    since: "1.0.0",
    complexity: "O(1)",
    arguments: &[Argument::string("message")],
    example: &[("ECHO \"Hello World!\"", "\"Hello World!\"")],
    run: Run::Session(echo),
    ..CONNECTION
};

fn echo(_: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.bulk(request.at(1)))
}

const QUIT: Command = Command {
    name: "quit",
    arity: Some(Arity::AtLeast(1)),
    flags: Flags::NOSCRIPT
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::FAST)
        .and(Flags::NO_AUTH)
        .and(Flags::ALLOW_BUSY),
    traits: Traits::AT_ONCE.and(Traits::LISTENING).and(Traits::NEVER_STRUCK),
    summary: "Closes the connection after the replies to earlier commands.",
    since: "1.0.0",
    complexity: "O(1)",
    deprecated: Some(Deprecated { since: "7.2.0", replaced_by: "just closing the connection" }),
    example: &[("QUIT", "OK")],
    run: Run::Session(quit),
    ..CONNECTION
};

fn quit(session: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    session.is_closing = true;
    Ok(reply.ok())
}

const RESET: Command = Command {
    name: "reset",
    flags: Flags::NOSCRIPT
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::FAST)
        .and(Flags::NO_AUTH)
        .and(Flags::ALLOW_BUSY),
    traits: Traits::AT_ONCE.and(Traits::LISTENING).and(Traits::NEVER_STRUCK).and(Traits::LOGGED),
    summary: "Resets the connection to the state of a new one.",
    since: "6.2.0",
    complexity: "O(1)",
    example: &[("SELECT 1", "OK"), ("RESET", "RESET")],
    run: Run::Server(reset),
    ..CONNECTION
};

fn reset(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let Context { instance, session, .. } = context;
    instance.keyspace.unwatch(&mut session.watching);
    if let Some(lifeline) = session.client.known_lifeline() {
        instance.keyspace.cut(lifeline, 0, false);
    }
    instance.pubsub.leave(&session.client, &mut session.subscriptions);
    session.subscriptions_changed();
    tracking::end(instance, session);
    session.reset(&instance.users);
    if instance.first_sandbox().is_some() && session.watching.is_forgotten() {
        session.goes_to = 0;
        session.wait = Some(Wait::Move);
    }
    context.instance.clients.remove_monitor(&context.session.client);
    Ok(reply.simple("RESET"))
}

const SELECT: Command = Command {
    name: "select",
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    traits: Traits::LOGGED.and(Traits::PROVIDES).and(Traits::STAYS),
    summary: "Selects the database that later commands use.",
    since: "1.0.0",
    complexity: "O(1)",
    arguments: &[Argument::integer("index")],
    example: &[("SELECT 1", "OK"), ("SELECT 16", "(error) ERR DB index is out of range")],
    run: Run::Server(select),
    ..CONNECTION
};

fn select(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let number = usize::try_from(args::integer(request.at(1))?).map_err(|_| Error::NO_SUCH_DATABASE)?;
    let Context { instance, session, .. } = context;
    let number = match &instance.place {
        None => number,
        Some(place) => {
            let (sandbox, number) = place.all.find(number).ok_or(Error::NO_SUCH_DATABASE)?;
            if sandbox != place.number {
                may_go(session)?;
                session.goes_to = sandbox;
                session.wait = Some(Wait::Move);
            }
            number
        }
    };
    if number >= instance.keyspace.databases() {
        return Err(Error::NO_SUCH_DATABASE);
    }
    session.database = number;
    session.show(|_| {});
    Ok(reply.ok())
}

/// Whether a client may go to another sandbox: nothing of it would be left where it was.
fn may_go(session: &Session) -> Result<()> {
    let refused = match () {
        () if session.may_not_wait => "in a transaction or a script",
        () if !session.watching.is_forgotten() => "while the client watches keys",
        () if !session.subscriptions.is_empty() => "while the client listens to channels",
        () if session.tracking.is_some() => "while the client tracks keys",
        () if session.client.profile.lock().is_monitor => "while the client gets every command (MONITOR)",
        () if session.client.has_bound_locks() => "while locks are bound to the connection",
        () => return Ok(()),
    };
    Err(Error::text(format!("ERR SELECT of a database of another sandbox is refused {refused}")))
}
