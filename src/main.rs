//! The program: options in, a server out; or the client, or a check of files, if it is called so.

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use keyfast::internals::allocator::Counted;
use keyfast::internals::cli;
use keyfast::internals::options::{Asked, parse};
use keyfast::internals::persistence::check;
use keyfast::internals::platform::{heap, host_names};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn main() -> ExitCode {
    host_names::prepare();
    if let Some(asked) = cli::asked(env::args_os()) {
        return cli::run(asked);
    }
    if let Some(asked) = check::asked(env::args_os()) {
        return check::run(&asked);
    }
    heap::restart_with_tuned_memory();
    heap::prepare();
    let environment: Vec<_> = env::vars_os().collect();
    match parse(env::args_os(), &environment).and_then(obey) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn obey(asked: Asked) -> Result<(), String> {
    match asked {
        Asked::Serve(startup) => keyfast::internals::process::run(*startup),
        Asked::Print(text) => {
            // The reader may have closed the pipe early, such as `head`.
            let _ = io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}
