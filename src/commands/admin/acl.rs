//! ACL: users and their permissions.

use std::sync::Arc;

use redis_protocol::resp3::types::OwnedFrame;

use crate::acl::log::{Entry, Reason};
use crate::acl::{Access, Catalog, Categories, Deed, Denial, Grants, Refused, Selector, User};
use crate::clients::{Client, Leaving};
use crate::pubsub::ChannelKind;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, tree};
use crate::session::Session;

use crate::commands::args::{self, is_word};
use crate::commands::error::Error;
use crate::commands::execution::permission::{self, judge, object_of};
use crate::commands::facts::lookup::{Registered, find, resolve};
use crate::commands::facts::{Argument, Command, Context, Flags, Group, Reach, Result, Run, Secrets};
use crate::commands::{costs, unsupported};

pub(in crate::commands) const COMMANDS: &[Command] = &[ACL];

/// The facts that most commands of this file share.
const SERVER: Command = Command {
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::SERVER,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const ACL: Command = Command {
    name: "acl",
    group: Group::SERVER,
    summary: "Manages users and their permissions.",
    since: "6.0.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[
        ACL_CAT,
        ACL_DELUSER,
        ACL_DRYRUN,
        ACL_GENPASS,
        ACL_GETUSER,
        ACL_HELP,
        ACL_LIST,
        ACL_LOAD,
        ACL_LOG,
        ACL_SAVE,
        ACL_SETUSER,
        ACL_USERS,
        ACL_WHOAMI,
    ],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const ACL_SETUSER: Command = Command {
    name: "acl|setuser",
    summary: "Creates or changes a user by rules; if one rule is wrong, none is applied.",
    since: "6.0.0",
    complexity: "O(N). Where N is the number of rules provided.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::string("username"), Argument::string("rule").optional().multiple()],
    example: &[
        ("ACL SETUSER alice on nopass ~mine:* -@all +get", "OK"),
        ("ACL SETUSER alice nosuch", "(error) ERR Error in ACL SETUSER modifier 'nosuch': Syntax error"),
    ],
    secrets: Secrets::At(|request| (2..request.len()).collect()),
    reach: Reach::Process,
    run: Run::Server(set_user),
    ..SERVER
};

fn set_user(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    /// Where the rules begin.
    const FIRST: usize = 3;
    let instance = context.instance;
    let refuse = |refused| match refused {
        Refused::Name => Error::fixed("ERR Usernames can't contain spaces or null characters"),
        Refused::Unclosed(number) => {
            let before = "ERR Unmatched parenthesis in acl selector starting at '";
            Error::quoting(before, request.at(FIRST + number), "'.")
        }
        Refused::Rule(rule, mistake) => {
            Error::quoting("ERR Error in ACL SETUSER modifier '", &rule, &format!("': {mistake}"))
        }
    };
    let all_channels = instance.gives_all_channels();
    instance.users.set(request.at(2), request.from(FIRST), all_channels).map_err(refuse)?;
    close_listeners(context);
    Ok(reply.ok())
}

/// Closes the connections that listen to a channel which their user may listen to no longer.
fn close_listeners(context: &mut Context<'_, '_>) {
    let is_refused = |kind, name: &[u8], client: &Client| {
        let user = client.profile.lock().user.clone();
        user.is_some_and(|user| {
            !permission::check_channels(&user.grants(), std::iter::once(name), kind == ChannelKind::Pattern)
        })
    };
    let sandboxes = context.instance.other_sandboxes();
    let instances = std::iter::once(context.instance).chain(sandboxes.iter().map(|sandbox| &**sandbox));
    for client in instances.flat_map(|instance| instance.pubsub.listeners_refused(is_refused)) {
        if Arc::ptr_eq(&client, &context.session.client) {
            context.session.is_closing = true;
        } else {
            // However much it has not taken yet.
            client.ask_to_leave(Leaving::Now);
        }
    }
}

const ACL_DELUSER: Command = Command {
    name: "acl|deluser",
    summary: "Deletes users and closes their connections.",
    since: "6.0.0",
    complexity: "O(1) amortized time considering the typical user.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::string("username").multiple()],
    secrets: Secrets::At(|request| (2..request.len()).collect()),
    example: &[
        ("ACL SETUSER bob", "OK"),
        ("ACL DELUSER bob nosuchuser", "(integer) 1"),
        ("ACL DELUSER default", "(error) ERR The 'default' user cannot be removed"),
    ],
    reach: Reach::Process,
    run: Run::Server(remove_users),
    ..SERVER
};

fn remove_users(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.from(2).any(|name| name == crate::acl::DEFAULT) {
        return Err(Error::fixed("ERR The 'default' user cannot be removed"));
    }
    let removed: Vec<_> = request.from(2).filter_map(|name| context.instance.users.remove(name)).collect();
    close_clients(context, &removed);
    Ok(reply.count(removed.len()))
}

/// Closes the connections of removed users; this client gets its reply first.
fn close_clients(context: &mut Context<'_, '_>, removed: &[Arc<User>]) {
    let sandboxes = context.instance.other_sandboxes();
    let elsewhere = sandboxes.iter().flat_map(|sandbox| sandbox.clients.all());
    for client in context.instance.clients.all().into_iter().chain(elsewhere) {
        let user = client.profile.lock().user.clone();
        if !user.is_some_and(|user| removed.iter().any(|removed| Arc::ptr_eq(removed, &user))) {
            continue;
        }
        if Arc::ptr_eq(&client, &context.session.client) {
            context.session.lock_out(&context.instance.users);
            context.session.is_closing = true;
        } else {
            client.ask_to_leave(Leaving::Now);
        }
    }
}

const ACL_GETUSER: Command = Command {
    name: "acl|getuser",
    summary: "Returns the rules of a user.",
    since: "6.0.0",
    complexity: "O(N). Where N is the number of password, command and pattern rules that the user has.",
    cost: costs::ALL,
    arguments: &[Argument::string("username")],
    secrets: Secrets::At(|request| (2..request.len()).collect()),
    example: &[("ACL GETUSER nosuchuser", "(nil)")],
    reach: Reach::Process,
    run: Run::Server(get_user),
    ..SERVER
};

fn get_user(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let Some(user) = context.instance.users.get(request.at(2)) else { return Ok(reply.nil()) };
    let frame = describe_user(&user.grants());
    Ok(reply.tree(&frame))
}

fn describe_user(grants: &Grants) -> OwnedFrame {
    let passwords = grants.passwords().iter().map(|hash| tree::bulk(hash.as_bytes()));
    let beginning =
        [("flags", tree::set_of(grants.flags().map(tree::bulk))), ("passwords", tree::array(passwords))];
    let selectors = grants.selectors.iter().map(|selector| tree::map(describe_selector(selector)));
    let end = [("selectors", tree::array(selectors))];
    tree::map(beginning.into_iter().chain(describe_selector(&grants.root)).chain(end))
}

fn describe_selector(selector: &Selector) -> [(&'static str, OwnedFrame); 3] {
    [
        ("commands", tree::bulk(selector.describe_commands())),
        ("keys", tree::bulk(selector.describe_keys())),
        ("channels", tree::bulk(selector.describe_channels())),
    ]
}

const ACL_LIST: Command = Command {
    name: "acl|list",
    summary: "Lists all users with their rules.",
    since: "6.0.0",
    complexity: "O(N). Where N is the number of configured users.",
    cost: costs::ALL,
    reach: Reach::Process,
    run: Run::Server(list),
    ..SERVER
};

fn list(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let lines = context.instance.users.describe();
    Ok(reply.array_of(lines.iter(), |line, reply| reply.bulk(line)))
}

const ACL_USERS: Command = Command {
    name: "acl|users",
    summary: "Lists the names of all users.",
    since: "6.0.0",
    complexity: "O(N). Where N is the number of configured users.",
    reach: Reach::Process,
    run: Run::Server(users),
    ..SERVER
};

fn users(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let users = context.instance.users.all();
    Ok(reply.array_of(users.iter(), |user, reply| reply.bulk(user.name())))
}

const ACL_WHOAMI: Command = Command {
    name: "acl|whoami",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Returns the user name of this connection.",
    since: "6.0.0",
    complexity: "O(1)",
    example: &[("ACL WHOAMI", "\"default\"")],
    run: Run::Session(whoami),
    ..SERVER
};

fn whoami(session: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.bulk(session.user.name()))
}

const ACL_CAT: Command = Command {
    name: "acl|cat",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Lists the ACL categories, or the commands in one.",
    since: "6.0.0",
    complexity: "O(1) since the categories and commands are a fixed set.",
    arguments: &[Argument::string("category").optional()],
    example: &[("ACL CAT nosuch", "(error) ERR Unknown category 'nosuch'")],
    run: Run::Server(cat),
    ..SERVER
};

fn cat(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let Some(category) = request.get(2) else {
        return Ok(reply.array_of(Categories::NAMES.iter(), |name, reply| reply.bulk(&name.as_bytes()[1..])));
    };
    Error::check_longest(request, 3)?;
    let catalog = context.instance.users.catalog();
    let Some(names) = catalog.names_of_category(category) else {
        const QUOTED_BYTES_MAX: usize = 128;
        let quoted = &category[..category.len().min(QUOTED_BYTES_MAX)];
        return Err(Error::quoting("ERR Unknown category '", quoted, "'"));
    };
    let names: Vec<_> = names.collect();
    Ok(reply.array_of(names.into_iter(), |name, reply| reply.bulk(name.as_bytes())))
}

const ACL_GENPASS: Command = Command {
    name: "acl|genpass",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    summary: "Returns a secure random password in hexadecimal: 256 bits, or as many as requested.",
    since: "6.0.0",
    complexity: "O(1)",
    arguments: &[Argument::integer("bits").optional()],
    example: &[(
        "ACL GENPASS 0",
        "(error) ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
    )],
    run: Run::Session(generate_password),
    ..SERVER
};

fn generate_password(_: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    const BITS: i64 = 256;
    const BITS_MAX: i64 = 4096;
    Error::check_longest(request, 3)?;
    let bits = request.get(2).map_or(Ok(BITS), args::integer)?;
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(Error::text(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number \
             up to {BITS_MAX}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut random).map_err(|_| Error::fixed("ERR the system has no random numbers to give"))?;
    let mut password: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    password.truncate(digits);
    Ok(reply.bulk(password.as_bytes()))
}

const ACL_LOG: Command = Command {
    name: "acl|log",
    summary: "Lists recent denials by the ACL: ten, or a given number; RESET removes them.",
    since: "6.0.0",
    complexity: "O(N) with N being the number of entries shown.",
    arguments: &[
        Argument::one_of("operation", &[Argument::integer("count"), Argument::word("RESET")]).optional()
    ],
    example: &[("ACL LOG RESET", "OK"), ("ACL LOG", "[]")],
    run: Run::Server(log),
    ..SERVER
};

fn log(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    const COUNT: i64 = 10;
    Error::check_longest(request, 3)?;
    let instance = context.instance;
    let count = match request.get(2) {
        None => COUNT,
        Some(word) if is_word(word, "reset") => {
            instance.acl_log.clear();
            return Ok(reply.ok());
        }
        Some(count) => parse_integer(count).ok_or(Error::NOT_AN_INTEGER)?,
    };
    let now_ms = instance.clock.now_ms();
    let newest = instance.acl_log.newest(usize::try_from(count).unwrap_or(0));
    Ok(reply.tree(&tree::array(newest.into_iter().map(|entry| describe_entry(&entry, now_ms)))))
}

/// The fields of Redis 7.2 in its order.
fn describe_entry(entry: &Entry, now_ms: u64) -> OwnedFrame {
    let refusal = &entry.refusal;
    tree::map([
        ("count", tree::integer(entry.count as i64)),
        ("reason", tree::bulk(refusal.reason.name())),
        ("context", tree::bulk(refusal.context.name())),
        ("object", tree::bulk(&refusal.object)),
        ("username", tree::bulk(&refusal.username)),
        ("age-seconds", tree::double(now_ms.saturating_sub(refusal.at_ms) as f64 / 1000.0)),
        ("client-info", tree::bulk(&refusal.client)),
        ("entry-id", tree::integer(entry.id as i64)),
        ("timestamp-created", tree::integer(entry.created_ms as i64)),
        ("timestamp-last-updated", tree::integer(refusal.at_ms as i64)),
    ])
}

const ACL_DRYRUN: Command = Command {
    name: "acl|dryrun",
    summary: "Checks whether a user may run a command, without running it.",
    since: "7.0.0",
    complexity: "O(1).",
    arguments: &[
        Argument::string("username"),
        Argument::string("command"),
        Argument::string("arg").optional().multiple(),
    ],
    example: &[
        ("ACL SETUSER carol +get ~mine:*", "OK"),
        ("ACL DRYRUN carol get mine:1", "OK"),
        ("ACL DRYRUN carol get yours", "\"User carol has no permissions to access the 'yours' key\""),
        ("ACL DRYRUN carol set mine:1 x", "\"User carol has no permissions to run the 'set' command\""),
    ],
    secrets: Secrets::Of(3),
    reach: Reach::Process,
    run: Run::Server(dry_run),
    ..SERVER
};

fn dry_run(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let name = request.at(2);
    let unknown_user = || Error::quoting("ERR User '", name, "' not found");
    let user = context.instance.users.get(name).ok_or_else(unknown_user)?;
    let request = request.without_first(3);
    let found = find(&context.instance.names, request.name())
        .and_then(|registered| resolve(registered, request).ok());
    let Some((reason, object)) = (match found {
        Some(registered) => dry_run_command(&user.grants(), registered, request)?,
        None => dry_run_absent(&user.grants(), context.instance.users.catalog(), request)?,
    }) else {
        return Ok(reply.ok());
    };
    let (before, after): (&[u8], &[u8]) = match reason {
        Reason::Command | Reason::Auth => (b"run the '", b"' command"),
        Reason::Key => (b"access the '", b"' key"),
        Reason::Channel => (b"access the '", b"' channel"),
    };
    Ok(reply.bulk(&[b"User ", name, b" has no permissions to ", before, object, after].concat()))
}

/// The kind and the name of what the user may not use, if anything.
type Denied<'a> = Option<(Reason, &'a [u8])>;

fn dry_run_command<'a>(grants: &Grants, registered: &Registered, request: Request<'a>) -> Result<Denied<'a>> {
    let command = registered.command;
    if !command.arity().allows(request.len()) {
        return Err(Error::wrong_arity(command.name));
    }
    let denial = judge(grants, registered, request).err();
    Ok(denial.map(|denial| object_of(denial, command, request)))
}

