//! `client-output-buffer-limit`: how many bytes of replies may wait for a slow client.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bytes::parse_bytes;
use super::lists::{lenient_integer, words};

/// Kinds of clients that have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Clients that send requests and read replies.
    Normal,
    /// Replicas. Keyfast has none, but configuration files set limits for them.
    Replica,
    /// Clients that have subscribed to channels.
    PubSub,
}

/// The names of the classes, as CONFIG GET prints them.
const CLASSES: [(&str, ClientClass); 3] =
    [("normal", ClientClass::Normal), ("slave", ClientClass::Replica), ("pubsub", ClientClass::PubSub)];

/// The limit of one class. A client for which more bytes wait is disconnected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes above which a client is disconnected at once; 0 for no limit.
    pub hard_bytes: u64,
    /// Bytes above which it is disconnected after a while; 0 for no limit.
    pub soft_bytes: u64,
    /// That while, in seconds.
    pub soft_seconds: u64,
}

/// The limits of all classes.
#[derive(Debug, Default)]
pub struct OutputLimits([[AtomicU64; 3]; CLASSES.len()]);

impl OutputLimits {
    /// The limit of one class.
    pub fn get(&self, class: ClientClass) -> OutputLimit {
        let [hard_bytes, soft_bytes, soft_seconds] =
            [0, 1, 2].map(|part| self.0[class as usize][part].load(Ordering::Relaxed));
        OutputLimit { hard_bytes, soft_bytes, soft_seconds }
    }

    /// Changes the limit of one class.
    pub(super) fn set(&self, class: ClientClass, limit: OutputLimit) {
        let parts = [limit.hard_bytes, limit.soft_bytes, limit.soft_seconds];
        self.0[class as usize]
            .iter()
            .zip(parts)
            .for_each(|(part, value)| part.store(value, Ordering::Relaxed));
    }

    /// The limits as CONFIG GET prints them.
    pub fn print(&self) -> String {
        let limits = CLASSES.map(|(name, class)| {
            let OutputLimit { hard_bytes, soft_bytes, soft_seconds } = self.get(class);
            format!("{name} {hard_bytes} {soft_bytes} {soft_seconds}")
        });
        limits.join(" ")
    }
}

/// Reads limits such as `pubsub 32mb 8mb 60`; other classes keep their limits.
///
/// # Errors
///
/// With the text of Redis.
pub(super) fn parse(text: &[u8]) -> Result<Vec<(ClientClass, OutputLimit)>, &'static str> {
    let words = words(text);
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    words.chunks_exact(4).map(parse_one).collect()
}

fn parse_one(words: &[&[u8]]) -> Result<(ClientClass, OutputLimit), &'static str> {
    let is_named = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
    let class = CLASSES
        .iter()
        .find(|(name, class)| is_named(name) || *class == ClientClass::Replica && is_named("replica"));
    let (_, class) = class.ok_or("Invalid client class specified in buffer limit configuration.")?;
    let parse = || {
        let (hard_bytes, soft_bytes) = (parse_bytes(words[1])?, parse_bytes(words[2])?);
        // Redis keeps them as an `int`.
        let soft_seconds = u64::from(u32::try_from(i32::try_from(lenient_integer(words[3])?).ok()?).ok()?);
        Some(OutputLimit { hard_bytes, soft_bytes, soft_seconds })
    };
    let wrong = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
    Ok((*class, parse().ok_or(wrong)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_printed_as_redis_does() {
        let limits = OutputLimits::default();
        for (class, limit) in parse(b"pubsub 32mb 8mb 60 replica 1k 0 0").unwrap() {
            limits.set(class, limit);
        }
        assert_eq!(limits.print(), "normal 0 0 0 slave 1000 0 0 pubsub 33554432 8388608 60");
        assert!(parse(b"pubsub 1 1").unwrap_err().starts_with("Wrong number"));
        assert!(parse(b"other 1 1 1").unwrap_err().starts_with("Invalid client class"));
        for wrong in [&b"normal x 1 1"[..], b"normal 1 1 -1", b"normal 1 -1 1"] {
            assert!(parse(wrong).unwrap_err().starts_with("Error in hard"));
        }
    }
}
