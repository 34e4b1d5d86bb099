//! Collections that are too large to be packed into an entry, as trees of pages.
//!
//! There is one kind of page: some 2 KiB of packed records in one allocation. Two directories stand above it.
//! A [`Map`] finds bytes by a name, through a trie of the name's hash. A [`Sequence`] keeps records in an
//! order and finds them by their position, through a B+ tree that counts. A [`Ranking`] is made of both: it
//! keeps members in the order of their scores, and so is an [`ExpiringMap`], of which some elements have a
//! moment. A [`Ledger`] has entries in the order of their IDs, in
//! blocks of its own.
//!
//! All share: a copy takes the same nodes in constant time, and a write copies only the nodes on its way if
//! another copy has them, too. All keep the count of their bytes, and all leave [`Remains`] when they are
//! emptied, which can be freed in small steps. They know no types, no keys and no time, and they take chance
//! as an argument.

pub(crate) mod ledger;

mod expiring;
mod map;
mod page;
mod ranking;
mod remains;
mod sequence;

pub(crate) use expiring::ExpiringMap;
pub(crate) use ledger::Ledger;
pub use map::Map;
pub use ranking::Ranking;
pub use remains::Remains;
pub(crate) use sequence::Records;
pub use sequence::Sequence;
