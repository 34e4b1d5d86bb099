//! The marks of tests: what a test without one may not do.

use support::marks::{self, Mark};

#[test]
#[should_panic(expected = "only a test with the mark AlsoRedis")]
fn a_test_without_the_mark_may_not_ask_which_server_it_is() {
    support::server::is_redis();
}

#[test]
#[should_panic(expected = "only a test with the mark NeedsTools")]
fn a_test_without_the_mark_may_not_run_other_programs() {
    support::tools::installed("true");
}

#[test]
#[should_panic(expected = "this test has asked for no program")]
fn a_test_that_runs_none_may_not_have_the_mark() {
    marks::run(&[Mark::NeedsTools], || {});
}
