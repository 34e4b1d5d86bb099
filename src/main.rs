//! The program: options in, a server out; or the client, if that is what it is called as.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::{env, fs};

use keyfast::allocator::{self, Counted};
use keyfast::cli;
use keyfast::options::{Asked, parse};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn main() -> ExitCode {
    if let Some(arguments) = cli::arguments(env::args_os()) {
        return cli::run(arguments);
    }
    restart_with_tuned_memory();
    allocator::prepare();
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
        Asked::Serve(startup) => keyfast::server::run(*startup).map_err(|why| format!("keyfast: {why}")),
        Asked::Print(text) => {
            // Whoever reads it may have read enough.
            let _ = io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}

/// Has the C library ask for huge pages, where the system gives them to those who ask, and keep more of what
/// was freed at hand.
///
/// Random keys of a large data set miss the processor's table of pages at nearly every access, and in a
/// virtual machine each miss is dear: with huge pages a pipelined command takes an eighth to a quarter less
/// processor time, and memory stays the same. Lua frees strings by forties, where the library keeps seven of
/// a size for who asks next and puts the others together with what is free around them.
///
/// The library reads these wishes from the environment when a program starts, so the program starts once
/// more, in the same process. Whoever has set `GLIBC_TUNABLES` is not overruled; where the library or the
/// system knows nothing of huge pages, nothing happens.
fn restart_with_tuned_memory() {
    const TUNABLES: &str = "GLIBC_TUNABLES";
    const TUNED: &str = "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=32";
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let is_given_to_askers = setting.contains("[madvise]");
    if !cfg!(target_env = "gnu") || !is_given_to_askers || env::var_os(TUNABLES).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // It comes back only if it failed; then the server runs without.
    let _ = again.args(arguments).env(TUNABLES, TUNED).exec();
}
