//! The prefixes of one client: none may begin with another.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// A client's prefixes must not begin with one another.
#[derive(Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The prefix that the client asked for.
    pub prefix: Vec<u8>,
    /// The prefix that overlaps with it.
    pub other: Vec<u8>,
    /// Whether it had that before.
    pub is_old: bool,
}

/// Checks that none of a client's old and new prefixes begins with another.
pub(super) fn check_overlap(old: Option<&BTreeSet<Box<[u8]>>>, new: &[&[u8]]) -> Result<(), Overlap> {
    let mut wanted: BTreeSet<Box<[u8]>> = BTreeSet::new();
    for &prefix in new {
        let overlap = |other: &[u8], prefix: &[u8], is_old| {
            Err(Overlap { prefix: prefix.to_vec(), other: other.to_vec(), is_old })
        };
        if let Some(other) = old.and_then(|old| overlapping(old, prefix)) {
            return overlap(other, prefix, true);
        }
        if let Some(earlier) = overlapping(&wanted, prefix) {
            return overlap(prefix, earlier, false);
        }
        wanted.insert(prefix.into());
    }
    Ok(())
}

/// The prefix in a set that overlaps with this one: one of the two begins with the other. No two prefixes of
/// the set overlap, so only the neighbours of this one in their order can.
fn overlapping<'p>(prefixes: &'p BTreeSet<Box<[u8]>>, prefix: &[u8]) -> Option<&'p [u8]> {
    // A client that listens to everything may have had other prefixes before.
    let all = || prefixes.get(&b""[..]);
    let after = prefixes
        .range::<[u8], _>((Included(prefix), Unbounded))
        .next()
        .filter(|other| other.starts_with(prefix));
    let before = || {
        prefixes
            .range::<[u8], _>((Unbounded, Excluded(prefix)))
            .next_back()
            .filter(|other| prefix.starts_with(other))
    };
    all().or(after).or_else(before).map(|other| &**other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_begin_with_one_another_are_found() {
        let old: BTreeSet<Box<[u8]>> = [&b"foo"[..], b"fop", b"x"].map(Box::from).into();
        let check = |new: &[&[u8]]| check_overlap(Some(&old), new);
        assert_eq!(check(&[b"bar", b"baz", b"foq", b"y"]), Ok(()));
        for (prefix, other) in [(&b"f"[..], &b"foo"[..]), (b"foobar", b"foo"), (b"x", b"x"), (b"", b"foo")] {
            let overlap = Overlap { prefix: prefix.to_vec(), other: other.to_vec(), is_old: true };
            assert_eq!(check(&[b"a", prefix]), Err(overlap));
        }
        let overlap = Overlap { prefix: b"ab".to_vec(), other: b"a".to_vec(), is_old: false };
        assert_eq!(check(&[b"ab", b"a"]), Err(overlap));
    }
}
