//! Programs of other people that some tests need, which have the mark `needs_tools`: redis-server, etcd …
//!
//! A machine without them still runs the rest. Where `KEYFAST_TEST_TOOLS=required` is set, as `.ci/run` does,
//! a missing program fails the test: a check that cannot run must not look like one that passed.

use std::process::{Command, Stdio};

use crate::marks::{self, Mark};

/// A program to be run, or `None` where it is not installed.
#[track_caller]
pub fn installed(program: &str) -> Option<Command> {
    marks::require(Mark::NeedsTools);
    let tried = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if tried.is_ok() {
        return Some(Command::new(program));
    }
    refuse_to_pass_without(program);
    None
}

/// Reports that a test cannot check what it is for; fails it where all tools are required.
#[track_caller]
pub fn refuse_to_pass_without(what: &str) {
    marks::require(Mark::NeedsTools);
    assert!(!are_required(), "this test needs {what}, which this machine does not have");
    eprintln!("not checked: this machine does not have {what}");
}

fn are_required() -> bool {
    std::env::var("KEYFAST_TEST_TOOLS").is_ok_and(|value| value == "required")
}
