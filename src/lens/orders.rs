//! In which order clients take locks: two orders of the same two locks are a deadlock that is yet to come.
//!
//! An order is noted when a client asks for a lock, ready to wait for it (LOCK ACQUIRE … WAIT), while it
//! holds another one: by the same token, or by the same connection. A client that does not wait gives up what
//! it has sooner or later, so its order does no harm.
//!
//! No order is known of a connection that several tasks share, or that is one of a pool: the one lock may be
//! of another task than the other. Nor is one wrong if both clients held a third lock, which lets only one of
//! them be there at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clients::Who;

/// Orders that are kept.
const ORDERS_MAX: usize = 1024;
/// Locks that a client holds, as far as they are looked at.
pub(super) const HELD_MAX: usize = 16;

/// Two locks, by the numbers of their databases and the hashes of their keys: the one that a client held, and
/// the one for which it asked.
pub(super) type Pair = ((usize, u64), (usize, u64));

/// A client that has asked for one lock while it held another.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) who: Arc<Who>,
    /// The digest of its token, if the token is long.
    pub(super) token: Option<u64>,
    /// When, in milliseconds since 1970.
    pub(super) at_ms: u64,
    /// Whether only its connection shows that it holds the first lock.
    pub(super) is_by_connection: bool,
    /// What it held besides.
    pub(super) besides: Box<[(usize, u64)]>,
}

/// The last orders.
#[derive(Debug, Default)]
pub(super) struct Orders {
    by_pair: HashMap<Pair, Order>,
    /// From the oldest one to the newest.
    pairs: VecDeque<Pair>,
    /// The pairs of which it is known that both orders occur.
    told: VecDeque<Pair>,
}

impl Orders {
    /// Notes an order. Returns the opposite one, if another client has taken the locks in that order, and
    /// if this is news.
    pub(super) fn note(&mut self, pair @ (first, second): Pair, order: Order) -> Option<Order> {
        let opposite = self.by_pair.get(&(second, first)).filter(|opposite| opposite.meets(&order)).cloned();
        if self.by_pair.insert(pair, order).is_none() {
            self.pairs.push_back(pair);
        }
        if self.pairs.len() > ORDERS_MAX
            && let Some(oldest) = self.pairs.pop_front()
        {
            self.by_pair.remove(&oldest);
        }
        opposite.filter(|_| self.tell_once(pair))
    }

    /// Whether this is the first report of both orders of two locks.
    pub(super) fn tell_once(&mut self, (first, second): Pair) -> bool {
        let pair = (first.min(second), first.max(second));
        let is_first = !self.told.contains(&pair);
        if is_first {
            self.told.push_back(pair);
            if self.told.len() > ORDERS_MAX {
                self.told.pop_front();
            }
        }
        is_first
    }

    /// Forgets which findings are known.
    pub(super) fn forget_told(&mut self) {
        self.told.clear();
    }

    /// Forgets all orders.
    pub(super) fn clear(&mut self) {
        *self = Orders::default();
    }
}

impl Order {
    /// Whether the clients of two orders may meet: they are two, and nothing keeps one of them out.
    fn meets(&self, other: &Order) -> bool {
        let is_other_token = self.token.is_none() || self.token != other.token;
        let is_another = self.who.id != other.who.id && is_other_token;
        let is_kept_out = self.besides.iter().any(|place| other.besides.contains(place));
        is_another && !is_kept_out && [self, other].into_iter().all(|order| is_of_one_task(&order.who))
    }
}

/// Whether nothing shows that several tasks use a connection.
pub(crate) fn is_of_one_task(who: &Who) -> bool {
    !who.habits.is_shared.load(Ordering::Relaxed) && !who.habits.is_pooled.load(Ordering::Relaxed)
}
