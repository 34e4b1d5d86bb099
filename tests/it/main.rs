//! Keyfast as its users meet it: through a socket, in one test binary.
//!
//! [`server`] starts the real program, in a [`folder`] where it needs files, [`client`] talks to it; every
//! other module is a subject, and every test in it a conversation.

mod channels;
mod client;
mod folder;
mod server;
mod tools;

mod acl;
mod aof;
mod bits;
mod blocking;
mod cli;
mod cli_modes;
mod clock;
mod collections;
mod commands;
mod configuring;
mod conformance;
mod connection;
mod counting;
mod damage;
mod debugging;
mod documents;
mod expiry;
mod faults;
mod functions;
mod hyperloglog;
mod instances;
mod keys;
mod libraries;
mod limits;
mod linear;
mod lock_kinds;
mod locks;
mod long_texts;
mod memory;
mod metrics;
mod monitoring;
mod observing;
mod output;
mod parameters;
mod pausing;
mod persistence;
mod places;
mod protocol;
mod race;
mod replaying;
mod replies;
mod rslock;
mod scripting;
mod security;
mod sorting;
mod stalls;
mod starting;
mod supervising;
mod surface;
mod table;
mod tidy;
mod tracking;
mod transactions;
mod transport;
