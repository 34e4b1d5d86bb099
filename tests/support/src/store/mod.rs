//! Stores of a test's own: PostgreSQL and etcd, with one node or three, and networks between nodes.

pub mod cluster;
pub mod etcd;
pub mod network;
pub mod postgres;
