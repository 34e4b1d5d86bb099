//! How many files, and so sockets, the process of the tests may have open.
//!
//! A session on Debian or Ubuntu begins with a soft limit of 1,024 and a far higher hard one. All tests of a
//! process share its limit, so it is raised before the first server starts. A test that holds more than a few
//! sockets asks for them, and waits until others have given theirs back. Where the hard limit is too low for
//! it alone, it says so and passes; with `KEYFAST_TEST_TOOLS=required` it fails.

use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// What all tests want together. The servers inherit it, and programs exist that try all numbers up to it.
const FILES_MAX: usize = 8192;

/// What is left to tests that ask for none: a server has two pipes, and a test has a few clients.
const FILES_OF_OTHERS: usize = 150;

/// The limit, raised.
static LIMIT: LazyLock<usize> = LazyLock::new(|| {
    rlimit::increase_nofile_limit(FILES_MAX as u64).expect("a limit of open files") as usize
});

/// How many files the tests that have asked may have now.
static ASKED: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

/// Files that a test may have open beside a few others. It gives them back with this value.
pub struct Files(usize);

/// Raises the limit, once.
pub fn raise_limit() {
    LazyLock::force(&LIMIT);
}

/// Lets a test have so many files open; `None` where the system never would.
#[track_caller]
#[must_use]
pub fn ask_for(files: usize) -> Option<Files> {
    let free = LIMIT.saturating_sub(FILES_OF_OTHERS);
    if files > free {
        let why = format!(
            "this test opens {files} files beside {FILES_OF_OTHERS} of others, and this process may open \
             {}: raise the hard limit (ulimit -Hn)",
            *LIMIT
        );
        assert!(std::env::var("KEYFAST_TEST_TOOLS").as_deref() != Ok("required"), "{why}");
        eprintln!("not checked: {why}");
        return None;
    }
    let is_full = |asked: &mut usize| *asked + files > free;
    *GIVEN_BACK.wait_while(asked(), is_full).unwrap_or_else(PoisonError::into_inner) += files;
    Some(Files(files))
}

fn asked() -> MutexGuard<'static, usize> {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Files {
    fn drop(&mut self) {
        *asked() -= self.0;
        GIVEN_BACK.notify_all();
    }
}
