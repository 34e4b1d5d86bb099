//! The commands, and how a request finds its own.
//!
//! A family is a folder, as in the documentation of Redis. Each file has one constant for each command, its
//! handler beneath it and their list on top; [`FAMILIES`] is the list of these lists. A twin (RPUSH of LPUSH)
//! names only what differs. [`facts`] says what a command is and finds it by its name, [`error`] and [`args`]
//! serve the handlers, and [`execution`] is the one way in which all of them are run.

pub(crate) mod args;
mod costs;
pub(crate) mod error;
pub(crate) mod execution;
pub(crate) mod facts;
mod fingerprint;
pub(crate) mod random_and_scan;
mod storing;
pub(crate) mod unsupported;

pub(crate) mod admin;
mod bitmaps;
mod cluster;
pub(crate) mod connection;
mod geo;
mod hashes;
mod hyperloglog;
pub(crate) mod keys;
mod lists;
pub(crate) mod locks;
mod pubsub;
mod scripting;
mod sets;
mod sorted_sets;
mod streams;
mod strings;
pub(crate) mod testing;
pub(crate) mod transactions;

use std::sync::{Arc, LazyLock};

use crate::acl::Catalog;
use crate::instance::KnownCommands;

pub(crate) use facts::Command;

/// All commands, by the file that has them.
pub(crate) const FAMILIES: &[&[Command]] = &[
    strings::basics::COMMANDS,
    strings::mget_mset::COMMANDS,
    strings::counters::COMMANDS,
    strings::increx::COMMANDS,
    strings::ranges::COMMANDS,
    strings::compare::COMMANDS,
    locks::holding::COMMANDS,
    bitmaps::bits::COMMANDS,
    hyperloglog::COMMANDS,
    hashes::field_expiries::COMMANDS,
    hashes::field_values::COMMANDS,
    hashes::basics::COMMANDS,
    sets::basics::COMMANDS,
    sets::algebra::COMMANDS,
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
    keys::basics::COMMANDS,
    keys::sorting::COMMANDS,
    keys::expiries::COMMANDS,
    keys::browsing::COMMANDS,
    keys::object::COMMANDS,
    keys::dumping::COMMANDS,
    keys::migrating::COMMANDS,
    transactions::COMMANDS,
    pubsub::COMMANDS,
    scripting::scripts::COMMANDS,
    scripting::functions::COMMANDS,
    connection::basics::COMMANDS,
    connection::client::COMMANDS,
    admin::waiting::COMMANDS,
    admin::server::COMMANDS,
    admin::saving::COMMANDS,
    admin::replication::COMMANDS,
    admin::slow::COMMANDS,
    admin::hot_keys::COMMANDS,
    admin::latency::COMMANDS,
    locks::watching::COMMANDS,
    admin::memory::COMMANDS,
    testing::debug::COMMANDS,
    testing::faults::COMMANDS,
    testing::clock::COMMANDS,
    testing::sandboxes::COMMANDS,
    admin::config::COMMANDS,
    admin::acl::COMMANDS,
    admin::info::COMMANDS,
    admin::introspection::COMMANDS,
    admin::modules::COMMANDS,
    cluster::COMMANDS,
];

/// All commands, without subcommands.
pub fn all() -> impl Iterator<Item = &'static Command> + Clone {
    FAMILIES.iter().flat_map(|family| family.iter())
}

static CATALOG: LazyLock<Arc<Catalog>> = LazyLock::new(|| Arc::new(new_catalog()));

/// The names that rules about users may contain. All servers of a process share them.
pub(crate) fn catalog() -> Arc<Catalog> {
    Arc::clone(&CATALOG)
}

fn new_catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for command in all().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
        catalog.add(command.name, command.category_names());
    }
    for absent in unsupported::all() {
        catalog.add_absent(absent.name, absent.category_names(), absent.is_of_redis);
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
