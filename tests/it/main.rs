//! Keyfast as its users meet it: through a socket, in one test binary.
//!
//! [`server`] starts the real program, in a [`folder`] where it needs files, [`client`] talks to it,
//! [`open_files`] lets tests have many sockets; every other module is a subject, and every test in it a
//! conversation. [`marks`] says which of them are also held
//! with a real Redis, or need programs of others.

#[macro_use]
mod marks;

mod channels;
mod client;
mod folder;
mod open_files;
mod preloaded;
mod server;
mod tools;

mod acl;
mod aof;
mod backlog;
mod backups;
mod bits;
mod blocking;
mod checking;
mod cli;
mod cli_modes;
mod cli_options;
mod clock;
mod collections;
mod collisions;
mod commands;
mod configuring;
mod conformance;
mod connection;
mod counting;
mod damage;
mod debugging;
mod documents;
mod durability;
mod expiry;
mod exporting;
mod faults;
mod fields;
mod forgiving;
mod functions;
mod groups;
mod hot_keys;
mod hyperloglog;
mod image;
mod instances;
mod kept;
mod keys;
mod killed;
mod large_reads;
mod libraries;
mod limits;
mod linear;
mod lock;
mod lock_kinds;
mod lock_lens;
mod lock_libraries;
mod locks;
mod long_requests;
mod long_texts;
mod lua_libraries;
mod lua_sources;
mod memory;
mod metrics;
mod migrating;
mod monitoring;
mod newer;
mod observing;
mod order;
mod output;
mod pages;
mod parameters;
mod paused;
mod pausing;
mod persistence;
mod pictures;
mod places;
mod platforms;
mod power;
mod progress;
mod protocol;
mod race;
mod readme;
mod releasing;
mod replaying;
mod replies;
mod rslock;
mod scripting;
mod security;
mod sorting;
mod stalls;
mod starting;
mod store;
mod streams;
mod supervising;
mod surface;
mod table;
mod tidy;
mod tracking;
mod transactions;
mod transport;
mod version;
mod waiting;
