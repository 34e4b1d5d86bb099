//! Making a sorted set of members that come in any order, all at once.
//!
//! Members are gathered in one buffer and found by their hashes, then sorted once. That takes a fraction of
//! the time of inserting each into a ranking.

use std::cmp::Ordering;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::packing::Packed;
use crate::values::pairs;
use crate::values::{Limit, Structure};

/// Members with scores, in the order in which they came until they are [sorted](Gathering::sort).
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// All members, one behind the other.
    bytes: Vec<u8>,
    members: Vec<Member>,
    /// The position of each member, by its hash. Empty once the members are sorted.
    positions: HashTable<usize>,
    hasher: RandomState,
    longest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    start: usize,
    length: usize,
    score: f64,
}

impl Gathering {
    /// A gathering with room for `members`. The caller has counted them.
    pub(crate) fn with_room(members: usize) -> Gathering {
        let hasher = RandomState::default();
        let positions = HashTable::with_capacity(members);
        Gathering { members: Vec::with_capacity(members), positions, hasher, ..Gathering::default() }
    }

    /// Inserts a member with its score; returns false if it is there already.
    pub(crate) fn insert(&mut self, member: &[u8], score: f64) -> bool {
        let mut is_new = true;
        self.merge(member, score, |before| {
            is_new = false;
            before
        });
        is_new
    }

    /// Inserts a member with its score. A member that is there gets the score that the function makes of its
    /// own.
    pub(crate) fn merge(&mut self, member: &[u8], score: f64, change: impl FnOnce(f64) -> f64) {
        let Gathering { bytes, members, positions, hasher, .. } = self;
        let hash = hasher.hash_one(member);
        if let Some(position) = positions.find(hash, |position| members[*position].of(bytes) == member) {
            let there = &mut members[*position];
            there.score = change(there.score);
            return;
        }
        let position = members.len();
        self.add(member, score);
        let Gathering { bytes, members, positions, hasher, .. } = self;
        positions.insert_unique(hash, position, |position| hasher.hash_one(members[*position].of(bytes)));
    }

    /// Appends a member that is not there, of which the caller is sure. It will not be found.
    pub(crate) fn add(&mut self, member: &[u8], score: f64) {
        self.members.push(Member { start: self.bytes.len(), length: member.len(), score });
        self.bytes.extend_from_slice(member);
        self.longest = self.longest.max(member.len());
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Sorts the members, and ends the gathering: nothing can be found from here on.
    pub(crate) fn sort(&mut self) {
        self.positions = HashTable::new();
        let bytes = &self.bytes;
        let order = |one: &Member, other: &Member| {
            // -0 and +0 are equal here, and no score is NaN.
            let by_score = one.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| one.of(bytes).cmp(other.of(bytes)))
        };
        self.members.sort_unstable_by(order);
    }

    /// The members with their scores.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], f64)> + Clone {
        self.members.iter().map(|member| (member.of(&self.bytes), member.score))
    }

    /// Makes the sorted set: packs it into an empty buffer, or returns it if it is large.
    pub(crate) fn finish(self, limit: Limit, value: &mut Vec<u8>) -> Option<Structure> {
        self.make(limit, value, Packed::of)
    }

    /// The same for a sorted set from a file: there a small one may have the score -0, too.
    pub(crate) fn finish_as_stored(self, limit: Limit, value: &mut Vec<u8>) -> Option<Structure> {
        self.make(limit, value, Packed::as_stored)
    }

    fn make(mut self, limit: Limit, value: &mut Vec<u8>, pack: fn(f64) -> Packed) -> Option<Structure> {
        self.sort();
        if !limit.allows(self.len(), self.longest, self.bytes.len()) {
            let mut ranking = Structure::ranking();
            ranking.fill(self.iter());
            return Some(Structure::Ranking(ranking));
        }
        value.extend_from_slice(pairs::EMPTY);
        self.iter().for_each(|(member, score)| pairs::push(value, member, pack(score).bytes()));
        None
    }
}

impl Member {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..][..self.length]
    }
}
