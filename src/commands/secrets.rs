//! What of a request may be shown to others (SLOWLOG, MONITOR): everything but passwords.

use crate::config::Parameter;
use crate::resp::Request;

use super::args::is_word;
use super::command::Command;

/// What stands for a secret, as in Redis.
const HIDDEN: &[u8] = b"(redacted)";

/// The arguments of a request, each secret among them replaced.
pub fn visible_arguments<'a>(command: &Command, request: Request<'a>) -> Vec<&'a [u8]> {
    let mut arguments: Vec<&[u8]> = request.from(0).collect();
    match command.name {
        "auth" => hide(&mut arguments, 1..request.len()),
        "hello" => {
            let auth = request.from(0).position(|argument| is_word(argument, "auth"));
            auth.into_iter().for_each(|at| hide(&mut arguments, at + 1..at + 3));
        }
        "acl|setuser" => hide(&mut arguments, 2..request.len()),
        "config|set" => {
            let is_secret =
                |name: &[u8]| Parameter::named(name).is_some_and(|parameter| parameter.is_secret());
            let names = (2..request.len()).step_by(2).filter(|at| is_secret(request.at(*at)));
            names.for_each(|at| hide(&mut arguments, at + 1..at + 2));
        }
        _ => {}
    }
    arguments
}

fn hide(arguments: &mut [&[u8]], positions: std::ops::Range<usize>) {
    for argument in arguments.iter_mut().take(positions.end).skip(positions.start) {
        *argument = HIDDEN;
    }
}
