//! The commands, and how a request finds its own.
//!
//! Each family is a file with one constant for each command, its handler beneath it and their list on top;
//! [`FAMILIES`] is the list of these lists. [`facts`] says what a command is and finds it by its name,
//! [`error`] and [`args`] serve the handlers, [`door`] is the one door through which all of them are run,
//! [`secrets`] decides what other users may see of a request; the metrics are made of [`info`], too.

pub mod absent;
mod amounts;
pub mod args;
pub mod browsing;
pub mod choosing;
pub mod client;
pub mod door;
pub mod dumping;
pub mod error;
pub mod facts;
pub mod faults;
pub mod info;
pub mod locks;
pub mod secrets;
pub mod tracking;
pub mod transactions;
pub mod waiting;

mod acl;
mod bitfield;
mod bitmaps;
mod bounded;
mod client_filter;
mod clock;
mod cluster;
mod compare;
mod config;
mod connection;
mod counters;
mod debug;
mod expiries;
mod field_expiries;
mod field_values;
mod fingerprint;
mod functions;
mod geo;
mod hashes;
mod hot_keys;
mod hyperloglog;
mod introspection;
mod keys;
mod latency;
mod lists;
mod lock;
mod memory;
mod modules;
mod object;
mod pubsub;
mod ranges;
mod saving;
mod scripting;
mod server;
mod set_algebra;
mod sets;
mod several;
mod slow;
mod sorted_sets;
mod sorting;
mod streams;
mod strings;

use std::sync::{Arc, LazyLock};

use crate::acl::Catalog;
use crate::instance::KnownCommands;

pub use facts::Command;

/// All commands, by the file that has them.
pub const FAMILIES: &[&[Command]] = &[
    strings::COMMANDS,
    several::COMMANDS,
    counters::COMMANDS,
    bounded::COMMANDS,
    ranges::COMMANDS,
    compare::COMMANDS,
    lock::COMMANDS,
    bitmaps::COMMANDS,
    hyperloglog::COMMANDS,
    field_expiries::COMMANDS,
    field_values::COMMANDS,
    hashes::COMMANDS,
    sets::COMMANDS,
    set_algebra::COMMANDS,
    lists::ends::COMMANDS,
    lists::moving::COMMANDS,
    lists::elements::COMMANDS,
    lists::blocking::COMMANDS,
    sorted_sets::basics::COMMANDS,
    sorted_sets::ranges::COMMANDS,
    sorted_sets::removing::COMMANDS,
    sorted_sets::algebra::COMMANDS,
    sorted_sets::choosing::COMMANDS,
    sorted_sets::blocking::COMMANDS,
    geo::places::COMMANDS,
    geo::searching::COMMANDS,
    streams::entries::COMMANDS,
    streams::deleting::COMMANDS,
    streams::producers::COMMANDS,
    streams::releasing::COMMANDS,
    streams::reading::COMMANDS,
    streams::groups::COMMANDS,
    streams::pending::COMMANDS,
    streams::info::COMMANDS,
    keys::COMMANDS,
    sorting::COMMANDS,
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
    hot_keys::COMMANDS,
    latency::COMMANDS,
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

static CATALOG: LazyLock<Arc<Catalog>> = LazyLock::new(|| Arc::new(new_catalog()));

/// The names that rules about users may contain. All servers of a process share them.
pub fn catalog() -> Arc<Catalog> {
    Arc::clone(&CATALOG)
}

fn new_catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for command in all().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
        catalog.add(command.name, command.category_names());
    }
    for absent in absent::all() {
        catalog.add_absent(absent.name, absent.category_names(), absent.is_of_redis_7);
    }
    catalog
}

/// All commands, some of them renamed. Instances that rename none share what this returns. Others that rename
/// the same ones share it by its clones.
pub fn known(renamed: &[(String, Vec<u8>)]) -> KnownCommands {
    // The memory of the table then belongs to no instance.
    facts::lookup::make_table();
    KnownCommands { catalog: catalog(), names: facts::lookup::names(renamed) }
}
