//! Whether the user of a session may do what a request asks for.
//!
//! Users with all permissions never come here: [`admission`](super::admission) recognizes them by one look.
//! For all others, [`check`] judges each request, and each command of a transaction or a script. A client
//! that is refused gets the reason, and ACL LOG notes it.

use crate::acl::log::{Context, Reason, Refusal};
use crate::acl::{Access, Deed, Denial, Grants};
use crate::clients::description::describe_briefly;
use crate::config::{Choice, ENABLED_FOR};
use crate::instance::Instance;
use crate::resp::Request;
use crate::session::Session;

use super::origin::Origin;
use crate::commands::Command;
use crate::commands::error::Error;
use crate::commands::facts::lookup::{Registered, find, find_full, own_names};
use crate::commands::facts::{Context as Running, Flags, KeyFlags, Result};

/// Where a request comes from, as ACL LOG names it.
pub(crate) fn context(origin: Origin) -> Context {
    match origin {
        Origin::Request | Origin::Replay => Context::TopLevel,
        Origin::Queue | Origin::Transaction => Context::Multi,
        Origin::Script => Context::Lua,
    }
}

/// Judges a request of a session. Its command, and how many arguments that takes, have been checked already.
///
/// # Errors
///
/// If the client must authenticate first, or its user may not do that, which ACL LOG notes.
#[cold]
pub(crate) fn check(
    instance: &Instance,
    session: &Session,
    registered: &Registered,
    request: Request<'_>,
    origin: Origin,
) -> Result<()> {
    let command = registered.command;
    let may_be_anybody = command.flags.contains(Flags::NO_AUTH);
    let is_authenticated = session.is_authenticated || instance.users.admits_everybody();
    if !may_be_anybody && (!is_authenticated || session.user.is_removed()) {
        return Err(Error::NOT_AUTHENTICATED);
    }
    let judged = judge(&session.user.grants(), registered, request);
    let Err(denial) = judged else { return Ok(()) };
    let (reason, object) = object_of(denial, command, request);
    note(instance, session, reason, context(origin), session.user.name(), object);
    Err(refuse(reason, session.user.name(), command, origin))
}

/// Whether a session that has authenticated may run a request on its only key. If not, [`check`] says why.
#[inline(never)]
pub(crate) fn may_run(session: &Session, registered: &Registered, request: Request<'_>, key: &[u8]) -> bool {
    let user = &session.user;
    let deed = Deed {
        command: Some(registered.number),
        first_argument: request.get(1),
        keys: registered.command.keys.iter().map(|spec| (key, access(spec.flags_in(request)))),
        channels: std::iter::empty(),
        channels_are_patterns: false,
    };
    let is_allowed = user.grants().check(&deed).is_ok();
    is_allowed && !user.is_removed()
}

/// Judges whether channels, or patterns of channels, may be used without a request that names them: by a
/// script that publishes, or by a subscription that is judged again after the user was changed.
pub(crate) fn check_channels<'a>(
    grants: &Grants,
    mut channels: impl Iterator<Item = &'a [u8]>,
    are_patterns: bool,
) -> bool {
    channels.all(|channel| grants.allow_channel(channel, are_patterns))
}

/// Whether something that is off by default is on for a client.
pub(in crate::commands) fn is_enabled(instance: &Instance, session: &Session, value: &Choice) -> bool {
    match ENABLED_FOR[value.get()] {
        "yes" => true,
        "local" => {
            let address = &session.client.address;
            address.is_local() || address.is_at(&instance.config.local_addresses.get())
        }
        _ => false,
    }
}

/// Judges whether a command that is off by default is on for a client, by the parameter of this name and this
/// value.
///
/// # Errors
///
/// If it is off, with a text that says how to turn it on.
pub(in crate::commands) fn check_enabled(
    context: &Running<'_, '_>,
    command: &str,
    parameter: &str,
    value: &Choice,
) -> Result<()> {
    if is_enabled(context.instance, context.session, value) {
        return Ok(());
    }
    Err(Error::text(format!(
        "ERR {command} command not allowed. If the {parameter} option is set to \"local\", you can run it \
         from a local connection, otherwise you need to set this option in the configuration file, and then \
         restart the server."
    )))
}

/// Judges a request by the rules of a user.
pub(in crate::commands) fn judge(
    grants: &Grants,
    registered: &Registered,
    request: Request<'_>,
) -> std::result::Result<(), Denial> {
    grants.check(&deed(registered, request))
}

/// Whether a client may run a request, and may read all keys at that: the request reads keys that it does not
/// name. A log that is replayed may.
pub(in crate::commands) fn may_read_all_keys(context: &Running<'_, '_>, request: Request<'_>) -> bool {
    let user = &context.session.user;
    if user.is_unrestricted() || context.tx.is_replay() {
        return true;
    }
    let found = find(&context.instance.names, request.name());
    let all = Access { reads: true, writes: false };
    found.is_some_and(|registered| user.grants().allow_with_all_keys(&deed(registered, request), all))
}

/// Returns whether a client that runs a command may read a key that the request does not name: it may if one
/// selector allows both.
pub(crate) fn may_read<'a>(session: &'a Session, command: &Command) -> impl Fn(&[u8]) -> bool + use<'a> {
    let user = &session.user;
    let number = find_full(own_names(), command.name.as_bytes()).map(|registered| registered.number);
    move |key| {
        let deed = Deed {
            command: number,
            first_argument: None,
            keys: std::iter::once((key, Access { reads: true, writes: false })),
            channels: std::iter::empty(),
            channels_are_patterns: false,
        };
        user.is_unrestricted() || user.grants().check(&deed).is_ok()
    }
}

