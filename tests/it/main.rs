//! Keyfast as its users meet it: through a socket, in one test binary.
//!
//! [`server`] starts the real program, [`client`] talks to it; every other module is a subject, and every
//! test in it a conversation.

mod channels;
mod client;
mod server;

mod acl;
mod bits;
mod clock;
mod commands;
mod conformance;
mod connection;
mod expiry;
mod faults;
mod functions;
mod keys;
mod libraries;
mod limits;
mod locks;
mod observing;
mod protocol;
mod race;
mod rslock;
mod scripting;
mod starting;
mod surface;
mod table;
mod tidy;
mod tracking;
mod transactions;
mod transport;
