//! The findings that are kept, and the lines about them in the server's log.
//!
//! A line a rule and minute, with the number of findings since the last line: a misuse in a loop does not
//! fill the log, and one that goes on is never passed over in silence. Findings about the lock of another
//! client come first. There is no line about a key that may be no lock.
//!
//! Some findings hold only if a connection is that of one task. They get their line a while later, and are
//! withdrawn once the connection turns out to be one of a pool.
//!
//! Of findings that are alike, some are kept, with their number: those of one rule about keys whose names
//! have one pattern. So a thousand of them hide none of another kind.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::advice::Advice;
use super::names;
use super::rules::Rule;
use crate::clients::Who;

/// Findings that are kept.
const FINDINGS_MAX: usize = 128;
/// Those of them that are alike.
const ALIKE_MAX: usize = 8;
/// How long a finding that may be withdrawn waits for its line.
const DOUBT: Duration = Duration::from_secs(1);
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
    /// The keys of the other locks that it names.
    pub others: Vec<Box<[u8]>>,
    /// The pattern of its name.
    pub pattern: Box<[u8]>,
    /// How many findings of the rule there were about keys of the pattern, with this one.
    pub alike: u64,
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
    /// Most servers have no finding, and need no room for these.
    lines: Option<Box<[Line; Rule::ALL.len()]>>,
    claims: VecDeque<Claim>,
}

/// A finding that holds only if some connections are each that of one task.
#[derive(Debug)]
struct Claim {
    id: u64,
    rule: Rule,
    /// The numbers of the clients.
    connections: Vec<u64>,
    /// The line that is to be written, and when.
    line: Option<(Instant, String)>,
}

