//! What a request may do, by the facts of its command, or by the flags that its script declares.
//!
//! This decides, before a request runs, whether it has to wait in a pause, and whether it is refused while
//! memory is short or data cannot be saved.

use crate::instance::Instance;
use crate::resp::Request;
use crate::scripting::Digest;
use crate::scripting::shebang::Flags as ScriptFlags;

use crate::commands::Command;
use crate::commands::facts::Flags;
use crate::commands::scripting::scripts::flags_of;

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Change data in the keyspace.
    pub writes: bool,
    /// Change data, or send a message: what a replica would have to get.
    pub may_replicate: bool,
    /// Need memory for what it writes.
    pub needs_memory: bool,
}

/// What a request may do.
pub fn intent(instance: &Instance, command: &Command, request: Request<'_>) -> Intent {
    match declared(instance, command, request) {
        Some(flags) => {
            let writes = !flags.no_writes;
            Intent { writes, may_replicate: writes, needs_memory: writes && !flags.allow_oom }
        }
        None => Intent {
            writes: command.writes(),
            may_replicate: command.replicates(),
            needs_memory: command.flags.contains(Flags::DENYOOM),
        },
    }
}

/// The flags that the script of a request declares. `None` if the request runs no script, or the script
/// declares no flags.
fn declared(instance: &Instance, command: &Command, request: Request<'_>) -> Option<ScriptFlags> {
    let flags = match command.name {
        "eval" | "eval_ro" => flags_of(request.get(1)?).ok()?.0,
        "evalsha" | "evalsha_ro" => instance.scripting.flags_of_script(&Digest::parse(request.get(1)?)?)?,
        "fcall" | "fcall_ro" => instance.scripting.libraries().function(request.get(1)?)?.flags,
        _ => return None,
    };
    (!flags.is_silent).then_some(flags)
}
