//! A client as it was when it was seen, for reports after it has left. Long names are cut.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::{Address, Client, Profile};
use crate::excerpt::excerpt;

/// A client as it was.
#[derive(Clone, Debug)]
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
    /// What its connection does with locks.
    pub habits: Arc<Habits>,
}

/// What a connection does with locks, whatever its name is.
#[derive(Debug, Default)]
pub struct Habits {
    /// How many it holds, as far as the lens knows.
    pub held: AtomicU32,
    /// How often the lens has looked whether it holds two of one pattern.
    pub looks: AtomicU32,
    /// Whether it has held two of one pattern at once: it is rather shared by tasks.
    pub is_shared: AtomicBool,
    /// Whether another connection has released a lock that it had taken: it is rather one of a pool.
    pub is_pooled: AtomicBool,
}

impl Who {
    /// The client as it is now. It is made anew only when it has changed.
    pub fn of(client: &Client) -> Arc<Who> {
        let mut profile = client.profile.lock();
        match &profile.seen_as {
            Some(who) if who.is_still(&profile) => Arc::clone(who),
            seen => {
                let habits = seen.as_ref().map(|who| Arc::clone(&who.habits)).unwrap_or_default();
                let who = Arc::new(Who {
                    id: client.id,
                    address: client.address.clone(),
                    name: excerpt(&profile.name).into_owned(),
                    lib_name: excerpt(&profile.lib_name).into_owned(),
                    lib_version: excerpt(&profile.lib_version).into_owned(),
                    habits,
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