/// Whether a finding is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        let is_alike = |other: &Finding| (other.rule, &other.pattern) == (finding.rule, &finding.pattern);
        let all = || self.newest.iter().enumerate().filter(|(_, (other, _))| is_alike(other));
        finding.alike = all().next().map_or(0, |(_, (last, _))| last.alike) + 1;
        let goes = match all().count() {
            ALIKE_MAX => all().map(|(at, (_, volume))| (*volume == Volume::Quiet, at)).max(),
            _ => None,
        };
        if let Some((_, at)) = goes {
            self.newest.remove(at);
        } else if self.newest.len() == FINDINGS_MAX {
            self.newest.remove(self.least_wanted());
        }
        self.newest.push_front((finding, volume));
    }

    /// The index of the finding that makes room: a quiet one if there is one, of the rule that has the most,
    /// of the names that begin in the commonest way, the oldest.
    fn least_wanted(&self) -> usize {
        let volume = self.newest.iter().map(|(_, volume)| *volume).min().unwrap_or(Volume::Loud);
        let meant = || self.newest.iter().enumerate().filter(move |(_, (_, other))| *other == volume);
        let mut of_rules = [0; Rule::ALL.len()];
        meant().for_each(|(_, (finding, _))| of_rules[finding.rule as usize] += 1);
        let rule = Rule::ALL.into_iter().max_by_key(|rule| of_rules[*rule as usize]);
        let meant = || meant().filter(|(_, (finding, _))| Some(finding.rule) == rule);
        let mut of_names: HashMap<&[u8], usize> = HashMap::new();
        meant()
            .for_each(|(_, (finding, _))| *of_names.entry(names::head(&finding.pattern)).or_default() += 1);
        let least = meant().map(|(at, (finding, _))| (of_names[names::head(&finding.pattern)], at)).max();
        least.map_or(self.newest.len() - 1, |(_, at)| at)
    }

    /// Notes a finding for the log. Returns the line to write, if it is time for one.
    pub(super) fn line(&mut self, finding: &Finding, now: Instant) -> Option<String> {
        let line = &mut self.lines.get_or_insert_default()[finding.rule as usize];
        line.note(describe(finding));
        line.take_if_due(finding.rule, now)
    }

    /// Keeps a finding that holds only if each of these connections is that of one task.
    pub(super) fn claim(&mut self, finding: Finding, connections: Vec<u64>, now: Instant) {
        let (rule, line) = (finding.rule, Some((now + DOUBT, describe(&finding))));
        self.add(finding, Volume::Loud);
        if self.claims.len() == FINDINGS_MAX {
            self.claims.pop_front();
        }
        self.claims.push_back(Claim { id: self.last_id, rule, connections, line });
    }

    /// Withdraws the findings that hold only if a connection is that of one task. Returns whether others are
    /// left that may be withdrawn.
    pub(super) fn withdraw(&mut self, connection: u64) -> bool {
        let (newest, by_rule) = (&mut self.newest, &mut self.by_rule);
        self.claims.retain(|claim| {
            let is_withdrawn = claim.connections.contains(&connection);
            if is_withdrawn {
                newest.retain(|(finding, _)| finding.id != claim.id);
                by_rule[claim.rule as usize] = by_rule[claim.rule as usize].saturating_sub(1);
            }
            !is_withdrawn
        });
        !self.claims.is_empty()
    }

    /// The lines that are due, those about the locks of others first.
    pub(super) fn due_lines(&mut self, now: Instant) -> Vec<String> {
        let mut rules = Rule::ALL;
        rules.sort_by_key(|rule| !rule.is_about_another());
        let is_due =
            |claim: &mut Claim| claim.line.take_if(|(at, _)| *at <= now).map(|line| (claim.rule, line.1));
        let confirmed: Vec<_> = self.claims.iter_mut().filter_map(is_due).collect();
        for (rule, text) in confirmed {
            self.lines.get_or_insert_default()[rule as usize].note(text);
        }
        let Some(lines) = &mut self.lines else { return Vec::new() };
        rules.into_iter().filter_map(|rule| lines[rule as usize].take_if_due(rule, now)).collect()
    }

    /// Whether a line waits for its time.
    pub(super) fn have_lines(&self) -> bool {
        let is_claimed = self.claims.iter().any(|claim| claim.line.is_some());
        is_claimed || self.lines.as_deref().is_some_and(|lines| lines.iter().any(|line| line.more > 0))
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
    fn note(&mut self, text: String) {
        self.more += 1;
        self.last = Some(text);
    }

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
        let (key, pattern) = (key.as_bytes().into(), names::pattern(key.as_bytes()));
        let (clients, timeline, others) = (Vec::new(), Vec::new(), Vec::new());
        Finding {
            id: 0,
            rule,
            database: 0,
            key,
            others,
            pattern,
            alike: 0,
            at_ms: 0,
            clients,
            advice,
            timeline,
        }
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

    fn keys(findings: &Findings, rule: Rule) -> Vec<String> {
        let kept = findings.newest(usize::MAX).into_iter().filter(|finding| finding.rule == rule);
        kept.map(|finding| String::from_utf8_lossy(&finding.key).into_owned()).collect()
    }

    #[test]
    fn findings_that_are_alike_are_counted() {
        let mut findings = Findings::default();
        findings.add(finding(Rule::DeletedByAnother, "lock:1"), Volume::Loud);
        for number in 2..1000 {
            findings.add(finding(Rule::DeletedByAnother, &format!("lock:{number}")), Volume::Quiet);
        }
        findings.add(finding(Rule::ReleasedTwice, "lock:1"), Volume::Quiet);
        let kept = findings.newest(usize::MAX);
        assert_eq!((kept.len(), kept[0].alike, kept[1].alike), (ALIKE_MAX + 1, 1, 999));
        assert_eq!(&*kept[1].pattern, b"lock:*");
        let kept = keys(&findings, Rule::DeletedByAnother);
        assert_eq!((kept[0].as_str(), kept[ALIKE_MAX - 1].as_str()), ("lock:999", "lock:1"));
        assert_eq!(findings.by_rule()[Rule::DeletedByAnother as usize], 999);
    }

    #[test]
    fn a_claim_has_its_line_later_or_is_withdrawn() {
        let (mut findings, start) = (Findings::default(), Instant::now());
        findings.claim(finding(Rule::Deadlock, "one"), vec![1, 2], start);
        findings.claim(finding(Rule::Deadlock, "two"), vec![3], start);
        findings.claim(finding(Rule::Deadlock, "three"), vec![4, 5], start);
        assert_eq!((findings.due_lines(start).len(), findings.have_lines()), (0, true));
        assert!(findings.withdraw(2) && findings.withdraw(2) && findings.withdraw(6));
        assert_eq!(keys(&findings, Rule::Deadlock), ["three", "two"]);
        assert_eq!(findings.by_rule()[Rule::Deadlock as usize], 2);
        let due = findings.due_lines(start + DOUBT);
        assert!(due.len() == 1 && due[0].contains("\"three\"") && due[0].contains("1 more"), "{due:?}");
        assert!(!findings.have_lines() && findings.withdraw(4) && !findings.withdraw(3));
        assert_eq!(keys(&findings, Rule::Deadlock), [""; 0]);
    }

    #[test]
    fn findings_of_one_kind_hide_none_of_another() {
        let name = |number: usize| -> String {
            [number / 676, number / 26 % 26, number % 26]
                .map(|at| char::from(b'a' + at as u8))
                .iter()
                .collect()
        };
        let mut findings = Findings::default();
        findings.add(finding(Rule::DeletedByAnother, "lock:first"), Volume::Loud);
        findings.add(finding(Rule::ReleasedTwice, "lock:first"), Volume::Loud);
        for number in 0..1000 {
            findings.add(finding(Rule::ReleasedElsewhere, &name(number)), Volume::Quiet);
        }
        assert_eq!(findings.newest(usize::MAX).len(), FINDINGS_MAX);
        assert_eq!(keys(&findings, Rule::ReleasedElsewhere)[0], name(999));
        // Loud ones take the place of quiet ones, and then of others of their rule and of like names.
        for number in 0..1000 {
            findings.add(finding(Rule::DeletedByAnother, &format!("cart:{}", name(number))), Volume::Loud);
        }
        assert_eq!(keys(&findings, Rule::ReleasedTwice), ["lock:first"]);
        assert_eq!(keys(&findings, Rule::ReleasedElsewhere), [""; 0]);
        let deleted = keys(&findings, Rule::DeletedByAnother);
        assert_eq!((deleted.len(), deleted.last().unwrap().as_str()), (FINDINGS_MAX - 1, "lock:first"));
    }
}
