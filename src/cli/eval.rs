//! `--eval`: runs a script from a file, with keys and, after a comma, arguments.

use std::fs;
use std::path::Path;

use super::plain_text;
use super::session::Session;
use super::{Result, Stop};

/// Runs a script.
pub(super) fn run_script(session: &mut Session, file: &Path) -> Result<()> {
    let script = match fs::read(file) {
        Ok(script) => script,
        Err(error) => {
            eprintln!("Can't open file '{}': {}", file.display(), plain_text(&error));
            return Err(Stop::Exit(1));
        }
    };
    let given = session.options.command.split(|argument| argument == b",");
    let mut given = given.map(<[Vec<u8>]>::to_vec);
    let keys = given.next().unwrap_or_default();
    let count = keys.len().to_string().into_bytes();
    let mut command = vec![b"EVAL".to_vec(), script, count];
    command.extend(keys);
    // Only the first comma separates keys from arguments; later commas are arguments.
    for (number, arguments) in given.enumerate() {
        if number > 0 {
            command.push(b",".to_vec());
        }
        command.extend(arguments);
    }
    session.issue(&command, 1)
}
