//! The commands, and how a request finds its own.
//!
//! Each family is a file with one constant for each command, its handler beneath it and their list on top;
//! [`FAMILIES`] is the list of these lists. [`command`] says what a command is, [`lookup`] finds it by its
//! name, [`error`] and [`args`] serve the handlers, [`execute`] is the one door through which all of them are
//! run, [`permission`] asks there who may, [`intent`] what a request may do, [`secrets`] what others may see
//! of it, [`replay`] does again what a log has; of [`info`] metrics are made as well.

pub mod absent;
pub mod args;
pub mod client;
pub mod command;
pub mod error;
pub mod execute;
pub mod faults;
pub mod info;
pub mod intent;
pub mod lookup;
pub mod permission;
pub mod replay;
pub mod secrets;
pub mod traces;
pub mod tracking;
pub mod transactions;

mod acl;
mod bitfield;
mod bitmaps;
mod bridge;
mod browsing;
mod clock;
mod cluster;
mod compare;
mod config;
mod connection;
mod counters;
mod debug;
mod dumping;
mod expiries;
mod fingerprint;
mod functions;
mod introspection;
mod keys;
mod locks;
mod memory;
mod modules;
mod object;
mod pubsub;
mod ranges;
mod saving;
mod scripting;
mod server;
mod several;
mod slow;
mod strings;
mod waiting;

pub use command::Command;

/// All commands.
pub const FAMILIES: &[&[Command]] = &[
    strings::COMMANDS,
    several::COMMANDS,
    counters::COMMANDS,
    ranges::COMMANDS,
    compare::COMMANDS,
    bitmaps::COMMANDS,
    keys::COMMANDS,
    expiries::COMMANDS,
    browsing::COMMANDS,
    object::COMMANDS,
    dumping::COMMANDS,
    transactions::COMMANDS,
    pubsub::COMMANDS,
    scripting::COMMANDS,
    functions::COMMANDS,
    connection::COMMANDS,
    client::COMMANDS,
    waiting::COMMANDS,
    server::COMMANDS,
    saving::COMMANDS,
    slow::COMMANDS,
    locks::COMMANDS,
    memory::COMMANDS,
    debug::COMMANDS,
    faults::COMMANDS,
    clock::COMMANDS,
    config::COMMANDS,
    acl::COMMANDS,
    info::COMMANDS,
    introspection::COMMANDS,
    modules::COMMANDS,
    cluster::COMMANDS,
];

/// All commands, without subcommands.
pub fn all() -> impl Iterator<Item = &'static Command> + Clone {
    FAMILIES.iter().flat_map(|family| family.iter())
}
