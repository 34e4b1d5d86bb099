//! How a command stores at a key what it derives from the values of others.
//!
//! That may take long. So a request that takes long derives it from copies of these values, while no lock is
//! held ([`Prepares::Derived`](super::facts::Prepares)), and stores it if they are still there.

use std::sync::Arc;

use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::resp::{Reply, Request};
use crate::values::{Content, Encoding, STRING_KIND};

use super::error::Error;
use super::facts::{Derive, Derived, Result};

/// Stores what a request derives at a key, whatever that has been before, or deletes the key if it is
/// nothing.
///
/// # Errors
///
/// Those of `derive`.
pub(super) fn store(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    (derive, key): (Derive, &[u8]),
    event: &'static str,
    reply: Reply<'_>,
) -> Result {
    let derived = derived(tx, request, derive)?;
    put(tx, key, &derived, event);
    Ok(reply.count(derived.count))
}

/// What a request derives, or has derived before.
///
/// # Errors
///
/// Those of `derive`.
pub(super) fn derived(tx: &Transaction<'_>, request: Request<'_>, derive: Derive) -> Result<Arc<Derived>> {
    if let Some(error) = tx.prepared_value::<Error>(request.name()) {
        return Err(Error::clone(&error));
    }
    tx.prepared_value::<Derived>(request.name()).map_or_else(|| derive(tx, request).map(Arc::new), Ok)
}

/// Stores what was derived at a key, whatever that has been before, or deletes the key if it is nothing.
pub(super) fn put(tx: &mut Transaction<'_>, key: &[u8], derived: &Derived, event: &'static str) {
    if let Some(kept) = &derived.value {
        let value = kept.value();
        tx.event_of_replacing(key, value.facts.kind);
        match value.content {
            Content::Bytes(text) if value.facts.kind == STRING_KIND => {
                tx.put_encoded(key, text, Expiry::Never, Encoding::Raw);
            }
            _ => tx.put_any(key, value, Expiry::Never),
        }
        tx.event(value.facts.events, event, key);
    } else if tx.remove_for_nothing(key) {
        tx.event(EventClass::GENERIC, "del", key);
    }
}
