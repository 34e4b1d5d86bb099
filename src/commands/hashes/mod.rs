//! Hashes: [`basics`], the expiries of single fields ([`field_expiries`]), and commands that read or write
//! values together with these ([`field_values`]).

pub(super) mod basics;
pub(super) mod field_expiries;
pub(super) mod field_values;
