//! Keyfast as its users meet it: what is kept in files, and what comes back of it.
//!
//! Every module is a subject, and every test in it a conversation with the real program, through a socket
//! (`tests/support`).

#[macro_use]
extern crate support;

mod aof;
mod backlog;
mod backups;
mod checking;
mod damage;
mod durability;
mod exporting;
mod forgiving;
mod initial;
mod instances;
mod kept;
mod killed;
mod migrating;
mod newer;
mod persistence;
mod power;
mod releasing;
mod replaying;

#[test]
fn every_mark_selects_tests() {
    support::marks::select(&[("::also_redis", 25), ("::needs_tools", 20)]);
}
