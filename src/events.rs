//! The kinds of events that keys have, as `notify-keyspace-events` names them.

/// A kind of events, as `notify-keyspace-events` chooses them; several make a set.
///
/// <https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventClass(u32);

/// The letters of the classes in the order in which CONFIG GET prints them.
const LETTERS: &[(u8, EventClass)] = &[
    (b'g', EventClass::GENERIC),
    (b'$', EventClass::STRING),
    (b'l', EventClass::LIST),
    (b's', EventClass::SET),
    (b'h', EventClass::HASH),
    (b'z', EventClass::SORTED_SET),
    (b'x', EventClass::EXPIRED),
    (b'e', EventClass::EVICTED),
    (b't', EventClass::STREAM),
    (b'd', EventClass::MODULE),
    (b'n', EventClass::NEW),
    (b'o', EventClass::OVERWRITTEN),
    (b'c', EventClass::TYPE_CHANGED),
    (b'K', EventClass::AS_KEYSPACE),
    (b'E', EventClass::AS_KEYEVENT),
    (b'm', EventClass::MISS),
];

impl EventClass {
    /// No class at all: nothing is published.
    pub const NONE: EventClass = EventClass(0);
    /// Events of keys of any type: deletion, expiry that is set, renaming.
    pub const GENERIC: EventClass = EventClass(1);
    /// Events of commands on strings.
    pub const STRING: EventClass = EventClass(1 << 1);
    /// Events of commands on lists.
    pub const LIST: EventClass = EventClass(1 << 2);
    /// Events of commands on sets.
    pub const SET: EventClass = EventClass(1 << 3);
    /// Events of commands on hashes.
    pub const HASH: EventClass = EventClass(1 << 4);
    /// Events of commands on sorted sets.
    pub const SORTED_SET: EventClass = EventClass(1 << 5);
    /// Events of keys that were removed because they had expired.
    pub const EXPIRED: EventClass = EventClass(1 << 6);
    /// Events of keys that were evicted because memory was short.
    pub const EVICTED: EventClass = EventClass(1 << 7);
    /// Events of commands on streams.
    pub const STREAM: EventClass = EventClass(1 << 8);
    /// Events of commands on types that Redis knows only from its modules.
    pub const MODULE: EventClass = EventClass(1 << 9);
    /// Events of keys that a reading command did not find.
    pub const MISS: EventClass = EventClass(1 << 10);
    /// Events of keys that are new.
    pub const NEW: EventClass = EventClass(1 << 11);
    /// Events are published to the channel of their key.
    pub const AS_KEYSPACE: EventClass = EventClass(1 << 12);
    /// Events are published to the channel of their name.
    pub const AS_KEYEVENT: EventClass = EventClass(1 << 13);
    /// Events of keys whose value was replaced by a new one.
    pub const OVERWRITTEN: EventClass = EventClass(1 << 14);
    /// Events of keys whose value was replaced by one of another type.
    pub const TYPE_CHANGED: EventClass = EventClass(1 << 15);
    /// The classes that `A` stands for: all of types, and of what removes keys.
    const ALL: EventClass = EventClass(0x3ff);

    /// Reads letters such as `KEA`; none if one of them is no class.
    pub fn parse(letters: &[u8]) -> Option<EventClass> {
        letters.iter().try_fold(EventClass::NONE, |classes, letter| match letter {
            b'A' => Some(classes.and(EventClass::ALL)),
            _ => {
                let (_, class) = LETTERS.iter().find(|(known, _)| known == letter)?;
                Some(classes.and(*class))
            }
        })
    }

    /// The letters, as CONFIG GET prints them.
    pub fn letters(self) -> Vec<u8> {
        // Redis shows none of the classes of values behind `A`, not even those that `A` leaves out.
        const VALUES: EventClass =
            EventClass::ALL.and(EventClass::NEW).and(EventClass::OVERWRITTEN).and(EventClass::TYPE_CHANGED);
        let all = self.contains(EventClass::ALL);
        let shown =
            LETTERS.iter().filter(|(_, class)| self.contains(*class) && !(all && VALUES.contains(*class)));
        all.then_some(b'A').into_iter().chain(shown.map(|(letter, _)| *letter)).collect()
    }

    /// The classes that these bits stand for.
    pub const fn from_bits(bits: u32) -> EventClass {
        EventClass(bits)
    }

    /// One bit for each class.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The classes of both sets.
    pub const fn and(self, other: EventClass) -> EventClass {
        EventClass(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub fn contains(self, other: EventClass) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_printed_as_redis_prints_them() {
        for (letters, printed) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Kg$lm", "g$lKm"),
            ("g$lshzxetd", "A"),
            ("mn", "nm"),
            ("cnoE", "nocE"),
            ("AKmnoc", "AKm"),
            ("AA", "A"),
        ] {
            let classes = EventClass::parse(letters.as_bytes()).unwrap();
            assert_eq!(classes.letters(), printed.as_bytes(), "{letters}");
        }
        assert_eq!(EventClass::parse(b"KEy"), None);
    }
}
