//! The program: options in, a server out.

use std::process::ExitCode;

use keyfast::options::{Asked, parse};

fn main() -> ExitCode {
    match parse(std::env::args()).and_then(obey) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("keyfast: {why}");
            ExitCode::FAILURE
        }
    }
}

fn obey(asked: Asked) -> Result<(), String> {
    match asked {
        Asked::Serve(config) => keyfast::server::run(config),
        Asked::Print(text) => {
            print!("{text}");
            Ok(())
        }
    }
}
