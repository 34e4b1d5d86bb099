//! Keyfast as its users meet it: locks, the lens, and keys in a store that several servers share.
//!
//! Every module is a subject, and every test in it a conversation with the real program, through a socket
//! (`tests/support`).

#[macro_use]
extern crate support;

mod linear;
mod lock;
mod lock_again;
mod lock_also;
mod lock_also_shared;
mod lock_bound;
mod lock_break;
mod lock_forms;
mod lock_graph;
mod lock_handover;
mod lock_kinds;
mod lock_late;
mod lock_lens;
mod lock_libraries;
mod lock_likes;
mod lock_lost;
mod lock_metrics;
mod lock_notify;
mod lock_permits;
mod lock_shared;
mod lock_thieves;
mod locks;
mod paused;
mod rslock;
mod store;

#[test]
fn every_mark_selects_tests() {
    support::marks::select(&[("::also_redis", 12), ("::needs_tools", 200)]);
}