/// The same for a command of another server.
fn dry_run_absent<'a>(grants: &Grants, catalog: &Catalog, request: Request<'a>) -> Result<Denied<'a>> {
    let unknown = || Error::quoting("ERR Command '", request.name(), "' not found");
    let absent = unsupported::find(request).ok_or_else(unknown)?;
    if !absent.arity.allows(request.len()) {
        return Err(Error::wrong_arity(absent.name));
    }
    let access = Access { reads: true, writes: true };
    let key = absent.key_of(request).map(|key| (key, access));
    let denial = grants.check(&Deed {
        command: catalog.find(absent.name.as_bytes()),
        first_argument: request.get(1),
        keys: key.into_iter(),
        channels: std::iter::empty(),
        channels_are_patterns: false,
    });
    Ok(denial.err().map(|denial| match denial {
        Denial::Command => (Reason::Command, absent.name.as_bytes()),
        Denial::Key(_) => (Reason::Key, key.map_or(&b""[..], |(key, _)| key)),
        Denial::Channel(_) => (Reason::Channel, &b""[..]),
    }))
}

const ACL_LOAD: Command = Command {
    name: "acl|load",
    summary: "Reloads all users from the ACL file; if the file has an error, no user is changed.",
    since: "6.0.0",
    complexity: "O(N). Where N is the number of configured users.",
    reach: Reach::Process,
    run: Run::Server(load),
    ..SERVER
};

fn load(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    context.instance.acl_file().ok_or(NO_FILE)?;
    let removed = context.instance.load_users().map_err(|wrong| Error::text(format!("ERR {wrong}")))?;
    close_clients(context, &removed);
    close_listeners(context);
    Ok(reply.ok())
}

/// ACL LOAD or SAVE where there is no `aclfile`.
const NO_FILE: Error = Error::fixed(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
     SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in \
     order to store users in the Redis configuration.",
);

const ACL_SAVE: Command = Command {
    name: "acl|save",
    summary: "Saves the current users to the ACL file.",
    since: "6.0.0",
    complexity: "O(N). Where N is the number of configured users.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    reach: Reach::Process,
    run: Run::Server(save),
    ..SERVER
};

fn save(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let file = context.instance.acl_file().ok_or(NO_FILE)?;
    context.instance.users.save(&file.path).map_err(|error| {
        tracing::warn!("Writing ACL file for ACL SAVE: {error}");
        Error::fixed(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more \
             information",
        )
    })?;
    Ok(reply.ok())
}

const ACL_HELP: Command = Command::help("acl|help", "6.0.0", || &ACL);
