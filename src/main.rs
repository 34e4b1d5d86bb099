//! The program: options in, a server out; or the client, if that is what it is called as.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::{env, fs};

use keyfast::internals::allocator::{self, Counted};
use keyfast::internals::cli;
use keyfast::internals::host_names;
use keyfast::internals::options::{Asked, parse};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn main() -> ExitCode {
    host_names::prepare();
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
        Asked::Serve(startup) => keyfast::internals::process::run(*startup),
        Asked::Print(text) => {
            // The reader may have closed the pipe early, such as `head`.
            let _ = io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}

/// Makes the C library use huge pages, if the system gives them on request, and keep more freed memory at
/// hand.
///
/// Random keys of a large data set miss the processor's table of pages (TLB) at nearly every access, and each
/// miss is expensive in a virtual machine. With huge pages a pipelined command takes an eighth to a quarter
/// less processor time, and memory stays the same. Lua frees about forty strings at a time; glibc's cache
/// keeps seven per size and merges the others with the free memory around them.
///
/// The library reads these settings from the environment when a program starts. So the program starts once
/// more, in the same process. A `GLIBC_TUNABLES` of the user takes precedence. If the library or the system
/// does not support huge pages, nothing happens.
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
    // It returns only if it failed; then the server runs without huge pages.
    let _ = again.args(arguments).env(TUNABLES, TUNED).exec();
}
