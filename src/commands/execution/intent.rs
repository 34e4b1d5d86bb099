//! What a request may do, by the facts of its command, or by the flags that its script declares.
//!
//! This decides, before a request runs, whether it has to wait in a pause, and whether it is refused while
//! memory is short or data cannot be saved.

use crate::instance::Instance;
use crate::resp::Request;
use crate::scripting::Digest;
use crate::scripting::shebang::{self, Flags as ScriptFlags};

use crate::commands::Command;
use crate::commands::error::Error;
use crate::commands::facts::{Code, Flags, Result};

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    /// Change data in the keyspace.
    pub writes: bool,
    /// Change data, or send a message: what a replica would have to get.
    pub may_replicate: bool,
    /// Need memory for what it writes.
    pub needs_memory: bool,
}

/// What a request may do.
pub(crate) fn intent(instance: &Instance, command: &Command, request: Request<'_>) -> Intent {
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
    let flags = match command.code {
        Code::None => return None,
        Code::Text => flags_of(request.get(1)?).ok()?.0,
        Code::Digest => instance.scripting.flags_of_script(&Digest::parse(request.get(1)?)?)?,
        Code::Function => instance.scripting.libraries().function(request.get(1)?)?.flags,
    };
    (!flags.is_silent).then_some(flags)
}

/// The flags in the first line of a script, and the text to compile.
pub(in crate::commands) fn flags_of(text: &[u8]) -> Result<(ScriptFlags, &[u8])> {
    if !text.starts_with(b"#!") {
        return Ok((ScriptFlags { is_silent: true, ..ScriptFlags::default() }, text));
    }
    let parsed = shebang::parse(text).ok_or(Error::fixed("ERR Invalid script shebang"))?;
    let words = parsed.words.ok_or(Error::fixed("ERR Invalid engine in script shebang"))?;
    let engine = words.first().map_or(&[][..], |engine| engine);
    if engine != b"#!lua" {
        return Err(Error::quoting("ERR Unexpected engine in script shebang: ", engine, ""));
    }
    let mut flags = ScriptFlags::default();
    for word in &words[1..] {
        let unknown = || Error::quoting("ERR Unknown lua shebang option: ", word, "");
        let named = word.strip_prefix(b"flags=").ok_or_else(unknown)?;
        for name in named.split(|byte| *byte == b',') {
            if !flags.set(name) && !named.is_empty() {
                return Err(Error::quoting("ERR Unexpected flag in script shebang: ", name, ""));
            }
        }
    }
    Ok((flags, parsed.code))
}
