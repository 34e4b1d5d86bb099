//! What administrators ask of a server: the [`server`] as a whole, its parameters ([`config`]), users
//! ([`acl`]) and files ([`saving`]), snapshots for other tools ([`replication`]), what it says about itself
//! ([`info`], [`introspection`], [`memory`], [`latency`], [`slow`], [`hot_keys`]), and how durable a change
//! is ([`waiting`]).

pub(crate) mod acl;
pub(crate) mod config;
pub(crate) mod hot_keys;
pub(crate) mod info;
pub(crate) mod introspection;
pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod modules;
pub(crate) mod replication;
pub(crate) mod saving;
pub(crate) mod server;
pub(crate) mod slow;
pub(crate) mod waiting;
