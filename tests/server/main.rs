//! Keyfast as its users meet it: how the program starts, listens, is configured and watched; its client, its
//! documents and its form.
//!
//! Every module is a subject, and every test in it a conversation with the real program, through a socket
//! (`tests/support`).

#[macro_use]
extern crate support;

mod cli;
mod cli_modes;
mod cli_options;
mod collisions;
mod configuring;
mod connection;
mod documents;
mod image;
mod limits;
mod marking;
mod metrics;
mod output;
mod pages;
mod parameters;
mod pictures;
mod platforms;
mod progress;
mod protocol;
mod readme;
mod sandboxes;
mod security;
mod starting;
mod supervising;
mod tidy;
mod transport;
mod waiting;

#[test]
fn every_mark_selects_tests() {
    support::marks::select(&[("::also_redis", 40), ("::also_cli", 25), ("::needs_tools", 6)]);
}
