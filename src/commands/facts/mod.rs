//! The facts of a command, and how a request finds its command.
//!
//! [`command`] is one command: its facts, its documentation and its handler, side by side in one constant.
//! The facts are made of [`flags`], of the places of keys ([`key_spec`]), of what a request concerns
//! ([`concern`]), of the documented arguments ([`argument`]) and of what a request costs
//! ([`cost`]). The handler works on a [`context`], that of a command which waits is a [`blocking`] one.
//! [`lookup`] finds commands by their names and numbers, and [`help`] lists the subcommands of one.
//!
//! Everything that is known about a command is derived from its facts: dispatch, arity errors, keys to lock,
//! COMMAND INFO, DOCS, LIST and GETKEYS, the ACL categories. The facts are those of Redis 8.6, which
//! `tests/commands/table.rs` compares; the summaries are our own.

mod argument;
mod blocking;
mod command;
mod concern;
mod context;
mod cost;
mod flags;
pub(in crate::commands) mod help;
mod key_spec;
pub(crate) mod lookup;

pub(crate) use crate::acl::Categories;
pub use argument::{Argument, ArgumentKind};
pub(crate) use blocking::{Blocking, Only, Patience, Taken, Timeout, WaitingRules, looks_at};
pub(crate) use command::{Arity, Deprecated, Derive, Derived, Prepares, Scope, Secrets};
pub use command::{Command, Group, Run};
pub(crate) use concern::{AllKeys, Channels, Code, Concern, Reach};
pub(crate) use context::{Context, Result};

pub(crate) use crate::lens::LockUse;
pub(crate) use cost::{Cost, Costs, Estimate, LONG_COPY_BYTES, SMALL_BYTES_MAX, is_small};
pub use flags::Flags;
pub(crate) use flags::{KeyFlags, Traits};
pub(crate) use key_spec::{KeySearch, KeySpec, Keyword, Part};
