//! What a commit is worth: how many replicas confirm it, and whether PostgreSQL has warned that it may be
//! lost.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio_postgres::error::DbError;

/// What decides how many replicas confirm a commit: the settings `synchronous_commit` and
/// `synchronous_standby_names`. Each batch returns them.
pub(super) const DURABILITY: &str =
    "current_setting('synchronous_commit') || ' ' || current_setting('synchronous_standby_names')";

/// How many replicas confirm a commit under these settings.
///
/// # Errors
///
/// If commits wait for less than that a replica has them on disk.
pub(super) fn confirmations(durability: &str) -> Result<u64, String> {
    let (commit, names) = durability.split_once(' ').unwrap_or((durability, ""));
    if matches!(commit, "off" | "local" | "remote_write") {
        return Err(format!("synchronous_commit is {commit}"));
    }
    let mut words = names.split([' ', '(', '\t', '\n']).filter(|word| !word.is_empty());
    let first = words.next();
    let number = match first {
        Some(word) if ["any", "first"].contains(&word.to_ascii_lowercase().as_str()) => words.next(),
        word => word,
    };
    Ok(match (first, number.and_then(|number| number.parse().ok())) {
        (None, _) => 0,
        // A list alone stands for its first replica.
        (Some(_), number) => number.unwrap_or(1),
    })
}

/// Whether commits are still confirmed by as many replicas as before: `most` is what this front-end has seen.
///
/// # Errors
///
/// With what has become weaker.
pub(super) fn expect_no_less(most: &AtomicU64, durability: &str) -> Result<(), String> {
    let confirmations = confirmations(durability)?;
    let before = most.fetch_max(confirmations, Ordering::Relaxed);
    match confirmations < before {
        true => Err(format!(
            "synchronous_standby_names now asks for {confirmations} confirmations, and before for {before}"
        )),
        false => Ok(()),
    }
}

/// The warnings of a connection.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    may_be_lost: AtomicBool,
    /// Where in PostgreSQL warnings came from that were logged.
    logged: Mutex<HashSet<String>>,
}

/// The function of PostgreSQL that waits for the replicas.
const WAIT: &str = "SyncRepWaitForLSN";
/// Kinds of warnings that are remembered.
const LOGGED_MAX: usize = 100;

impl Warnings {
    /// Takes a warning. All but those of the wait for the replicas concern people only. One of a kind is
    /// logged: PostgreSQL may repeat it with each transaction.
    pub(super) fn hear(&self, warning: &DbError) {
        let says_so = || warning.message().contains("synchronous replication");
        if warning.routine().map_or_else(says_so, |routine| routine == WAIT) {
            self.may_be_lost.store(true, Ordering::Release);
            tracing::warn!("The store warns: {}", warning.message());
            return;
        }
        let kind = format!("{} {}", warning.code().code(), warning.routine().unwrap_or_default());
        let mut logged = self.logged.lock();
        if logged.len() < LOGGED_MAX && logged.insert(kind) {
            tracing::warn!("The store warns: {}", warning.message());
        }
    }

    /// Whether a commit may be lost that has succeeded.
    pub(super) fn may_be_lost(&self) -> bool {
        self.may_be_lost.load(Ordering::Acquire)
    }

    /// Forgets those that came while the connection was made.
    pub(super) fn forget(&self) {
        self.may_be_lost.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_say_how_many_replicas_confirm_a_commit() {
        let expected = [
            ("on ", 0),
            ("on *", 1),
            ("on n1, n2", 1),
            ("on ANY 1 (n1, n2)", 1),
            ("remote_apply any 2(n1,n2,n3)", 2),
            ("on FIRST 3 (a, b, c, d)", 3),
            ("on 2 (a, b, c)", 2),
            ("on \"any\"", 1),
        ];
        for (durability, number) in expected {
            assert_eq!(confirmations(durability), Ok(number), "{durability}");
        }
        for commit in ["off", "local", "remote_write"] {
            assert!(confirmations(&format!("{commit} ANY 1 (n1, n2)")).is_err());
        }
    }
}
