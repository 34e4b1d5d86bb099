//! What administrators ask of a server: the [`server`] as a whole, its parameters ([`config`]), users
//! ([`acl`]) and files ([`saving`]), what it says about itself ([`info`], [`introspection`], [`memory`],
//! [`latency`], [`slow`], [`hot_keys`]), and how durable a change is ([`waiting`]).

pub mod acl;
pub mod config;
pub mod hot_keys;
pub mod info;
pub mod introspection;
pub mod latency;
pub mod memory;
pub mod modules;
pub mod saving;
pub mod server;
pub mod slow;
pub mod waiting;
