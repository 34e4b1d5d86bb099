//! The names of keys in etcd, and the form of values.
//!
//! `etcdctl get --prefix keyfast/` shows all of it. Behind the prefix:
//!
//! - `format` is the version of this form.
//! - `k/<database>/<slot>/<name>` is a key. Its slot, a hash of 16 digits, stands before its name so that
//!   SCAN can go on from a number.
//! - `w/<database>/<slot>/<name>` is the mark of an absent key that is watched.
//! - `f/<front-end>` is a front-end's ledger.
//! - `n/<front-end>` says that a front-end is there, and holds its news.
//!
//! A value begins with one line: the version of the form, the type, the moment of the expiry in milliseconds
//! since 1970 or `-`, `lock` or `-`, the fencing number or 0 if it is the key's `mod_revision`, the moment at
//! which the key has got it, and who has written it. The bytes of the value follow. The moment is there for
//! people and for PTTL: the lease decides.

use std::sync::Arc;

use bytes::Bytes;

use crate::remote::row::{Key, Live, Row, Tenure};
use crate::types;

/// The version of the form.
pub(super) const FORMAT: &str = "1";

/// The names of one prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

/// The meaning of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A key of a client.
    Key(Key),
    /// The ledger of a front-end.
    Ledger(i64),
    /// The news of a front-end.
    News(i64),
}

/// Digits of a slot.
const SLOT_DIGITS: usize = 16;

impl Names {
    pub(super) fn new(prefix: &str) -> Names {
        Names { prefix: prefix.to_owned() }
    }

    /// The name of the version of the form.
    pub(super) fn format(&self) -> Bytes {
        format!("{}format", self.prefix).into()
    }

    /// The name of a client's key: `k/<database>/<slot>/<name>`.
    pub(super) fn key(&self, key: &Key) -> Bytes {
        self.of(b'k', key)
    }

    /// The mark of an absent key that is watched.
    pub(super) fn mark(&self, key: &Key) -> Bytes {
        self.of(b'w', key)
    }

    fn of(&self, room: u8, key: &Key) -> Bytes {
        use std::io::Write;
        let mut name = Vec::with_capacity(self.prefix.len() + key.name.len() + SLOT_DIGITS + 6);
        name.extend_from_slice(self.prefix.as_bytes());
        // A write to a vector cannot fail.
        let _ = write!(name, "{}/{}/{:016x}/", char::from(room), key.database, key.slot());
        name.extend_from_slice(&key.name);
        name.into()
    }

    /// The ledger of a front-end.
    pub(super) fn ledger(&self, front: i64) -> Bytes {
        format!("{}f/{front:016x}", self.prefix).into()
    }

    /// The news of a front-end.
    pub(super) fn news(&self, front: i64) -> Bytes {
        format!("{}n/{front:016x}", self.prefix).into()
    }

    /// All news: from the first name to the one after the last.
    pub(super) fn all_news(&self) -> [Bytes; 2] {
        ["n/", "n0"].map(|end| format!("{}{end}", self.prefix).into())
    }

    /// All keys of a database, or of all.
    pub(super) fn all_keys(&self, database: Option<u32>) -> [Bytes; 2] {
        match database {
            // `0` follows `/`.
            Some(database) => ["/", "0"].map(|end| format!("{}k/{database}{end}", self.prefix).into()),
            None => ["k/", "k0"].map(|end| format!("{}{end}", self.prefix).into()),
        }
    }

    /// All ledgers and all keys, and nothing else: no other room lies between `f` and `k`.
    pub(super) fn all_changes(&self) -> [Bytes; 2] {
        ["f/", "k0"].map(|end| format!("{}{end}", self.prefix).into())
    }

    /// All keys of a database from a slot on.
    pub(super) fn keys_from(&self, database: u32, slot: i64) -> [Bytes; 2] {
        let [_, end] = self.all_keys(Some(database));
        [format!("{}k/{database}/{slot:016x}", self.prefix).into(), end]
    }

    /// The meaning of a name; `None` if it has none here.
    pub(super) fn read(&self, name: &[u8]) -> Option<Named> {
        let (room, rest) = name.strip_prefix(self.prefix.as_bytes())?.split_at_checked(2)?;
        match room {
            b"f/" => Some(Named::Ledger(front_of(rest)?)),
            b"n/" => Some(Named::News(front_of(rest)?)),
            b"k/" => {
                let slash = rest.iter().position(|byte| *byte == b'/')?;
                let database = std::str::from_utf8(&rest[..slash]).ok()?.parse().ok()?;
                let name = rest.get(slash + 1 + SLOT_DIGITS + 1..)?;
                Some(Named::Key(Key { database, name: name.into() }))
            }
            _ => None,
        }
    }
}

