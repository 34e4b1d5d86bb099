//! How many files, and so sockets, the process may have open.
//!
//! The calls are the same everywhere. Where the hard limit of macOS is "none", it takes 10,240 and refuses more.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The largest limit that macOS takes.
const MACOS_FILES_MAX: u64 = 10_240;

/// Raises the limit to so many files, or as near to them as the hard limit allows, which stays. Returns the
/// limit; `None` if the system does not say what it is.
pub(crate) fn raise_open_files(wanted: u64) -> Option<u64> {
    let (limit, hard_limit) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    if limit >= wanted {
        return Some(limit);
    }
    let possible = if cfg!(target_os = "macos") { hard_limit.min(MACOS_FILES_MAX) } else { hard_limit };
    let raised = wanted.min(possible).max(limit);
    Some(setrlimit(Resource::RLIMIT_NOFILE, raised, hard_limit).map_or(limit, |()| raised))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_and_never_lowered() {
        let (limit, hard_limit) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(raise_open_files(1), Some(limit));
        let wanted = (limit + 1).min(hard_limit);
        assert_eq!(raise_open_files(wanted), Some(wanted));
        let (now, hard_now) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!((now, hard_now), (wanted, hard_limit));
    }
}
