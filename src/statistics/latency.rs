//! Events that took longer than `latency-monitor-threshold`: LATENCY.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// Samples kept of one event. Redis: `LATENCY_TS_LEN`.
const SAMPLES_MAX: usize = 160;

/// The history of each event.
#[derive(Debug, Default)]
pub struct LatencyEvents(Mutex<BTreeMap<&'static str, History>>);

/// The history of one event.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// When it took long, in seconds since 1970, and how long, in milliseconds; the oldest first.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest since the event was first noted, in milliseconds.
    pub longest_ms: u64,
}

impl LatencyEvents {
    /// Notes an event. If there are several in one second, the longest stays.
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

    /// Forgets the events that are meant; returns how many those were.
    pub fn forget(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|event, _| !is_meant(event));
        before - events.len()
    }
}

impl History {
    /// Draws the samples of an event, eighty in a row, each as a column of four lines, and under it how long
    /// ago it was.
    pub fn draw(&self, event: &str, now_s: u64) -> String {
        const COLUMNS: usize = 80;
        let durations_ms = || self.samples.iter().map(|(_, took_ms)| *took_ms);
        let (lowest, highest) = (durations_ms().min().unwrap_or(0), durations_ms().max().unwrap_or(0));
        let mut drawing =
            format!("{event} - high {highest} ms, low {lowest} ms (all time high {} ms)\n", self.longest_ms);
        drawing += &"-".repeat(COLUMNS);
        drawing.push('\n');
        let samples: Vec<Column> = self
            .samples
            .iter()
            .map(|(at_s, took_ms)| Column {
                step: step(took_ms - lowest, highest - lowest),
                label: label(now_s.saturating_sub(*at_s)),
            })
            .collect();
        for (number, columns) in samples.chunks(COLUMNS).enumerate() {
            // An empty line lies between two rows of columns.
            drawing.extend((number > 0).then_some('\n'));
            draw(columns, &mut drawing);
        }
        drawing
    }
}

/// Lines of a column, of which each has three heights.
const LINES: u64 = 4;
const HEIGHTS: [char; 3] = ['_', 'o', '#'];

/// A sample as it is drawn.
struct Column {
    /// How high, among all heights of all lines.
    step: u64,
    /// How long ago, read from above.
    label: String,
}

/// The height of a sample that is `above` the lowest, where the highest is `most` above it.
fn step(above: u64, most: u64) -> u64 {
    let steps = LINES * HEIGHTS.len() as u64;
    (u128::from(above) * u128::from(steps) / u128::from(most.max(1))).min(u128::from(steps) - 1) as u64
}

fn label(ago_s: u64) -> String {
    match ago_s {
        0..60 => format!("{ago_s}s"),
        60..3600 => format!("{}m", ago_s / 60),
        3600..86_400 => format!("{}h", ago_s / 3600),
        _ => format!("{}d", ago_s / 86_400),
    }
}

fn draw(columns: &[Column], drawing: &mut String) {
    for line in (0..LINES).rev() {
        let floor = line * HEIGHTS.len() as u64;
        drawing.extend(columns.iter().map(|column| match column.step.checked_sub(floor) {
            None => ' ',
            Some(height) => HEIGHTS.get(height as usize).copied().unwrap_or('|'),
        }));
        drawing.push('\n');
    }
    drawing.extend(std::iter::repeat_n(' ', columns.len()));
    drawing.push('\n');
    let longest = columns.iter().map(|column| column.label.len()).max().unwrap_or(0);
    for line in 0..longest {
        let letter =
            |column: &Column| column.label.as_bytes().get(line).map_or(' ', |byte| char::from(*byte));
        drawing.extend(columns.iter().map(letter));
        drawing.push('\n');
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

    /// As redis-server 7.0.15 drew it.
    #[test]
    fn a_graph_is_that_of_redis() {
        let samples = [(55, 2), (56, 50), (57, 20), (58, 80), (59, 5), (60, 33)];
        let history = History { samples: samples.into(), longest_ms: 80 };
        let line = "-".repeat(80);
        let head = format!("command - high 80 ms, low 2 ms (all time high 80 ms)\n{line}\n");
        let columns = "   #  \n o |  \n | | o\n_|#|_|\n      \n654321\nssssss\n";
        assert_eq!(history.draw("command", 61), head.clone() + columns);
        let labels = "433333\n098765\nssssss\n";
        let columns = columns.replace("654321\nssssss\n", labels);
        assert_eq!(history.draw("command", 95), head + &columns);
        let labels: Vec<String> = [59, 60, 3599, 3600, 86_399, 86_400].map(label).into();
        assert_eq!(labels, ["59s", "1m", "59m", "1h", "23h", "1d"]);
        let history = History { samples: [(1, 7); 81].into(), longest_ms: 9 };
        let drawing = history.draw("fork", 1);
        let empty = " ".repeat(80);
        let bottom = "_".repeat(80);
        let (zeros, seconds) = ("0".repeat(80), "s".repeat(80));
        let first = format!("{empty}\n{empty}\n{empty}\n{bottom}\n{empty}\n{zeros}\n{seconds}\n");
        let head = format!("fork - high 7 ms, low 7 ms (all time high 9 ms)\n{line}\n");
        assert_eq!(drawing, head + &first + "\n \n \n \n_\n \n0\ns\n");
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
