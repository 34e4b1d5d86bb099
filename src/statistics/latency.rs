//! Events that took longer than `latency-monitor-threshold`: LATENCY.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// Samples kept of one event. Redis: `LATENCY_TS_LEN`.
const SAMPLES_MAX: usize = 160;

/// What is known of each event.
#[derive(Debug, Default)]
pub struct LatencyEvents(Mutex<BTreeMap<&'static str, History>>);

/// What is known of one event.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// When it took long, in seconds since 1970, and how long, in milliseconds; the oldest first.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest since the event was first noted, in milliseconds.
    pub longest_ms: u64,
}

impl LatencyEvents {
    /// Notes an event. Of several in one second the longest stays.
    pub fn note(&self, event: &'static str, at_s: u64, took: Duration) {
        let took_ms = took.as_millis() as u64;
        let mut events = self.0.lock();
        let history = events.entry(event).or_default();
        history.longest_ms = history.longest_ms.max(took_ms);
        match history.samples.back_mut() {
            Some((last_s, longest_ms)) if *last_s == at_s => *longest_ms = took_ms.max(*longest_ms),
            _ => history.samples.push_back((at_s, took_ms)),
        }
        if history.samples.len() > SAMPLES_MAX {
            history.samples.pop_front();
        }
    }

    /// All events, in the order of their names.
    pub fn all(&self) -> Vec<(&'static str, History)> {
        self.0.lock().iter().map(|(event, history)| (*event, history.clone())).collect()
    }

    /// Forgets the events that are meant; answers how many those were.
    pub fn forget(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|event, _| !is_meant(event));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_second_the_longest_stays() {
        let events = LatencyEvents::default();
        for (at_s, took_ms) in [(1, 20), (1, 30), (1, 10), (2, 5)] {
            events.note("command", at_s, Duration::from_millis(took_ms));
        }
        let (event, history) = events.all().pop().unwrap();
        assert_eq!((event, history.longest_ms), ("command", 30));
        assert_eq!(history.samples, [(1, 30), (2, 5)]);
        assert_eq!(events.forget(|event| event == "other"), 0);
        assert_eq!(events.forget(|_| true), 1);
    }

    #[test]
    fn only_the_last_samples_are_kept() {
        let events = LatencyEvents::default();
        for at_s in 0..1000 {
            events.note("command", at_s, Duration::from_millis(1));
        }
        let (_, history) = events.all().pop().unwrap();
        assert_eq!((history.samples.len(), history.samples[0].0), (SAMPLES_MAX, 1000 - SAMPLES_MAX as u64));
    }
}
