//! Keyfast as its users meet it: commands, data and the clients that use them.
//!
//! Every module is a subject, and every test in it a conversation with the real program, through a socket
//! (`tests/support`).

#[macro_use]
extern crate support;

mod acl;
mod bits;
mod blocking;
mod channels;
mod clock;
mod collections;
mod commands;
mod conformance;
mod counting;
mod debugging;
mod expiry;
mod faults;
mod fields;
mod functions;
mod groups;
mod hot_keys;
mod hyperloglog;
mod keys;
mod large_reads;
mod libraries;
mod long_requests;
mod long_stores;
mod long_texts;
mod lua_libraries;
mod lua_sources;
mod memory;
mod monitoring;
mod observing;
mod order;
mod pausing;
mod places;
mod race;
mod replies;
mod scripting;
mod sorting;
mod stalls;
mod streams;
mod surface;
mod table;
mod tokens;
mod tracking;
mod transactions;
mod version;

#[test]
fn every_mark_selects_tests() {
    support::marks::select(&[("::also_redis", 200), ("::needs_tools", 5)]);
}