/// The command, keys and channels that a user needs permission for. A request that has fewer keys than it
/// states touches none: its handler refuses it.
fn deed<'a>(
    registered: &Registered,
    request: Request<'a>,
) -> Deed<
    'a,
    impl Iterator<Item = (&'a [u8], Access)> + Clone + use<'a>,
    impl Iterator<Item = &'a [u8]> + Clone + use<'a>,
> {
    let command = registered.command;
    let channels = command.channels;
    let is_whole = command.keys.iter().all(|spec| spec.is_whole_in(request));
    Deed {
        command: (!command.flags.contains(Flags::NO_AUTH)).then_some(registered.number),
        first_argument: request.get(1),
        keys: command.keys_of(request).filter(move |_| is_whole).map(|(key, flags)| (key, access(flags))),
        channels: request.from(channels.first).take(channels.count),
        channels_are_patterns: channels.are_patterns,
    }
}

fn access(flags: KeyFlags) -> Access {
    let has_any = |flag: &[KeyFlags]| flag.iter().any(|flag| flags.contains(*flag));
    Access {
        reads: flags.contains(KeyFlags::ACCESS),
        writes: has_any(&[KeyFlags::INSERT, KeyFlags::DELETE, KeyFlags::UPDATE]),
    }
}

/// The kind and the name of what was denied.
pub(in crate::commands) fn object_of<'a>(
    denial: Denial,
    command: &Command,
    request: Request<'a>,
) -> (Reason, &'a [u8]) {
    match denial {
        Denial::Command => (Reason::Command, command.name.as_bytes()),
        Denial::Key(at) => (Reason::Key, command.keys_of(request).nth(at).map_or(&b""[..], |(key, _)| key)),
        Denial::Channel(at) => {
            (Reason::Channel, request.get(command.channels.first + at).unwrap_or_default())
        }
    }
}

/// The texts of Redis, which differ by where the request comes from.
fn refuse(reason: Reason, user: &[u8], command: &Command, origin: Origin) -> Error {
    const CHANGED: &str = "NOPERM ACLs rules changed between the moment the transaction was accumulated and \
                           the EXEC call. This command is no longer allowed for the following reason: ";
    let what = match (origin, reason) {
        (Origin::Transaction, Reason::Command | Reason::Auth) => {
            "no permission to execute the command or subcommand"
        }
        (Origin::Transaction, Reason::Key) => "no permission to touch the specified keys",
        (Origin::Transaction, Reason::Channel) => {
            "no permission to access one of the channels used as arguments"
        }
        (_, Reason::Key) => "No permissions to access a key",
        (_, Reason::Channel) => "No permissions to access a channel",
        (_, Reason::Command | Reason::Auth) => {
            let beginning = if origin == Origin::Script { SCRIPT } else { "NOPERM " };
            let after = format!(" has no permissions to run the '{}' command", command.name);
            return Error::quoting(&format!("{beginning}User "), user, &after);
        }
    };
    let beginning = match origin {
        Origin::Transaction => CHANGED,
        Origin::Script => SCRIPT,
        _ => "NOPERM ",
    };
    Error::text(format!("{beginning}{what}"))
}

/// The beginning of what a script is told.
const SCRIPT: &str = "ERR ACL failure in script: ";

/// Notes in ACL LOG that a client was refused something, as the user of this name.
pub(in crate::commands) fn note(
    instance: &Instance,
    session: &Session,
    reason: Reason,
    context: Context,
    username: &[u8],
    object: &[u8],
) {
    session.show(|_| {});
    let refusal = Refusal {
        reason,
        context,
        object: object.to_vec(),
        username: username.to_vec(),
        at_ms: instance.clock.now_ms(),
        client: describe_briefly(&session.client),
    };
    // Where a client is let in is not yet a sandbox.
    let first = (refusal.reason == Reason::Auth).then(|| instance.first_sandbox()).flatten();
    first.as_deref().unwrap_or(instance).acl_log.note(refusal, instance.config.acllog_max_len.size());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_by_where_the_request_comes_from() {
        let command = find_full(own_names(), b"config|set").unwrap().command;
        let text = |reason, origin| {
            String::from_utf8(refuse(reason, b"alice", command, origin).as_bytes().to_vec()).unwrap()
        };
        for origin in [Origin::Request, Origin::Queue] {
            let expected = "NOPERM User alice has no permissions to run the 'config|set' command";
            assert_eq!(text(Reason::Command, origin), expected);
        }
        assert_eq!(
            text(Reason::Key, Origin::Script),
            "ERR ACL failure in script: No permissions to access a key"
        );
        assert_eq!(
            text(Reason::Key, Origin::Transaction),
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: no permission to touch the \
             specified keys"
        );
    }

    #[test]
    fn how_a_key_is_used_follows_from_its_flags() {
        let used = |flags| (access(flags).reads, access(flags).writes);
        assert_eq!(used(KeyFlags::RO.and(KeyFlags::ACCESS)), (true, false));
        assert_eq!(used(KeyFlags::OW.and(KeyFlags::UPDATE)), (false, true));
        assert_eq!(used(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE)), (true, true));
        // EXISTS and TYPE: any rule about the key will do.
        assert_eq!(used(KeyFlags::RO), (false, false));
    }
}
