//! Keyfast as its users meet it: through a socket, in one test binary.
//!
//! [`server`] starts the real program, in a [`folder`] where it needs files, [`client`] talks to it; every
//! other module is a subject, and every test in it a conversation.

mod channels;
mod client;
mod folder;
mod server;

mod acl;
mod aof;
mod bits;
mod cli;
mod clock;
mod commands;
mod configuring;
mod conformance;
mod connection;
mod documents;
mod expiry;
mod faults;
mod functions;
mod keys;
mod libraries;
mod limits;
mod linear;
mod locks;
mod metrics;
mod observing;
mod persistence;
mod protocol;
mod race;
mod rslock;
mod scripting;
mod starting;
mod supervising;
mod surface;
mod table;
mod tidy;
mod tracking;
mod transactions;
mod transport;
