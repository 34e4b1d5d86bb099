//! The findings that are kept, and the lines about them in the server's log.
//!
//! A line a rule and minute, with the number of findings since the last line: a misuse in a loop does not
//! fill the log, and one that goes on is never passed over in silence. Findings about the lock of another
//! client come first. There is no line about a key that may only remember that something was done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::advice::Advice;
use super::rules::Rule;
use crate::clients::Who;

/// Findings that are kept.
const FINDINGS_MAX: usize = 128;
/// How long no line follows another one about the same rule.
const MINUTE: Duration = Duration::from_secs(60);

/// Something that went wrong with a lock.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its number; later findings have larger ones.
    pub id: u64,
    /// In which way.
    pub rule: Rule,
    /// The lock's database.
    pub database: usize,
    /// The lock's key.
    pub key: Box<[u8]>,
    /// When it was noticed, in milliseconds since 1970.
    pub at_ms: u64,
    /// The clients that were involved; the one that acted comes first.
    pub clients: Vec<Arc<Who>>,
    /// What it means, and what to do instead.
    pub advice: Advice,
    /// The history of the lock until then, one step a line.
    pub timeline: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    last_id: u64,
    newest: VecDeque<(Finding, Volume)>,
    by_rule: [u64; Rule::ALL.len()],
    lines: [Line; Rule::ALL.len()],
}

/// Whether a finding is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Volume {
    Quiet,
    Loud,
}

/// What the log says of a rule.
#[derive(Debug, Default)]
struct Line {
    /// When the last line was written.
    written: Option<Instant>,
    /// Findings since then, and the last of them.
    more: u64,
    last: Option<String>,
}

impl Findings {
    /// Keeps a finding. When there is no room, the oldest quiet one goes, or else the oldest one.
    pub(super) fn add(&mut self, mut finding: Finding, volume: Volume) {
        self.last_id += 1;
        finding.id = self.last_id;
        self.by_rule[finding.rule as usize] += 1;
        if self.newest.len() == FINDINGS_MAX {
            let quiet = self.newest.iter().rposition(|(_, volume)| *volume == Volume::Quiet);
            self.newest.remove(quiet.unwrap_or(FINDINGS_MAX - 1));
        }
        self.newest.push_front((finding, volume));
    }

    /// Notes a finding for the log. Returns the line to write, if it is time for one.
    pub(super) fn line(&mut self, finding: &Finding, now: Instant) -> Option<String> {
        let line = &mut self.lines[finding.rule as usize];
        line.more += 1;
        line.last = Some(describe(finding));
        line.take_if_due(finding.rule, now)
    }

    /// The lines that are due, those about the locks of others first.
    pub(super) fn due_lines(&mut self, now: Instant) -> Vec<String> {
        let mut rules = Rule::ALL;
        rules.sort_by_key(|rule| !rule.is_about_another());
        rules.into_iter().filter_map(|rule| self.lines[rule as usize].take_if_due(rule, now)).collect()
    }

    /// Whether a line waits for its time.
    pub(super) fn have_lines(&self) -> bool {
        self.lines.iter().any(|line| line.more > 0)
    }

    /// The newest ones, the last one first.
    pub(super) fn newest(&self, count: usize) -> Vec<Finding> {
        self.newest.iter().take(count).map(|(finding, _)| finding.clone()).collect()
    }

    /// The number of each rule.
    pub(super) fn by_rule(&self) -> [u64; Rule::ALL.len()] {
        self.by_rule
    }

    /// Forgets all findings. The log goes on as it was.
    pub(super) fn clear(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        *self = Findings { last_id: self.last_id, lines, ..Findings::default() };
    }
}

impl Line {
    fn take_if_due(&mut self, rule: Rule, now: Instant) -> Option<String> {
        let is_due = self.written.is_none_or(|written| now.duration_since(written) >= MINUTE);
        if !is_due || self.more == 0 {
            return None;
        }
        let before = std::mem::take(&mut self.more) - 1;
        self.written = Some(now);
        let more = match before {
            0 => String::new(),
            more => format!(" {more} more since the last such line."),
        };
        Some(format!("Lock lens: {} {}{more} See LOCKS LOG for details.", rule.name(), self.last.take()?))
    }
}

fn describe(finding: &Finding) -> String {
    let clients: Vec<String> = finding.clients.iter().map(|who| who.to_string()).collect();
    let (key, clients) = (finding.key.escape_ascii(), clients.join(", "));
    format!("on key \"{key}\" by {clients}. {}", finding.advice.hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lens::advice::LockKind;

    fn finding(rule: Rule, key: &str) -> Finding {
        let advice = Advice::of(rule, LockKind::Text, false);
        let (clients, timeline) = (Vec::new(), Vec::new());
        Finding { id: 0, rule, database: 0, key: key.as_bytes().into(), at_ms: 0, clients, advice, timeline }
    }

    #[test]
    fn there_is_one_line_a_rule_and_minute_and_never_silence() {
        let (mut findings, start) = (Findings::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut lines = 0;
        for number in 0..10_000 {
            let finding = finding(Rule::ReleasedTwice, &format!("lock:{number}"));
            lines += usize::from(findings.line(&finding, at(number % 60)).is_some());
        }
        assert_eq!(lines, 1);
        let another = finding(Rule::DeletedByAnother, "other");
        assert!(findings.line(&another, at(30)).is_some_and(|line| line.contains("\"other\"")));
        assert!(findings.line(&another, at(40)).is_none());
        assert!(findings.due_lines(at(59)).is_empty());
        let due = findings.due_lines(at(90));
        assert_eq!(due.len(), 2);
        assert!(due[0].contains("deleted-by-another"), "the locks of others come first: {due:?}");
        assert!(due[1].contains("\"lock:9999\"") && due[1].contains("9998 more"), "{due:?}");
        assert!(findings.due_lines(at(1000)).is_empty(), "nothing has happened since");
        assert!(findings.line(&another, at(100_000)).is_some());
    }

    #[test]
    fn quiet_findings_make_room_for_others() {
        let mut findings = Findings::default();
        findings.add(finding(Rule::DeletedByAnother, "first"), Volume::Loud);
        for number in 0..1000 {
            findings.add(finding(Rule::ReleasedElsewhere, &number.to_string()), Volume::Quiet);
        }
        let kept = findings.newest(usize::MAX);
        assert_eq!((kept.len(), &*kept[0].key), (FINDINGS_MAX, b"999".as_slice()));
        assert_eq!((&*kept[FINDINGS_MAX - 1].key, kept[FINDINGS_MAX - 1].id), (b"first".as_slice(), 1));
        assert_eq!(findings.by_rule()[Rule::ReleasedElsewhere as usize], 1000);
    }
}
