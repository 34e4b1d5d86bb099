//! The fields of [`Config`](super::Config). The code that needs a value reads its field without a lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::kinds::Value;

/// The value of a whole number.
#[derive(Debug, Default)]
pub struct Integer(AtomicI64);

impl Integer {
    /// The current value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The current value of a parameter whose range begins at zero.
    pub fn size(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(0)
    }

    /// Corrects the value to what the system allows.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The value of a yes or no.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    /// The current value.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: bool) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The value of a text.
#[derive(Debug, Default)]
pub struct Text(RwLock<Arc<[u8]>>);

impl Text {
    /// The current value.
    pub fn get(&self) -> Arc<[u8]> {
        Arc::clone(&self.0.read())
    }

    pub(super) fn set(&self, value: Arc<[u8]>) {
        // Most texts are empty. All instances share one empty text, which takes no memory.
        *self.0.write() = if value.is_empty() { Arc::default() } else { value };
    }
}

/// The place of the chosen word in its list.
#[derive(Debug, Default)]
pub struct Choice(AtomicUsize);

impl Choice {
    /// The current value.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Chooses another word, such as the one that `auto` stands for on this machine.
    pub fn set(&self, place: usize) {
        self.0.store(place, Ordering::Relaxed);
    }
}

/// The values of parameters without an effect, by their names: those that were ever set.
#[derive(Debug, Default)]
pub(super) struct InertValues(RwLock<BTreeMap<&'static str, Value>>);

impl InertValues {
    /// The current value, if it was ever set.
    pub(super) fn get(&self, name: &str) -> Option<Value> {
        self.0.read().get(name).cloned()
    }

    pub(super) fn set(&self, name: &'static str, value: Value) {
        self.0.write().insert(name, value);
    }
}
