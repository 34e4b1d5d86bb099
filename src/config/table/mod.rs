//! The table of parameters, by subject.

mod clients;
mod collections;
mod durability;
pub mod inert;
mod locks;
mod memory;
mod network;
mod observability;
mod process;
mod security;
mod testing;
mod tls;
pub(crate) mod words;

use super::Parameter;

/// Parameters about one subject.
#[derive(Debug)]
pub struct Family {
    /// The heading above them, in the help, the manual and the page. For parameters without an effect it is
    /// the reason, which follows the word "because".
    pub title: &'static str,
    /// The parameters under this heading, in the order in which they are shown.
    pub parameters: &'static [Parameter],
}

/// The parameters that have an effect.
pub static FAMILIES: &[Family] = &[
    Family { title: "Network", parameters: network::PARAMETERS },
    Family { title: "Security", parameters: security::PARAMETERS },
    Family { title: "TLS", parameters: tls::PARAMETERS },
    Family { title: "Clients", parameters: clients::PARAMETERS },
    Family { title: "Data and memory", parameters: memory::PARAMETERS },
    Family { title: "Durability", parameters: durability::PARAMETERS },
    Family { title: "Locks and the shared store", parameters: locks::PARAMETERS },
    Family { title: "Logging and observability", parameters: observability::PARAMETERS },
    Family { title: "Tests", parameters: testing::PARAMETERS },
    Family { title: "Process", parameters: process::PARAMETERS },
    Family { title: "Memory layout of collections", parameters: collections::PARAMETERS },
];

/// All parameters: those with an effect first.
pub fn parameters() -> impl Iterator<Item = &'static Parameter> + Clone {
    FAMILIES.iter().chain(inert::FAMILIES).flat_map(|family| family.parameters)
}

/// All parameters in the order of their names.
pub(crate) fn by_name() -> Vec<&'static Parameter> {
    let mut sorted: Vec<_> = parameters().collect();
    sorted.sort_unstable_by_key(|parameter| parameter.name);
    sorted
}
