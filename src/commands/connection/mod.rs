//! A client's own connection ([`basics`]), all connections ([`client`], chosen by a [`client_filter`]), and
//! the keys that a client keeps copies of ([`tracking`]).

pub(crate) mod basics;
pub(crate) mod client;
pub(crate) mod client_filter;
pub(crate) mod tracking;
