//! A client as it was when it was seen, for reports after it has left. Long names are cut.

use std::fmt;
use std::sync::Arc;

use super::{Address, Client, Profile};
use crate::excerpt::excerpt;

/// A client as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The client's number (CLIENT ID).
    pub id: u64,
    /// Where it connects from.
    pub address: Address,
    /// Its name (CLIENT SETNAME); empty for none.
    pub name: Vec<u8>,
    /// Its library (CLIENT SETINFO LIB-NAME); empty if unknown.
    pub lib_name: Vec<u8>,
    /// The version of that.
    pub lib_version: Vec<u8>,
}

impl Who {
    /// The client as it is now. It is made anew only when it has changed.
    pub fn of(client: &Client) -> Arc<Who> {
        let mut profile = client.profile.lock();
        match &profile.seen_as {
            Some(who) if who.is_still(&profile) => Arc::clone(who),
            _ => {
                let who = Arc::new(Who {
                    id: client.id,
                    address: client.address.clone(),
                    name: excerpt(&profile.name).into_owned(),
                    lib_name: excerpt(&profile.lib_name).into_owned(),
                    lib_version: excerpt(&profile.lib_version).into_owned(),
                });
                profile.seen_as = Some(Arc::clone(&who));
                who
            }
        }
    }

    fn is_still(&self, profile: &Profile) -> bool {
        *self.name == *excerpt(&profile.name)
            && *self.lib_name == *excerpt(&profile.lib_name)
            && *self.lib_version == *excerpt(&profile.lib_version)
    }

    /// Its library with the version, as far as they are known.
    pub fn client_library(&self) -> Vec<u8> {
        match self.lib_name.is_empty() || self.lib_version.is_empty() {
            true => self.lib_name.clone(),
            false => [&self.lib_name, &b" "[..], &self.lib_version].concat(),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.id)?;
        match self.name.is_empty() {
            true => write!(f, " ({})", self.address),
            false => write!(f, " '{}' ({})", self.name.escape_ascii(), self.address),
        }
    }
}
