//! Requests that read very many keys one after the other, and are to see them as of one moment; and requests
//! that give a key away, and must know whether it is still what they have sent.
//!
//! Such a request says which keys it may read, while it holds everything. From then on each change of such a
//! key marks its survey. If it comes to its end without a mark, all keys that it has read are still as they
//! were at its beginning, so what it has read is that one moment. Otherwise it begins again.
//!
//! No change can be missed. A transaction that changes a key holds its shard, and has locked it after the
//! survey began. So it knows of the survey: it looks for the interest of others after it has its locks.
//!
//! A survey of one key ([`KeySurvey`]) begins while only that key is held. No two are of the same key: a key
//! is given away by one request at a time. Until that has ended, no other server can give it back: it would
//! replace a value that is on its way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::sync::Arc;

use crate::keyspace::transaction::following::Followers;
use crate::keyspace::transaction::following::watching::Mark;
use crate::keyspace::transaction::{Everything, Transaction};
use crate::sync::Mutex;

/// Keys that a survey may read.
#[derive(Debug)]
pub enum Surveyed {
    /// Exactly this key.
    Key(Box<[u8]>),
    /// All keys that begin and end with these, and have any bytes between them.
    Around(Box<[u8]>, Box<[u8]>),
}

impl Surveyed {
    fn has(&self, key: &[u8]) -> bool {
        match self {
            Surveyed::Key(own) => **own == *key,
            Surveyed::Around(prefix, suffix) => {
                key.strip_prefix(&**prefix).is_some_and(|rest| rest.ends_with(suffix))
            }
        }
    }
}

/// All surveys that go on.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Surveys(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    /// Surveys of many keys. There are no more than threads that serve clients.
    wide: Vec<Ongoing>,
    /// Surveys of one key, by database and key.
    of_keys: HashMap<usize, HashMap<Box<[u8]>, Arc<Mark>>>,
}

impl All {
    fn is_empty(&self) -> bool {
        self.wide.is_empty() && self.of_keys.is_empty()
    }

    fn mark_wide(&self, database: usize, key: &[u8]) {
        for survey in self.wide.iter().filter(|survey| survey.database == database) {
            if survey.keys.iter().any(|keys| keys.has(key)) {
                survey.mark.set();
            }
        }
    }
}

#[derive(Debug)]
struct Ongoing {
    database: usize,
    keys: Vec<Surveyed>,
    mark: Arc<Mark>,
}

impl Surveys {
    /// Marks the surveys that may read this key.
    #[cold]
    pub(in crate::keyspace) fn mark(&self, database: usize, key: &[u8]) {
        let all = self.0.lock();
        all.mark_wide(database, key);
        all.of_keys.get(&database).and_then(|keys| keys.get(key)).into_iter().for_each(|mark| mark.set());
    }

    /// Marks the surveys that may read this key, which was lost and which no client has changed. That
    /// concerns no [`KeySurvey`]: what was sent is still what the key was last.
    #[cold]
    pub(in crate::keyspace) fn mark_lost(&self, database: usize, key: &[u8]) {
        self.0.lock().mark_wide(database, key);
    }

    /// Marks all surveys.
    #[cold]
    pub(in crate::keyspace) fn mark_all(&self) {
        let all = self.0.lock();
        all.wide.iter().for_each(|survey| survey.mark.set());
        all.of_keys.values().flat_map(HashMap::values).for_each(|mark| mark.set());
    }
}

/// A survey that goes on until this is dropped.
#[derive(Debug)]
pub struct Survey<'a> {
    followers: &'a Followers,
    mark: Arc<Mark>,
}

impl Survey<'_> {
    /// Whether a key that it may have read has changed since it began.
    pub fn is_overtaken(&self) -> bool {
        self.mark.is_set()
    }
}

impl Drop for Survey<'_> {
    fn drop(&mut self) {
        let Followers { interest, surveys, .. } = self.followers;
        let mut surveys = surveys.0.lock();
        surveys.wide.retain(|survey| !Arc::ptr_eq(&survey.mark, &self.mark));
        interest.set_surveyed(!surveys.is_empty());
    }
}

impl<'a, T: Deref<Target = Transaction<'a>>> Everything<T> {
    /// Begins a survey of keys of the current database.
    pub fn begin_survey(&self, keys: Vec<Surveyed>) -> Survey<'a> {
        let (followers, mark) = (self.keyspace().followers(), Arc::<Mark>::default());
        let mut surveys = followers.surveys.0.lock();
        surveys.wide.push(Ongoing { database: self.database(), keys, mark: Arc::clone(&mark) });
        followers.interest.set_surveyed(true);
        drop(surveys);
        Survey { followers, mark }
    }
}

/// A survey of one key that goes on until this is dropped. It outlives the transaction that began it.
#[derive(Debug)]
pub struct KeySurvey {
    followers: Arc<Followers>,
    database: usize,
    key: Box<[u8]>,
    mark: Arc<Mark>,
}

impl KeySurvey {
    /// Whether a client has changed or deleted the key since the survey began.
    pub fn is_overtaken(&self) -> bool {
        self.mark.is_set()
    }
}

impl Drop for KeySurvey {
    fn drop(&mut self) {
        let Followers { interest, surveys, .. } = &*self.followers;
        let mut surveys = surveys.0.lock();
        if let Entry::Occupied(mut keys) = surveys.of_keys.entry(self.database) {
            keys.get_mut().remove(&self.key);
            if keys.get().is_empty() {
                keys.remove();
            }
        }
        interest.set_surveyed(!surveys.is_empty());
    }
}

