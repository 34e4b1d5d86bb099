//! Changes of sorted sets, for their commands.

use std::ops::Range;

use super::packing::{self, Found, Packed};
use super::{SortedSet, SortedSetView, score};
use crate::keyspace::Change;
use crate::values::Structure;
use crate::values::pairs::{self, Lengths};
use crate::values::tree::Ranking;

/// From this number of members on, the log has the positions of a removed range rather than its members.
const LOGGED_MEMBERS_MAX: usize = 64;

impl Change<'_, SortedSet> {
    /// Sets the score of a member, which is a number; returns the score that it had before.
    pub fn set_score(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let before = match self.large_mut::<Ranking>() {
            Some(ranking) => ranking.insert(member, score),
            None => {
                let found = packing::find(self.packed(), member);
                let before = found.as_ref().map(|found| found.score);
                self.set_packed(found, member, score)
                    .and_then(|ranking| ranking.insert(member, score))
                    .or(before)
            }
        };
        self.note_score(member, before, score);
        before
    }

    /// Sets the score of a member to what a function makes of its score; without a result nothing changes.
    /// Returns the score that it had before, and the result.
    ///
    /// # Errors
    ///
    /// Those of the function. Nothing changes then.
    pub fn update_score<E>(
        &mut self,
        member: &[u8],
        change: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<(Option<f64>, Option<f64>), E> {
        if let SortedSetView::Large(ranking) = self.view() {
            let before = ranking.score(member);
            let after = change(before)?;
            after.map(|after| self.set_score(member, after));
            return Ok((before, after));
        }
        let found = packing::find(self.packed(), member);
        let before = found.as_ref().map(|found| found.score);
        let Some(after) = change(before)? else { return Ok((before, None)) };
        if let Some(ranking) = self.set_packed(found, member, after) {
            ranking.insert(member, after);
        }
        self.note_score(member, before, after);
        Ok((before, Some(after)))
    }

    /// Sets the score of a member that was found, or not, in a packed sorted set. Returns the ranking that it
    /// has become if it has no room for the member, which is to be inserted there.
    fn set_packed(&mut self, found: Option<Found>, member: &[u8], score: f64) -> Option<&mut Ranking> {
        let (limit, packed) = (self.limit(), self.packed());
        let score_bytes = Packed::of(score);
        let lengths = Lengths::of(member, score_bytes.bytes());
        let record = lengths.parts(member, score_bytes.bytes());
        if let Some(found) = found {
            if found.score != score {
                self.move_packed(found, member, score, record);
            }
            return None;
        }
        let members = SortedSetView::Packed(packed).len() + 1;
        if !limit.allows(members, member.len(), packed.len() + member.len()) {
            self.unpack();
            return self.large_mut::<Ranking>();
        }
        let place = packing::place(packed, pairs::FIRST, member, score);
        self.splice_pairs(place..place, &record, members);
        None
    }

    /// Replaces a record by another one, which may belong to another place: the records between are moved.
    fn move_packed(&mut self, found: Found, member: &[u8], score: f64, record: [&[u8]; 5]) {
        let (old, [lengths, name_length, name, score_length, bytes]) = (found.record, record);
        if score > found.score {
            let place = packing::place(self.packed(), old.end, member, score);
            let between = self.packed()[old.end..place].to_vec();
            let parts = [&between, lengths, name_length, name, score_length, bytes];
            self.splice(old.start..place, &parts, 0);
        } else {
            let place = packing::place(self.packed(), pairs::FIRST, member, score);
            let between = self.packed()[place..old.start].to_vec();
            let parts = [lengths, name_length, name, score_length, bytes, &between];
            self.splice(place..old.end, &parts, 0);
        }
    }

    /// Removes a member; returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let was_there = match self.large_mut::<Ranking>() {
            Some(ranking) => ranking.remove(member).is_some(),
            None => match packing::find(self.packed(), member) {
                Some(found) => {
                    let members = pairs::count(self.packed()) - 1;
                    self.splice_pairs(found.record, &[], members);
                    true
                }
                None => false,
            },
        };
        if was_there {
            self.touch(member);
            self.note("ZREM", &[member]);
        }
        was_there
    }

    /// Removes the members at some positions that there are.
    pub fn remove_range(&mut self, positions: Range<usize>) {
        if positions.is_empty() {
            return;
        }
        self.note_removal(positions.clone());
        let bytes_before = self.large_bytes();
        if let Some(ranking) = self.large_mut::<Ranking>() {
            let remains = ranking.remove_range(positions);
            let bytes = bytes_before.saturating_sub(self.large_bytes());
            self.leave(remains, bytes);
        } else {
            let records = packing::records(self.packed(), positions.clone());
            let members = pairs::count(self.packed()) - positions.len();
            self.splice_pairs(records, &[], members);
        }
    }

    /// Removes the members at some positions of a large sorted set, of which these are all the others. That
    /// takes no time.
    pub fn leave_only(&mut self, staying: &Ranking, positions: Range<usize>) {
        if positions.is_empty() {
            return;
        }
        self.note_removal(positions);
        let bytes_before = self.large_bytes();
        if let Some(ranking) = self.large_mut::<Ranking>() {
            let remains = std::mem::replace(ranking, staying.share()).clear();
            let bytes = bytes_before.saturating_sub(self.large_bytes());
            self.leave(remains, bytes);
        }
    }

    fn note_score(&mut self, member: &[u8], before: Option<f64>, score: f64) {
        if before == Some(score) {
            return;
        }
        self.touch(member);
        if !self.is_logged() {
            return self.count_more(1);
        }
        // A packed sorted set keeps +0 where -0 was given.
        let kept = if self.view().is_packed() { score + 0.0 } else { score };
        let mut text = Vec::new();
        score::write(&mut text, kept);
        self.note("ZADD", &[&text, member]);
    }

    /// Notes that members are about to be removed: a few by their names, many by their positions.
    fn note_removal(&mut self, positions: Range<usize>) {
        if self.wants_touched() {
            let members: Vec<Vec<u8>> =
                self.view().range(positions.clone()).map(|(member, _)| member.to_vec()).collect();
            members.iter().for_each(|member| self.touch(member));
        }
        if !self.is_logged() {
            return self.count_more(positions.len());
        }
        if positions.len() > LOGGED_MEMBERS_MAX {
            let (mut first, mut last) = (itoa::Buffer::new(), itoa::Buffer::new());
            let range = [first.format(positions.start), last.format(positions.end - 1)];
            self.note_alone("ZREMRANGEBYRANK", &range.map(str::as_bytes));
            return self.count_more(positions.len() - 1);
        }
        let members: Vec<Vec<u8>> = self.view().range(positions).map(|(member, _)| member.to_vec()).collect();
        members.iter().for_each(|member| self.note("ZREM", &[member]));
    }

    /// Turns a packed sorted set into a ranking.
    #[cold]
    fn unpack(&mut self) {
        let ranking = packing::unpacked(self.packed());
        self.enlarge(Structure::Ranking(ranking));
    }
}
