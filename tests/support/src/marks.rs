//! Marks of the tests that need more than Keyfast, and what a test without such a mark may not do.
//!
//! `marked!(also_redis: name);` stands in front of `fn name()`, in place of `#[test]`. The mark is the last
//! part of the test's own name, so that a filter selects all tests which have it:
//!
//! - `::also_redis`: the same conversation is also held with a real Redis, with
//!   `KEYFAST_TEST_SERVER=/path/to/redis-server`.
//! - `::also_cli`: the same is also asked of the real client, with `KEYFAST_TEST_CLI=/path/to/redis-cli`.
//! - `::needs_tools`: the test runs programs which a machine need not have, or uses its network. Without them
//!   it says so and passes; with `KEYFAST_TEST_TOOLS=required` it fails.
//!
//! A test that asks which server it speaks to, or runs such a program, fails without the mark, also where it
//! runs beside Keyfast alone. So no test has a branch that no run reaches.

use std::cell::Cell;

/// What a test's name says about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// It is also run against a real Redis.
    AlsoRedis,
    /// It is also run with the real client.
    AlsoCli,
    /// It runs programs which a machine need not have, or uses its network.
    NeedsTools,
}

thread_local! {
    /// The marks of the test that this thread runs.
    static MARKS: Cell<&'static [Mark]> = const { Cell::new(&[]) };
    /// Whether the test has asked for such a thing.
    static HAS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Takes the marks from the thread, also when the test fails: the next one may run on the same thread.
struct Unmark;

impl Drop for Unmark {
    fn drop(&mut self) {
        MARKS.set(&[]);
    }
}

/// Runs a test that has these marks.
pub fn run(marks: &'static [Mark], test: impl FnOnce()) {
    MARKS.set(marks);
    HAS_ASKED.set(false);
    let _unmark = Unmark;
    test();
    let is_used = HAS_ASKED.get() || !marks.contains(&Mark::NeedsTools);
    assert!(is_used, "this test has asked for no program: the mark needs_tools has to go");
}

/// Fails a test that does not have this mark.
#[track_caller]
pub fn require(mark: Mark) {
    let marks = MARKS.get();
    assert!(
        marks.contains(&mark),
        "only a test with the mark {mark:?} may do this, on its own thread: marks.rs"
    );
    HAS_ASKED.set(HAS_ASKED.get() || mark == Mark::NeedsTools);
}

/// Makes a function a test, with marks.
#[macro_export]
macro_rules! marked {
    (also_redis: $test:ident) => {
        mod $test {
            #[test]
            fn also_redis() {
                $crate::marks::run(&[$crate::marks::Mark::AlsoRedis], super::$test);
            }
        }
    };
    (also_cli: $test:ident) => {
        mod $test {
            #[test]
            fn also_cli() {
                $crate::marks::run(&[$crate::marks::Mark::AlsoCli], super::$test);
            }
        }
    };
    (needs_tools: $test:ident) => {
        mod $test {
            #[test]
            fn needs_tools() {
                $crate::marks::run(&[$crate::marks::Mark::NeedsTools], super::$test);
            }
        }
    };
    (also_redis needs_tools: $test:ident) => {
        mod $test {
            mod also_redis {
                #[test]
                fn needs_tools() {
                    use $crate::marks::Mark::{AlsoRedis, NeedsTools};
                    $crate::marks::run(&[AlsoRedis, NeedsTools], super::super::$test);
                }
            }
        }
    };
}

/// Fails if a filter selects fewer of this program's tests than are said to be there: one that selects none
/// would pass.
pub fn select(filters: &[(&str, usize)]) {
    for (filter, count_min) in filters {
        let program = std::env::current_exe().expect("this test");
        let listed = std::process::Command::new(program).args(["--list", filter]).output().expect("a list");
        let count =
            String::from_utf8_lossy(&listed.stdout).lines().filter(|line| line.ends_with(": test")).count();
        assert!(count >= *count_min, "{filter} selects {count} tests");
    }
}