impl Transaction<'_> {
    /// Begins a survey of a key, which the transaction holds. `None` if there is one already.
    pub fn begin_key_survey(&self, key: &[u8]) -> Option<KeySurvey> {
        let (followers, database) = (Arc::clone(&self.keyspace().followers), self.database());
        let mut surveys = followers.surveys.0.lock();
        let Entry::Vacant(place) = surveys.of_keys.entry(database).or_default().entry(key.into()) else {
            return None;
        };
        let mark = Arc::clone(place.insert(Arc::default()));
        followers.interest.set_surveyed(true);
        drop(surveys);
        Some(KeySurvey { followers, database, key: key.into(), mark })
    }

    /// Whether a request is giving a key away, which the transaction holds.
    pub fn is_given_away(&self, key: &[u8]) -> bool {
        let surveys = &self.keyspace().followers.surveys;
        self.wanted.surveyed()
            && surveys.0.lock().of_keys.get(&self.database()).is_some_and(|keys| keys.contains_key(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Expiry, Keyspace};

    fn put(keyspace: &Keyspace, database: usize, key: &[u8], expiry: Expiry) {
        keyspace.begin(database, key).unwrap().put(key, b"v", expiry);
    }

    #[test]
    fn a_survey_is_overtaken_by_changes_of_keys_that_it_may_read() {
        let keyspace = Keyspace::alone(2);
        keyspace.clock().freeze();
        let now_ms = keyspace.clock().now_ms();
        put(&keyspace, 0, b"weight:old:kg", Expiry::At(now_ms + 1000));
        let keys = || {
            let around = Surveyed::Around(b"weight:"[..].into(), b":kg"[..].into());
            vec![Surveyed::Key(b"l"[..].into()), around]
        };
        let is_overtaken_by = |change: &dyn Fn()| {
            let survey = keyspace.begin_all(0).unwrap().begin_survey(keys());
            change();
            survey.is_overtaken()
        };
        assert!(!is_overtaken_by(&|| ()));
        for (key, expected) in [
            (&b"l"[..], true),
            (b"ll", false),
            (b"weight:1:kg", true),
            (b"weight::kg", true),
            (b"weight:kg", false),
            (b"weight:1:lb", false),
            (b"a weight:1:kg", false),
        ] {
            let name = key.escape_ascii().to_string();
            assert_eq!(is_overtaken_by(&|| put(&keyspace, 0, key, Expiry::Never)), expected, "{name}");
            assert!(!is_overtaken_by(&|| put(&keyspace, 1, key, Expiry::Never)), "{name}");
            let read = || assert!(keyspace.begin(0, key).unwrap().get_bytes(key).is_some());
            assert!(!is_overtaken_by(&read), "{name}");
            let remove = || assert!(keyspace.begin(0, key).unwrap().remove(key));
            assert_eq!(is_overtaken_by(&remove), expected, "{name}");
        }
        assert!(is_overtaken_by(&|| keyspace.begin_all(1).unwrap().swap_databases(0, 1)));
        assert!(is_overtaken_by(&|| keyspace.begin_all(1).unwrap().swap_databases(0, 1)));
        keyspace.clock().set(now_ms + 1000).unwrap();
        let free = || keyspace.begin_all(0).unwrap().free_all_expired();
        assert!(is_overtaken_by(&free), "the key expired after the survey had begun, for all it knows");
        assert!(is_overtaken_by(&|| keyspace.begin_all(0).unwrap().flush_database()));
    }

    #[test]
    fn a_key_has_one_survey_which_changes_by_clients_overtake() {
        let keyspace = Keyspace::alone(2);
        keyspace.clock().freeze();
        let now_ms = keyspace.clock().now_ms();
        let begin = || keyspace.begin(0, b"k").unwrap().begin_key_survey(b"k");
        let survey = begin().unwrap();
        assert!(begin().is_none(), "there is one");
        let is_given_away = |key: &[u8]| keyspace.begin(0, key).unwrap().is_given_away(key);
        assert!(is_given_away(b"k") && !is_given_away(b"other"));
        put(&keyspace, 1, b"k", Expiry::Never);
        put(&keyspace, 0, b"other", Expiry::Never);
        assert!(!survey.is_overtaken());
        put(&keyspace, 0, b"k", Expiry::At(now_ms + 1000));
        assert!(survey.is_overtaken());
        drop(survey);
        let survey = begin().unwrap();
        keyspace.clock().set(now_ms + 1000).unwrap();
        keyspace.begin_all(0).unwrap().free_all_expired();
        assert!(!survey.is_overtaken(), "what was sent expires where it was sent, too");
        put(&keyspace, 0, b"k", Expiry::Never);
        assert!(survey.is_overtaken());
        drop(survey);
        let survey = begin().unwrap();
        keyspace.begin_all(0).unwrap().flush_database();
        assert!(survey.is_overtaken());
        drop(survey);
        assert!(!keyspace.begin_all(0).unwrap().wanted.changes(), "no survey goes on");
        assert!(!keyspace.begin(0, b"k").unwrap().is_given_away(b"k"));
    }

    #[test]
    fn surveys_end_one_by_one() {
        let keyspace = Keyspace::alone(1);
        let begin = || {
            let keys = vec![Surveyed::Key(b"k"[..].into())];
            keyspace.begin_all(0).unwrap().begin_survey(keys)
        };
        let (first, second) = (begin(), begin());
        drop(first);
        put(&keyspace, 0, b"k", Expiry::Never);
        assert!(second.is_overtaken() && !begin().is_overtaken());
        drop(second);
        assert!(!keyspace.begin_all(0).unwrap().wanted.changes(), "no survey goes on");
    }
}
