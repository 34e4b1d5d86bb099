//! Keyfast: a standalone server that speaks the Redis protocol, built around SETNX.
//!
//! The library's interface is [`testing`]: a server inside a test's own process. All else is the inside of
//! the program. It is hidden, and changes at any time; what its tests need of it stands in `internals`. The
//! pages for users, operators and developers are in the [`guide`].
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
/// all here, as `tests/commands/version.rs` finds. The parameter `redis-version` gives clients another one.
#[doc(hidden)]
pub const REDIS_VERSION: &str = "8.6.3";

mod platform;

mod allocator;
mod bits;
mod cancel;
mod clock;
mod digest;
mod events;
mod excerpt;
mod files;
mod flag_set;
mod geo;
mod glob;
mod hyperloglog;
mod lcs;
mod long_double;
mod name_table;
mod progress;
mod resp;
mod sync;

mod certificates;
mod dump;
mod values;
mod waiting;

mod config;
mod statistics;

mod keyspace;
mod types;

mod acl;

mod clients;
mod faults;
mod lens;
mod pubsub;
mod scripting;
mod tracking;

mod persistence;

mod remote;

mod session;

mod host;
mod instance;

mod commands;

mod engine;

mod dispatch;

mod upkeep;

mod cli;

mod options;
mod server;

mod process;

#[cfg(feature = "testing")]
pub mod testing;

#[doc(hidden)]
pub mod internals;

pub mod guide;
