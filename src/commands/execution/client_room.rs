//! Disconnects clients while all clients together take more memory than `maxmemory-clients`, the largest
//! first.
//!
//! A client is disconnected a little later, in its own task. Until then its memory counts as freed, so that
//! no other client has to go in its place.

use parking_lot::MutexGuard;

use crate::clients::description::describe_briefly;
use crate::clients::{Client, Eviction, Leaving};
use crate::instance::Instance;
use crate::statistics::Count;

/// Checks whether clients take too much. Called after a client may have grown.
#[inline]
pub(crate) fn limit_clients(instance: &Instance) {
    if let Some(limit_bytes) = instance.config.clients_bytes_max()
        && is_exceeded(instance, limit_bytes)
        // Otherwise another thread is already doing this.
        && let Some(eviction) = instance.clients.eviction.try_lock()
    {
        evict(instance, limit_bytes, eviction);
    }
}

/// Does the same before keys are freed. Returns the bytes that clients will give back which are being
/// disconnected.
pub(crate) fn leaving_bytes(instance: &Instance) -> usize {
    match instance.config.clients_bytes_max() {
        Some(limit_bytes) if is_exceeded(instance, limit_bytes) => {
            evict(instance, limit_bytes, instance.clients.eviction.lock())
        }
        _ => 0,
    }
}

fn is_exceeded(instance: &Instance, limit_bytes: usize) -> bool {
    let is_exceeded = instance.clients.memory().bytes() >= limit_bytes;
    if !is_exceeded {
        instance.clients.eviction.lock().is_stuck = false;
    }
    is_exceeded
}

#[cold]
fn evict(instance: &Instance, limit_bytes: usize, mut eviction: MutexGuard<'_, Eviction>) -> usize {
    let clients = &instance.clients;
    if eviction.is_stuck && eviction.looked_at_ms == clients.now_ms() {
        return 0;
    }
    eviction.looked_at_ms = clients.now_ms();
    let (leaving, staying): (Vec<_>, Vec<_>) =
        clients.all().into_iter().partition(|client| client.leaving() == Leaving::Now);
    let mut given_back: usize = leaving.iter().map(|client| client.footprint.bytes()).sum();
    let mut bytes = clients.memory().bytes().saturating_sub(given_back);
    let is_evictable =
        |client: &Client| !client.profile.lock().is_kept_from_eviction && !client.has_bound_locks();
    let mut evictable: Vec<_> = staying
        .into_iter()
        .filter(|client| is_evictable(client))
        .map(|client| (client.footprint.bytes(), client))
        .collect();
    evictable.sort_unstable_by_key(|(bytes, _)| *bytes);
    while bytes >= limit_bytes {
        let Some((client_bytes, client)) = evictable.pop() else {
            if !eviction.is_stuck {
                tracing::warn!("Over client maxmemory after evicting all evictable clients");
            }
            eviction.is_stuck = true;
            return given_back;
        };
        tracing::info!("Evicting client: {}", describe_briefly(&client));
        client.ask_to_leave(Leaving::Now);
        instance.statistics.add(Count::ClientsEvicted, 1);
        bytes = bytes.saturating_sub(client_bytes);
        given_back += client_bytes;
    }
    eviction.is_stuck = false;
    given_back
}
