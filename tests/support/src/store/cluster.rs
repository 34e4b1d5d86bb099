//! The store of a test's own: PostgreSQL or etcd.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::etcd::Etcd;
use super::postgres::Postgres;
use crate::server::{PATIENCE, Server};

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    Etcd,
}

/// A store with one node or three.
pub enum Cluster {
    Postgres(Postgres),
    Etcd(Etcd),
}

impl Cluster {
    /// Starts a store with one node; `None` where it is not installed.
    pub fn start(kind: Kind, test: &str) -> Option<Cluster> {
        Cluster::start_nodes(kind, test, 1)
    }

    /// Starts a store with this many nodes; `None` where it is not installed.
    pub fn start_nodes(kind: Kind, test: &str, nodes: usize) -> Option<Cluster> {
        match kind {
            Kind::Postgres => Postgres::start(test, nodes).map(Cluster::Postgres),
            Kind::Etcd => Etcd::start(test, nodes).map(Cluster::Etcd),
        }
    }

    /// The URL of the store, with all nodes.
    pub fn url(&self) -> String {
        match self {
            Cluster::Postgres(postgres) => postgres.url(),
            Cluster::Etcd(etcd) => etcd.url(),
        }
    }

    /// A front-end with these options.
    pub fn front(&self, options: &[&str]) -> Server {
        front(&self.url(), options)
    }

    /// Stops the only node at once.
    pub fn stop(&self) {
        match self {
            Cluster::Postgres(postgres) => postgres.stop_node(0, "immediate"),
            Cluster::Etcd(etcd) => etcd.kill_node(0),
        }
    }

    /// Starts it again.
    pub fn start_again(&self) {
        match self {
            Cluster::Postgres(postgres) => postgres.start_node(0),
            Cluster::Etcd(etcd) => etcd.start_node(0),
        }
    }
}

/// A front-end of a store, with these options. It is patient, for a busy machine, unless they say otherwise.
pub fn front(url: &str, options: &[&str]) -> Server {
    let server = Server::start_with(&[&["--store", url, "--store-timeout", "20000"], options].concat());
    server.wait_for_output("Connected to the store");
    server
}

/// A port for a node, which is free again when the node starts again: the system gives others to connections.
pub fn node_port() -> u16 {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    const PORTS: std::ops::Range<usize> = 12_000..32_000;
    loop {
        let number = std::process::id() as usize * 97 + NUMBER.fetch_add(1, Ordering::Relaxed);
        let port = (PORTS.start + number % PORTS.len()) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Until something is so.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let (began, mut pause) = (Instant::now(), Duration::from_millis(10));
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never came to pass that {what}");
        thread::sleep(pause);
        // To ask may mean to start a program.
        pause = (pause * 2).min(Duration::from_millis(150));
    }
}
