//! The order of clients that wait for a key: the first to come is the first to be served.
//!
//! Keys in memory and keys in a store have such lines. A client that waits for several keys stands in several
//! lines, with the same [`Ticket`], and it keeps its ticket when it tries again. A line decides nothing but
//! who is next: it knows no lock, no clock and no store. Who asks for the next one, and when, is up to the
//! keyspace (`following/blocked.rs`) and to the store (`remote/lines.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::LazyLock;

use foldhash::quality::RandomState;

use crate::values::ABSENT_KIND;

/// A client's place in all its lines. Those with lower numbers came earlier.
pub(crate) type Ticket = u64;

/// What a client in a line wants of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// Something of its value.
    Value,
    /// The lock, or a permit of it.
    Lock,
    /// This lock and others, all at once.
    Locks,
    /// A permit of this lock and of others, all at once.
    Permits,
}

/// A client in a line.
pub(crate) trait Waits {
    /// The kind of the values that it waits for; [`ABSENT_KIND`] if it waits until the key is absent.
    fn kind(&self) -> u8;

    /// What it wants.
    fn want(&self) -> Want {
        if self.kind() == ABSENT_KIND { Want::Lock } else { Want::Value }
    }

    /// The token by which a client that comes again finds its place, if it has one.
    fn token(&self) -> Option<&[u8]> {
        None
    }
}

/// How tokens are hashed: a line of thousands is not searched one by one.
static TOKENS: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// The clients that wait for one key.
#[derive(Debug)]
pub(crate) struct Line<W> {
    clients: BTreeMap<Ticket, W>,
    /// Those that wait until the key is absent, by what they want.
    for_absence: BTreeSet<(Want, Ticket)>,
    /// The hashes of their tokens.
    tokens: BTreeSet<(u64, Ticket)>,
}

impl<W> Default for Line<W> {
    fn default() -> Line<W> {
        Line { clients: BTreeMap::new(), for_absence: BTreeSet::new(), tokens: BTreeSet::new() }
    }
}

impl<W: Waits> Line<W> {
    /// Adds a client, or puts it in the place of the one that has this ticket. Returns whether there was
    /// none.
    pub(crate) fn enter(&mut self, ticket: Ticket, client: W) -> bool {
        let was_there = self.leave(ticket);
        if client.kind() == ABSENT_KIND {
            self.for_absence.insert((client.want(), ticket));
        }
        if let Some(token) = client.token() {
            self.tokens.insert((TOKENS.hash_one(token), ticket));
        }
        self.clients.insert(ticket, client);
        !was_there
    }

    /// Removes a client; returns whether it was there.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> bool {
        let Some(left) = self.clients.remove(&ticket) else { return false };
        if left.kind() == ABSENT_KIND {
            self.for_absence.remove(&(left.want(), ticket));
        }
        if let Some(token) = left.token() {
            self.tokens.remove(&(TOKENS.hash_one(token), ticket));
        }
        true
    }

    /// The client that has this ticket.
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&W> {
        self.clients.get(&ticket)
    }

    /// The clients with a token, in their order.
    pub(crate) fn with_token<'a>(&'a self, token: &'a [u8]) -> impl Iterator<Item = (Ticket, &'a W)> {
        let hash = TOKENS.hash_one(token);
        let tickets = self.tokens.range((hash, Ticket::MIN)..=(hash, Ticket::MAX)).map(|(_, ticket)| *ticket);
        tickets
            .filter_map(|ticket| Some((ticket, self.clients.get(&ticket)?)))
            .filter(move |(_, client)| client.token() == Some(token))
    }

    /// The clients, in their order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Ticket, &W)> {
        self.clients.iter().map(|(ticket, client)| (*ticket, client))
    }

    /// The clients behind a ticket, in their order.
    pub(crate) fn behind(&self, ticket: Option<Ticket>) -> impl Iterator<Item = &W> {
        let start = ticket.map_or(Bound::Unbounded, Bound::Excluded);
        self.clients.range((start, Bound::Unbounded)).map(|(_, client)| client)
    }

    /// The clients before a ticket, in their order; all clients, if there is none.
    pub(crate) fn before(&self, ticket: Option<Ticket>) -> impl Iterator<Item = &W> {
        let end = ticket.map_or(Bound::Unbounded, Bound::Excluded);
        self.clients.range((Bound::Unbounded, end)).map(|(_, client)| client)
    }

    /// The clients that wait until the key is absent and want this, in their order.
    pub(crate) fn that_want(&self, want: Want) -> impl Iterator<Item = (Ticket, &W)> {
        let tickets = self.for_absence.range((want, Ticket::MIN)..=(want, Ticket::MAX));
        tickets.filter_map(|(_, ticket)| Some((*ticket, self.clients.get(ticket)?)))
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
        self.for_absence.len()
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

    struct Named(&'static str);

    impl Waits for Named {
        fn kind(&self) -> u8 {
            ABSENT_KIND
        }

        fn token(&self) -> Option<&[u8]> {
            Some(self.0.as_bytes())
        }
    }

    #[test]
    fn a_client_is_found_by_its_token_for_as_long_as_it_stands_there() {
        let mut line = Line::default();
        for (ticket, token) in [(1, "a"), (2, "b"), (3, "a")] {
            assert!(line.enter(ticket, Named(token)));
        }
        let found = |line: &Line<Named>, token: &'static str| -> Vec<Ticket> {
            line.with_token(token.as_bytes()).map(|(ticket, _)| ticket).collect()
        };
        assert_eq!((found(&line, "a"), found(&line, "b"), found(&line, "c")), (vec![1, 3], vec![2], vec![]));
        assert!(!line.enter(1, Named("c")) && line.leave(2));
        assert_eq!((found(&line, "a"), found(&line, "b"), found(&line, "c")), (vec![3], vec![], vec![1]));
        assert!(line.leave(1) && line.leave(3) && line.tokens.is_empty() && line.for_absence() == 0);
    }

    #[test]
    fn a_client_that_tries_again_keeps_its_place() {
        let mut line = Line::default();
        assert!(line.enter(1, 0) && line.enter(3, ABSENT_KIND) && line.enter(2, 7));
        assert!(!line.enter(2, 7));
        let order: Vec<Ticket> = line.all().map(|(ticket, _)| ticket).collect();
        assert_eq!((order, line.for_absence(), line.len()), (vec![1, 2, 3], 1, 3));
        assert_eq!(line.that_want(Want::Lock).collect::<Vec<_>>(), [(3, &ABSENT_KIND)]);
        assert_eq!(line.that_want(Want::Permits).next(), None);
        let behind = |ticket| line.behind(ticket).copied().collect::<Vec<u8>>();
        let before = |ticket| line.before(ticket).copied().collect::<Vec<u8>>();
        let (all, none) = (vec![0, 7, ABSENT_KIND], vec![]);
        assert_eq!([None, Some(1), Some(3)].map(behind), [all.clone(), all[1..].to_vec(), none.clone()]);
        assert_eq!([None, Some(3), Some(1)].map(before), [all.clone(), all[..2].to_vec(), none]);
        assert!(line.leave(3) && !line.leave(3) && line.leave(1));
        assert!(line.enter(1, ABSENT_KIND));
        assert_eq!((line.behind(None).next(), line.for_absence()), (Some(&ABSENT_KIND), 1));
        assert!(line.leave(1) && line.leave(2) && line.is_empty() && line.for_absence() == 0);
    }
}
