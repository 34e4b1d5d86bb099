//! The names of what has a [guard](super::guards), an [alarm](super::alarms), or a place on a
//! [lifeline](super::lifelines): a key, or one of the permits there.

/// A key, or one of the permits there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Guarded {
    pub(in crate::keyspace) database: usize,
    pub(in crate::keyspace) key: Box<[u8]>,
    /// The token of the permit; `None` for the key itself.
    pub(in crate::keyspace) permit: Option<Box<[u8]>>,
}

impl Guarded {
    /// The key itself.
    pub(crate) fn key(database: usize, key: &[u8]) -> Guarded {
        Guarded::new(database, key, None)
    }

    /// The permit of a token there, if there is one.
    pub(crate) fn new(database: usize, key: &[u8], permit: Option<&[u8]>) -> Guarded {
        Guarded { database, key: key.into(), permit: permit.map(Box::from) }
    }
}