fn front_of(digits: &[u8]) -> Option<i64> {
    i64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The content of a ledger: the number of the last batch, and whether it was done. It is greater than that of
/// every earlier batch, and than [`before`] of its own number.
pub(super) fn ledger(number: i64, is_done: bool) -> Bytes {
    format!("{number:019} {}", if is_done { "done" } else { "void" }).into()
}

/// The least content that is greater than every ledger without this batch or a later one.
pub(super) fn before(number: i64) -> Bytes {
    format!("{number:019}").into()
}

/// The value for a row. `since_ms` is when the row got its fencing number, in milliseconds since 1970.
pub(super) fn write(
    live: &Live,
    expires_at_ms: Option<u64>,
    (fence, since_ms): (i64, u64),
    holder: &str,
) -> Bytes {
    let kind = types::ALL.iter().find(|facts| facts.kind == live.kind).map_or("none", |facts| facts.name);
    let expiry = expires_at_ms.map_or("-".to_owned(), |moment_ms| moment_ms.to_string());
    let mark = if live.is_lock { LOCK } else { "-" };
    let holder = holder.replace('\n', " ");
    let mut value = format!("{FORMAT} {kind} {expiry} {mark} {fence} {since_ms} {holder}\n").into_bytes();
    value.extend_from_slice(&live.value);
    value.into()
}

/// Reads a row. A value from another program, or of a later version, gets no type, so that requests for it
/// fail.
pub(super) fn read(value: &Bytes, version: i64) -> Row {
    if let Some(row) = read_row(value, version) {
        return row;
    }
    let live = Live { kind: NO_KIND, value: Bytes::new(), expires_at_ms: None, is_lock: false };
    Row { version, live: Some(live), ..Row::default() }
}

/// The mark of a lock.
const LOCK: &str = "lock";
/// The number for an unknown type.
const NO_KIND: u8 = u8::MAX;

fn read_row(value: &Bytes, version: i64) -> Option<Row> {
    let (head, end) = head(value)?;
    let facts = types::ALL.iter().find(|facts| facts.name == head.kind)?;
    let expires_at_ms = match head.expiry {
        "-" => None,
        moment_ms => Some(moment_ms.parse().ok()?),
    };
    let is_lock = head.mark == LOCK;
    let live = Live { kind: facts.kind, value: value.slice(end + 1..), expires_at_ms, is_lock };
    let mut row = Row { version, live: Some(live), fence: head.fence, tenure: None };
    let tenure = Tenure { holder: head.holder.to_owned(), fence: row.fence(), since_ms: head.since_ms };
    row.tenure = Some(Arc::new(tenure));
    Some(row)
}

/// The name of the type of a value.
pub(super) fn kind_of(value: &Bytes) -> Option<&str> {
    head(value).map(|(head, _)| head.kind)
}

/// The fields of a value's first line.
struct Head<'v> {
    kind: &'v str,
    expiry: &'v str,
    mark: &'v str,
    fence: i64,
    since_ms: u64,
    holder: &'v str,
}

/// The first line's fields, and where the line ends.
fn head(value: &Bytes) -> Option<(Head<'_>, usize)> {
    let end = memchr::memchr(b'\n', value)?;
    let mut fields = std::str::from_utf8(&value[..end]).ok()?.splitn(7, ' ');
    if fields.next()? != FORMAT {
        return None;
    }
    let head = Head {
        kind: fields.next()?,
        expiry: fields.next()?,
        mark: fields.next()?,
        fence: fields.next()?.parse().ok()?,
        since_ms: fields.next()?.parse().ok()?,
        holder: fields.next()?,
    };
    Some((head, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_read_as_they_were_written() {
        let names = Names::new("x/y/");
        let key = Key::new(12, b"a/b\n\xff");
        assert_eq!(names.read(&names.key(&key)), Some(Named::Key(key.clone())));
        assert_eq!(names.read(&names.mark(&key)), None);
        assert_eq!(names.read(&names.ledger(7)), Some(Named::Ledger(7)));
        assert_eq!(names.read(&names.news(i64::MAX)), Some(Named::News(i64::MAX)));
        assert_eq!(names.read(b"x/k/0/"), None);
        let [first, end] = names.all_keys(Some(12));
        let [from, _] = names.keys_from(12, key.slot());
        assert!(first < from && from < names.key(&key) && names.key(&key) < end);
        assert!(names.key(&Key::new(1, b"a")) < first);
        let value = Bytes::from_static(b"v\n");
        for (expires_at_ms, fence, is_lock) in [(Some(9), 0, true), (None, 3, false)] {
            let live = Live { kind: 0, value: value.clone(), expires_at_ms: Some(5), is_lock };
            let row = read(&write(&live, expires_at_ms, (fence, 70), "front id=1\nname"), 4);
            let tenure = Tenure { holder: "front id=1 name".to_owned(), fence: row.fence(), since_ms: 70 };
            let live = Some(Live { expires_at_ms, ..live });
            assert_eq!(row, Row { version: 4, live, fence, tenure: Some(Arc::new(tenure)) });
        }
        for wrong in
            ["", "\n", "2 string - - 0 0 x\n", "1 nothing - - 0 0 x\n", "1 string x - 0 0 x\n", "1 string"]
        {
            let row = read(&Bytes::from_static(wrong.as_bytes()), 1);
            assert_eq!(row.live.map(|live| live.kind), Some(NO_KIND), "{wrong:?}");
        }
    }

    #[test]
    fn a_batch_may_follow_only_those_before_it() {
        for is_done in [false, true] {
            assert!(ledger(8, is_done) < before(9) && ledger(99, is_done) < before(100));
            assert!(ledger(9, is_done) > before(9) && ledger(10, is_done) > before(9));
        }
    }
}
