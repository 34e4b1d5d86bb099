//! Remembers what clients read that have copies of keys (CLIENT TRACKING).

use crate::commands::facts::lookup::{Registered, resolve};
use crate::commands::facts::{Command, Flags, Run, Scope, Traits};
use crate::instance::Instance;
use crate::resp::Request;
use crate::session::Session;

/// Remembers what a command has read, before its shards are free. Of a script, that is what its commands have
/// read, as in Redis since 7.2, and not the keys that it declares.
#[cold]
pub(crate) fn remember(instance: &Instance, session: &mut Session, command: &Command, request: Request<'_>) {
    let Some(tracks) = &mut session.tracking else { return };
    if command.scope == Scope::Script {
        tracks.script_ended();
        return;
    }
    if matches!(command.run, Run::Read(_)) || command.flags.contains(Flags::READONLY) {
        let keys = command.keys_of(request).map(|(key, _)| key);
        let keys_max = instance.config.tracking_table_max_keys.size();
        let outbox = &mut session.outbox;
        let comes_late =
            |tracker, key: &[u8]| outbox.as_mut().is_some_and(|outbox| outbox.add_read(tracker, key));
        instance.tracking.remember(tracks, keys, comes_late, keys_max, &instance.clients);
    }
}

/// Called after a request of a client that may track keys. What CLIENT CACHING has said holds for the next
/// command, or the next transaction; the commands of CLIENT are no such commands.
pub(crate) fn answered(session: &mut Session, found: Option<&'static Registered>, request: Request<'_>) {
    let is_queuing = session.queue.is_some();
    let Some(tracks) = &mut session.tracking else { return };
    tracks.has_read = false;
    let is_about_client = found
        .filter(|found| found.command.traits.contains(Traits::KEEPS_CACHING))
        .and_then(|found| resolve(found, request).ok())
        .is_some_and(|resolved| !matches!(resolved.command.run, Run::Subcommands));
    tracks.is_exception &= is_queuing || is_about_client;
}
