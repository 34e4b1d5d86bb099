//! A client's own connection ([`basics`]), all connections ([`client`], chosen by a [`client_filter`]), and
//! the keys that a client keeps copies of ([`tracking`]).

pub mod basics;
pub mod client;
pub mod client_filter;
pub mod tracking;
