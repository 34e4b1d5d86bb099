//! What the name of a key tells: whether it speaks of a lock, and of which names it is one.

/// Whether a name says that its key is a lock.
pub(crate) fn speaks_of_lock(key: &[u8]) -> bool {
    words(key).any(|word| is_lock_word(&word.to_ascii_lowercase()))
}

/// The words of a name: `job:mailLock_7` has `job`, `mail`, `Lock` and `7`.
fn words(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = key.split(|byte| !byte.is_ascii_alphabetic() && byte.is_ascii());
    parts.flat_map(|part| {
        part.chunk_by(|before, byte| before.is_ascii_uppercase() || !byte.is_ascii_uppercase())
    })
}

fn is_lock_word(word: &[u8]) -> bool {
    const WORDS: [&[u8]; 5] = [b"lock", b"mutex", b"lease", b"leader", b"semaphore"];
    /// Words of other things that end in the same way.
    const OTHERS: [&[u8]; 6] = [b"block", b"clock", b"flock", b"unlock", b"release", b"cheerleader"];
    let one = word.strip_suffix(b"es").filter(|one| one.ends_with(b"x"));
    let one = one.or_else(|| word.strip_suffix(b"s")).unwrap_or(word);
    let is_other = OTHERS.iter().any(|other| one.ends_with(other));
    one == b"lockkey" || !is_other && WORDS.iter().any(|lock| one.ends_with(lock))
}

/// The names of which a name is one: parts that differ from key to key are stars. `user:17:8f14e45f-ceea` is
/// `user:*:*`.
pub(super) fn pattern(key: &[u8]) -> Box<[u8]> {
    let mut pattern = Vec::with_capacity(key.len());
    for part in key.split_inclusive(|byte| is_separator(*byte)) {
        let (name, end) = match part.split_last() {
            Some((last, name)) if is_separator(*last) => (name, Some(*last)),
            _ => (part, None),
        };
        add_part(&mut pattern, name);
        pattern.extend(end);
    }
    pattern.into()
}

/// The beginning of a pattern, up to its first word.
pub(super) fn head(pattern: &[u8]) -> &[u8] {
    let word = pattern.iter().position(u8::is_ascii_alphabetic).unwrap_or(0);
    let end = pattern[word..].iter().position(|byte| is_separator(*byte));
    &pattern[..end.map_or(pattern.len(), |end| word + end)]
}

fn is_separator(byte: u8) -> bool {
    b":/|#@{}[]() ".contains(&byte)
}

/// Adds a part of a name, with a star for what is a number, a random text, or a word with a number.
fn add_part(pattern: &mut Vec<u8>, part: &[u8]) {
    /// Random texts are at least as long, and names of more letters without a break are rare.
    const RANDOM_BYTES_MIN: usize = 20;
    let has_digit = |word: &[u8]| word.iter().any(u8::is_ascii_digit);
    let is_joint = |byte: &u8| matches!(byte, b'-' | b'_' | b'.');
    if part.len() >= RANDOM_BYTES_MIN && (has_digit(part) || !part.iter().any(is_joint)) {
        return pattern.push(b'*');
    }
    for word in part.split_inclusive(is_joint) {
        let (name, end) = match word.split_last() {
            Some((last, name)) if is_joint(last) => (name, Some(*last)),
            _ => (word, None),
        };
        match name.iter().position(u8::is_ascii_digit) {
            // `page17` belongs to `page18`, and `a7x` to nothing that has a name.
            Some(at) => {
                let is_end = name[at..].iter().all(u8::is_ascii_digit);
                pattern.extend_from_slice(if is_end { &name[..at] } else { b"" });
                pattern.push(b'*');
            }
            None => pattern.extend_from_slice(name),
        }
        pattern.extend(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_name_speak_of_a_lock() {
        for name in [
            "lock",
            "lock:17",
            "mylock",
            "locks:a",
            "job:1:lock",
            "jobLock",
            "LOCK_A",
            "lock17",
            "redlock:a",
            "mutex",
            "mutexes:a",
            "leader-election",
            "lease.7",
            "{app}:leader",
            "semaphores:x",
            "MailMutex7",
            "bull:mail:1:lock",
            "lockkey",
        ] {
            assert!(speaks_of_lock(name.as_bytes()), "{name}");
        }
        for name in [
            "user:7",
            "block:17",
            "clock",
            "blocks",
            "release-notes:1.2",
            "releases",
            "leaderboard:7",
            "locale:de",
            "locker",
            "unlock:a",
            "deadblock",
            "",
            "1",
            "session:x",
            "blockchain",
            "flock",
        ] {
            assert!(!speaks_of_lock(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn names_that_differ_in_numbers_are_alike() {
        for (name, expected, beginning) in [
            (":1:user:7", ":*:user:*", ":*:user"),
            ("session:5f1c9a0e7b6d4c3f8a2e1d0b", "session:*", "session"),
            ("unique:8f14e45f-ceea-467f-a8f6-5d1d1f0e7a11:mail", "unique:*:mail", "unique"),
            ("page17", "page*", "page*"),
            ("a7x", "*", "*"),
            ("lock:order-17", "lock:order-*", "lock"),
            ("lock:real", "lock:real", "lock"),
            ("17", "*", "*"),
            ("", "", ""),
            ("qwertyuiopasdfghjklzx", "*", "*"),
            ("daily-report-of-all-accounts", "daily-report-of-all-accounts", "daily-report-of-all-accounts"),
        ] {
            let found = pattern(name.as_bytes());
            assert_eq!((&*found, head(&found)), (expected.as_bytes(), beginning.as_bytes()), "{name}");
        }
    }
}
