//! How a command stores at a key what it has made of the values of others.
//!
//! To make it may take long. So a request that takes long makes it of copies of these values, while no lock
//! is held ([`Prepares::Result`](super::facts::Prepares)), and stores it if they are still there.

use std::sync::Arc;

use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::resp::Request;
use crate::values::{Content, Encoding, STRING_KIND};

use super::facts::{Made, MakeResult, Result};

/// Stores what a request makes at a key, whatever that has been before, or deletes the key if it is nothing.
/// Returns the number for the reply.
///
/// # Errors
///
/// Those of `make`.
pub(super) fn store(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    (make, key): (MakeResult, &[u8]),
    (class, event): (EventClass, &'static str),
) -> Result<usize> {
    let made = match tx.prepared_value::<Made>(request.name()) {
        Some(made) => made,
        None => Arc::new(make(tx, request)?),
    };
    let Some(kept) = &made.value else {
        if tx.remove_for_nothing(key) {
            tx.event(EventClass::GENERIC, "del", key);
        }
        return Ok(made.count);
    };
    let value = kept.value();
    tx.event_of_replacing(key, value.facts.kind);
    match value.content {
        Content::Bytes(text) if value.facts.kind == STRING_KIND => {
            tx.put_encoded(key, text, Expiry::Never, Encoding::Raw);
        }
        _ => tx.put_any(key, value, Expiry::Never),
    }
    tx.event(class, event, key);
    Ok(made.count)
}
