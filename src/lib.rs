//! Keyfast: a standalone server that speaks the Redis protocol, built around SETNX.
//!
//! A request goes one way through the house. [`server`] reads bytes from a socket, [`resp`] cuts them into a
//! request, [`dispatch`] has it admitted by [`commands::execution`], [`engine`] begins a transaction over the
//! [`keyspace`], and the command's handler runs on it. The reply lies in the connection's output buffer,
//! which [`server`] writes once for the whole batch. The way in five files: `server/conversation.rs`,
//! `dispatch/mod.rs`, `commands/execution/run.rs`, `commands/strings/basics.rs`,
//! `keyspace/transaction/mod.rs`.
//!
//! What must never be, each with what holds it: the page on the [architecture](guide::architecture) names the
//! tests.
//!
//! - A handler decides only from its transaction and its request, never waits, and may run twice
//!   ([`commands::facts::Run`]).
//! - What a transaction holds is its type ([`keyspace::Everything`], [`keyspace::Walk`]).
//! - No large value is freed, copied or rendered under a lock ([`keyspace::Garbage`],
//!   [`keyspace::Snapshot`]).
//! - Nothing that the network announces is believed before it has arrived ([`resp::RequestReader`]).
//! - No hash of what the network sends has a seed that the network can know ([`keyspace::Keyspace`]).
//! - Each module of the list below uses only those above it.

/// The version of Redis that clients compare with those they know: the highest one whose commands on data are
/// all here, as `tests/it/version.rs` finds. The parameter `redis-version` gives clients another one.
pub const REDIS_VERSION: &str = "8.6.3";

pub mod allocator;
pub mod bits;
pub mod cancel;
pub mod clock;
pub mod digest;
pub mod events;
pub mod excerpt;
pub mod files;
mod flag_set;
pub mod geo;
pub mod glob;
pub mod host_names;
pub mod hyperloglog;
pub mod lcs;
pub mod long_double;
pub mod name_table;
pub mod progress;
pub mod resident;
pub mod resp;

pub mod certificates;
pub mod dump;
pub mod values;

pub mod config;
pub mod statistics;

pub mod keyspace;
pub mod types;

pub mod acl;

pub mod clients;
pub mod faults;
pub mod lens;
pub mod pubsub;
pub mod scripting;
pub mod tracking;

pub mod persistence;

pub mod remote;

pub mod session;

pub mod host;
pub mod instance;

pub mod commands;

pub mod engine;

pub mod dispatch;

pub mod upkeep;

pub mod options;
pub mod server;

pub mod process;

pub mod cli;

pub mod guide;
