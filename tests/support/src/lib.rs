//! What the tests through a socket share. Each of them holds its conversations with the real program.
//!
//! [`server`] starts it, in a [`folder`] where it needs files, and [`client`] talks to it. [`replies`]
//! looks into what it says, [`log`] at what it keeps. [`store`] starts the stores in which servers can
//! keep their keys. [`open_files`] lets tests have many sockets. [`marks`] says which tests are also held
//! with a real Redis, or need programs of others.

pub mod certificates;
pub mod client;
pub mod folder;
pub mod log;
pub mod marks;
pub mod metrics;
pub mod open_files;
pub mod pages;
pub mod preloaded;
pub mod replies;
pub mod server;
pub mod store;
pub mod tools;
