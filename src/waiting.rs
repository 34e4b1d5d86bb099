//! The order of clients that wait for a key: the first to come is the first to be served.
//!
//! Keys in memory and keys in a store have such lines. A client that waits for several keys stands in several
//! lines, with the same [`Ticket`], and it keeps its ticket when it tries again. A line decides nothing but
//! who is next: it knows no lock, no clock and no store. Who asks for the next one, and when, is up to the
//! keyspace (`following/blocked.rs`) and to the store (`remote/lines.rs`).

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::values::ABSENT_KIND;

/// A client's place in all its lines. Those with lower numbers came earlier.
pub(crate) type Ticket = u64;

/// A client in a line.
pub(crate) trait Waits {
    /// The kind of the values that it waits for; [`ABSENT_KIND`] if it waits until the key is absent.
    fn kind(&self) -> u8;
}

/// The clients that wait for one key.
#[derive(Debug)]
pub(crate) struct Line<W> {
    clients: BTreeMap<Ticket, W>,
    /// How many of them wait until the key is absent.
    for_absence: usize,
}

impl<W> Default for Line<W> {
    fn default() -> Line<W> {
        Line { clients: BTreeMap::new(), for_absence: 0 }
    }
}

impl<W: Waits> Line<W> {
    /// Adds a client; returns whether it was not there.
    pub(crate) fn enter(&mut self, ticket: Ticket, client: W) -> bool {
        let is_for_absence = client.kind() == ABSENT_KIND;
        let is_new = self.clients.insert(ticket, client).is_none();
        self.for_absence += usize::from(is_new && is_for_absence);
        is_new
    }

    /// Removes a client; returns whether it was there.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> bool {
        let left = self.clients.remove(&ticket);
        self.for_absence -= usize::from(left.as_ref().is_some_and(|client| client.kind() == ABSENT_KIND));
        left.is_some()
    }

    /// The clients, in their order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Ticket, &W)> {
        self.clients.iter().map(|(ticket, client)| (*ticket, client))
    }

    /// The first client behind a ticket.
    pub(crate) fn next(&self, behind: Option<Ticket>) -> Option<&W> {
        let start = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.clients.range((start, Bound::Unbounded)).next().map(|(_, client)| client)
    }

    /// How many clients there are.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// How many of them wait until the key is absent.
    pub(crate) fn for_absence(&self) -> usize {
        self.for_absence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waits for u8 {
        fn kind(&self) -> u8 {
            *self
        }
    }

    #[test]
    fn a_client_that_tries_again_keeps_its_place() {
        let mut line = Line::default();
        assert!(line.enter(1, 0) && line.enter(3, ABSENT_KIND) && line.enter(2, 7));
        assert!(!line.enter(2, 7));
        let order: Vec<Ticket> = line.all().map(|(ticket, _)| ticket).collect();
        assert_eq!((order, line.for_absence(), line.len()), (vec![1, 2, 3], 1, 3));
        assert_eq!(
            [None, Some(1), Some(3)].map(|behind| line.next(behind).copied()),
            [Some(0), Some(7), None]
        );
        assert!(line.leave(3) && !line.leave(3) && line.leave(1));
        assert!(line.enter(1, ABSENT_KIND));
        assert_eq!((line.next(None), line.for_absence()), (Some(&ABSENT_KIND), 1));
        assert!(line.leave(1) && line.leave(2) && line.is_empty() && line.for_absence() == 0);
    }
}
