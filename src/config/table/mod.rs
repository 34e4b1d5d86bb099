//! The table of parameters, by subject.

mod access;
mod clients;
mod collections;
pub mod kept;
mod memory;
mod network;
mod observing;
mod persistence;
mod process;
mod store;
pub mod words;

use super::Parameter;

/// Parameters that are about the same.
#[derive(Debug)]
pub struct Family {
    /// What that is: a heading of the help.
    pub title: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

/// The parameters on which something acts.
pub static FAMILIES: &[Family] = &[
    Family { title: "Network", parameters: network::PARAMETERS },
    Family { title: "Clients", parameters: clients::PARAMETERS },
    Family { title: "Access", parameters: access::PARAMETERS },
    Family { title: "Memory", parameters: memory::PARAMETERS },
    Family { title: "Collections", parameters: collections::PARAMETERS },
    Family { title: "Persistence", parameters: persistence::PARAMETERS },
    Family { title: "Store", parameters: store::PARAMETERS },
    Family { title: "Observing", parameters: observing::PARAMETERS },
    Family { title: "Process", parameters: process::PARAMETERS },
];

/// All parameters.
pub fn parameters() -> impl Iterator<Item = &'static Parameter> + Clone {
    FAMILIES.iter().chain(kept::FAMILIES).flat_map(|family| family.parameters)
}

/// All parameters in the order of their names.
pub fn by_name() -> Vec<&'static Parameter> {
    let mut sorted: Vec<_> = parameters().collect();
    sorted.sort_unstable_by_key(|parameter| parameter.name);
    sorted
}
