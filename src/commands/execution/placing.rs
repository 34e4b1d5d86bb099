//! Finds out where the keys of a request live: in memory or in the store. No request has keys in both.

use crate::commands::error::Error;
use crate::commands::facts::lookup::queued;
use crate::commands::facts::{Command, Concern, Result, Scope, Traits};
use crate::remote::row::Key;
use crate::remote::store_keys::StoreKeys;
use crate::resp::Request;
use crate::session::Session;

/// The error for a request with keys in both places.
const CROSSSTORE: Error = Error::fixed("CROSSSTORE Keys in request don't live in the same store");

/// Bytes of a key in the store: PostgreSQL's index takes 2,700.
const KEY_BYTES_MAX: usize = 2_048;

/// Where the keys of a request live.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In memory, or it has none.
    Memory,
    /// In the store: these, each one once.
    Store(Vec<Key>),
    /// It concerns all keys, in memory and in the store.
    Everywhere,
}

/// Where the keys of a request live: in memory or in the store.
///
/// # Errors
///
/// If they live in both places, or if the command cannot be offered for keys in a store.
pub(crate) fn place(
    store_keys: &StoreKeys,
    databases: usize,
    session: &Session,
    command: &Command,
    request: Request<'_>,
) -> Result<Home> {
    let named = Named { database: session.database, databases };
    let mut sorting = Sorting { store_keys, named, keys: Vec::new(), has_memory: false };
    match &session.queue {
        Some(queue) if command.scope == Scope::Queue && !queue.is_broken => {
            for (registered, request) in queued(queue) {
                if is_about_many(registered.command) {
                    return Err(not_offered(registered.command));
                }
                sorting.add_request(registered.command, request);
            }
            session.watching.keys().for_each(|key| sorting.add(session.database, key));
            sorting.keys.extend(session.watched_in_store.keys().cloned());
            if !sorting.keys.is_empty() {
                for (registered, request) in queued(queue) {
                    may_be_offered(registered.command, request)?;
                    let stays = registered.command.traits.contains(Traits::STAYS);
                    if stays || registered.command.needs_everything(request) {
                        return Err(not_offered(registered.command));
                    }
                }
            }
        }
        None if matches!(command.concern, Concern::AllKeys(_)) => return Ok(Home::Everywhere),
        _ => {
            sorting.add_request(command, request);
            if !sorting.keys.is_empty() || command.concern == Concern::Databases {
                may_be_offered(command, request)?;
            }
        }
    }
    sorting.place()
}

/// Whether a script may use the keys of a command that it calls. They live where the keys live that the
/// script has declared; in a store, they are among these.
///
/// # Errors
///
/// If not.
pub(crate) fn may_call(
    store_keys: &StoreKeys,
    databases: usize,
    session: &Session,
    command: &Command,
    request: Request<'_>,
) -> Result<()> {
    let mut keys = Named { database: session.database, databases }.keys(command, request);
    let may = match &session.keys_in_store {
        Some(declared) => {
            let is_declared = |(database, key): (usize, &[u8])| {
                declared.iter().any(|one| one.database as usize == database && *one.name == *key)
            };
            !command.needs_everything(request) && keys.all(is_declared)
        }
        None => !is_about_many(command) && !keys.any(|(_, key)| store_keys.has(key)),
    };
    match may {
        true => Ok(()),
        false => Err(Error::fixed("ERR Beside a store, a script may only use the keys that it has declared")),
    }
}

/// Whether a command concerns keys that it does not name: all of them, or whole databases.
fn is_about_many(command: &Command) -> bool {
    matches!(command.concern, Concern::AllKeys(_) | Concern::Databases)
}

/// Whether a command can be offered for keys in a store.
fn may_be_offered(command: &Command, request: Request<'_>) -> Result<()> {
    match command.concern == Concern::Databases || command.leaves_keys_unnamed(request) {
        true => Err(not_offered(command)),
        false => Ok(()),
    }
}

fn not_offered(command: &Command) -> Error {
    let name = command.name.to_uppercase().replace('|', " ");
    Error::text(format!("ERR {name} cannot do this with keys in a store"))
}

/// Finds the keys that requests name, with their databases.
#[derive(Clone, Copy)]
struct Named {
    /// The client's own database.
    database: usize,
    /// How many there are.
    databases: usize,
}

impl Named {
    fn keys<'r>(self, command: &Command, request: Request<'r>) -> impl Iterator<Item = (usize, &'r [u8])> {
        // If the request names no database that there is, it fails when it runs.
        let other = command.other_database.and_then(|of| of(request, self.database, 0..self.databases));
        let named = command.keys_of(request).enumerate().map(move |(number, (key, _))| match other {
            Some(database) if number == 1 => (database, key),
            _ => (self.database, key),
        });
        named.chain(other.and_then(|database| Some((database, command.only_key_in(request)?))))
    }
}

/// The keys of a request, as they are sorted by where they live.
struct Sorting<'p> {
    store_keys: &'p StoreKeys,
    named: Named,
    keys: Vec<Key>,
    has_memory: bool,
}

impl Sorting<'_> {
    fn add_request(&mut self, command: &Command, request: Request<'_>) {
        self.named.keys(command, request).for_each(|(database, key)| self.add(database, key));
    }

    fn add(&mut self, database: usize, key: &[u8]) {
        match self.store_keys.has(key) {
            true => self.keys.push(Key::new(database, key)),
            false => self.has_memory = true,
        }
    }

    fn place(mut self) -> Result<Home> {
        if self.keys.iter().any(|key| key.name.len() > KEY_BYTES_MAX) {
            return Err(Error::text(format!(
                "ERR A key in the store may have {KEY_BYTES_MAX} bytes at most"
            )));
        }
        match (self.keys.len(), self.has_memory) {
            (0, _) => return Ok(Home::Memory),
            (_, true) => return Err(CROSSSTORE),
            (1, _) => {}
            _ => {
                self.keys.sort_unstable();
                self.keys.dedup();
            }
        }
        Ok(Home::Store(self.keys))
    }
}
