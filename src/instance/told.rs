//! What the log has said once and need not say again.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Names about which the log has said something.
#[derive(Debug, Default)]
pub struct Told(Mutex<BTreeSet<Vec<u8>>>);

/// So many names are remembered. A client may invent them, and the log has a line for each.
const NAMES_MAX: usize = 64;
/// A longer name is none that a user means.
const NAME_BYTES_MAX: usize = 64;

impl Told {
    /// Whether the log should say something about a name, in any case: it has not yet.
    pub fn is_new(&self, name: &[u8]) -> bool {
        let mut names = self.0.lock();
        let has_room = names.len() < NAMES_MAX && name.len() <= NAME_BYTES_MAX;
        has_room && names.insert(name.to_ascii_lowercase())
    }
}
