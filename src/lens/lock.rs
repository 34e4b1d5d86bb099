//! One lock: its holder, its former holders, and what each command on it means.
//!
//! A lock is a string with a token for its value, or a hash with the token for its field and the number of
//! times that its holder has taken it. A holder of a hash has the same token each time. So a script that
//! finds another's token may want to take the lock, or come back to it. Only a script that wants to take it
//! asks first whether the hash is there (EXISTS).

use std::collections::VecDeque;
use std::sync::Arc;

use super::cause::Cause;
use super::rules::Rule;
use crate::clients::Who;
use crate::keyspace::{LockChange, LockNews, Token};

/// Limits for each lock: steps, former holders, and refused clients.
const STEPS_MAX: usize = 12;
const PAST_MAX: usize = 4;
const REFUSED_MAX: usize = 8;

/// A key that acts as a lock.
#[derive(Clone, Debug)]
pub struct Lock {
    pub(super) hash: u64,
    /// The number of the key's database.
    pub database: usize,
    /// The key that acts as a lock.
    pub key: Box<[u8]>,
    /// The present or last time for which a client holds it.
    pub tenure: Tenure,
    /// Earlier times for which clients held it, the last one first.
    pub past: VecDeque<Tenure>,
    /// How many attempts to take it failed since it is followed.
    pub refused: u64,
    /// The clients whose attempts failed, the last one last.
    pub refused_by: Vec<Refused>,
    /// The steps of its history, the first one first.
    pub steps: VecDeque<Step>,
    /// The list that wakes waiting clients, once a release has shown it.
    pub signal: Option<Box<[u8]>>,
    /// How often a release has woken a client by that list.
    pub woken: u64,
    /// The client whose script has asked whether the hash exists, and has done nothing else since.
    sought_by: Option<u64>,
}

/// The time for which one client holds a lock.
#[derive(Clone, Debug)]
pub struct Tenure {
    /// The client that holds it, or held it.
    pub holder: Arc<Who>,
    /// The fencing number, which grows from one holder of a lock to the next.
    pub fence: u64,
    /// The command by which the client took the lock.
    pub command: &'static str,
    /// When the client took it, in milliseconds since 1970.
    pub since_ms: u64,
    /// When it expires, in milliseconds since 1970; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// The token of its value.
    pub token: Token,
    /// For a hash, its field and the number in it.
    pub entered: Option<Entered>,
    /// How it ended, if it has.
    pub ended: Option<Ended>,
    was_grouped: bool,
    told: u8,
}

/// A hash that is a lock.
#[derive(Clone, Debug)]
pub struct Entered {
    /// Its field, cut if it is long: the holder's token.
    pub owner: Box<[u8]>,
    /// How often its holder has taken it without releasing it.
    pub depth: u64,
}

/// How the time for which a client holds a lock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its holder released it, or another client that knew its value.
    Released,
    /// Another client deleted it.
    Deleted,
    /// The lock expired.
    Expired,
    /// Another client took it over.
    TakenOver,
    /// The end was not seen.
    Unseen,
}

impl End {
    /// Its name in LOCKS GET.
    pub fn name(self) -> &'static str {
        match self {
            End::Released => "released",
            End::Deleted => "deleted-by-another",
            End::Expired => "expired",
            End::TakenOver => "taken-over",
            End::Unseen => "unseen",
        }
    }
}

/// The end of the time for which a client holds a lock.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The kind of end.
    pub how: End,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// The number of the client that ended it; 0 if no client did.
    pub by: u64,
}

/// A client that did not get a lock.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The client, as it was at its last attempt.
    pub who: Arc<Who>,
    /// How many attempts failed since the lock is followed.
    pub times: u64,
    /// When the last attempt failed, in milliseconds since 1970.
    pub last_ms: u64,
}

/// One step of a lock's history, or the same step several times in a row.
#[derive(Clone, Debug)]
pub struct Step {
    who: Arc<Who>,
    command: &'static str,
    is_script: bool,
    what: &'static str,
    first_ms: u64,
    last_ms: u64,
    times: u32,
}

/// A kind of misuse, and the clients that were involved.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) rule: Rule,
    pub(super) clients: Vec<Arc<Who>>,
}

/// The words of steps that are looked for later.
const READ: &str = "read it";
const REFUSED: &str = "was refused";
const GONE: &str = "found it gone";
const REENTERED: &str = "took it once more";

impl Tenure {
    pub(super) fn new(
        news: &LockNews,
        cause: &Cause<'_>,
        fence: u64,
        token: Token,
        expires_at_ms: Option<u64>,
    ) -> Tenure {
        let is_hash = matches!(news.change, LockChange::TakenAsHash { .. });
        let owner = news.name.clone().filter(|_| is_hash);
        Tenure {
            holder: Arc::clone(&cause.who),
            fence,
            command: cause.command,
            since_ms: news.at_ms,
            expires_at_ms,
            token,
            entered: owner.map(|owner| Entered { owner, depth: 1 }),
            ended: None,
            was_grouped: cause.is_grouped,
            told: 0,
        }
    }

    /// Whether the value is a time stamp, and has passed.
    fn stamp_has_passed(&self, now_ms: u64) -> bool {
        self.token.stamp_ms.is_some_and(|stamp_ms| stamp_ms <= now_ms)
    }

    /// Whether this is the first finding of a rule for the holder.
    pub(super) fn tell_once(&mut self, rule: Rule) -> bool {
        let is_first = self.told & rule.bit() == 0;
        self.told |= rule.bit();
        is_first
    }
}

impl Lock {
    /// A lock that was just taken.
    pub(super) fn new(news: &LockNews, cause: &Cause<'_>, tenure: Tenure) -> Lock {
        let mut lock = Lock {
            hash: news.hash,
            database: news.database,
            key: news.key.clone(),
            tenure,
            past: VecDeque::new(),
            refused: 0,
            refused_by: Vec::new(),
            steps: VecDeque::new(),
            signal: None,
            woken: 0,
            sought_by: None,
        };
        lock.step(news, cause, "took it");
        lock
    }

    /// Whether a client holds it. Call [`settle`](Self::settle) first.
    pub fn is_held(&self) -> bool {
        self.tenure.ended.is_none()
    }

    /// Whether it is a hash.
    fn is_hash(&self) -> bool {
        self.tenure.entered.is_some()
    }

    /// How often its holder has taken it, if it is a hash.
    pub(super) fn depth(&self) -> u64 {
        self.tenure.entered.as_ref().map_or(0, |entered| entered.depth)
    }

    /// Whether its last holder released it.
    pub(super) fn was_released(&self) -> bool {
        self.tenure.ended.is_some_and(|ended| ended.how == End::Released)
    }

    /// Ends its time if it has expired by now. Returns whether it did.
    pub(super) fn settle(&mut self, now_ms: u64) -> bool {
        match self.tenure.expires_at_ms {
            Some(at_ms) if self.is_held() && at_ms <= now_ms => {
                self.tenure.ended = Some(Ended { how: End::Expired, at_ms, by: 0 });
                true
            }
            _ => false,
        }
    }

    /// Another client holds it from now on.
    pub(super) fn pass_to(&mut self, news: &LockNews, cause: &Cause<'_>, next: Tenure, end: End) {
        self.tenure.ended.get_or_insert(Ended { how: end, at_ms: news.at_ms, by: cause.who.id });
        self.sought_by = None;
        if self.past.len() == PAST_MAX {
            self.past.pop_back();
        }
        self.past.push_front(std::mem::replace(&mut self.tenure, next));
        let what = if end == End::TakenOver { "took it over" } else { "took it" };
        self.step(news, cause, what);
    }

    /// Handles news of the lock, other than that it was taken. `next_fence` is the number of the next holder.
    /// Returns misuse, if there is any.
    pub(super) fn follow(&mut self, news: &LockNews, cause: &Cause<'_>, next_fence: u64) -> Option<Wrong> {
        let sought_by = self.sought_by.take();
        let seeks = sought_by == Some(cause.who.id);
        match news.change {
            LockChange::Taken { .. } | LockChange::TakenAsHash { .. } | LockChange::Changed => None,
            LockChange::Sought => {
                self.sought_by = cause.is_grouped.then_some(cause.who.id);
                None
            }
            LockChange::Depth(depth) => {
                self.enter(news, cause, depth);
                None
            }
            LockChange::Read if self.is_hash() && cause.is_grouped => self.look(news, cause, seeks),
            LockChange::Missed
                if self.is_hash() && cause.is_grouped && (seeks || cause.command == "exists") =>
            {
                self.sought_by = Some(cause.who.id);
                self.step(news, cause, GONE);
                None
            }
            LockChange::Refused => {
                self.refuse(news, cause);
                None
            }
            LockChange::Read => {
                self.step(news, cause, READ);
                if cause.is_script { self.came_back(news, cause) } else { None }
            }
            LockChange::Written { before, token, expires_at_ms } => {
                self.rewrite(news, cause, before, token, expires_at_ms, next_fence)
            }
            LockChange::Expiry(expires_at_ms) => self.expire(news, cause, expires_at_ms),
            LockChange::Freed => self.free(news, cause),
            LockChange::Missed | LockChange::Unmet => {
                self.step(news, cause, if self.is_held() { "found another's value" } else { GONE });
                self.came_back(news, cause)
            }
        }
    }

    /// Handles several commands that have read or written a hash.
    fn look(&mut self, news: &LockNews, cause: &Cause<'_>, seeks: bool) -> Option<Wrong> {
        if cause.shows(self.tenure.token.digest) {
            return None;
        }
        if seeks {
            self.refuse(news, cause);
            return None;
        }
        self.step(news, cause, "found another's value");
        self.came_back(news, cause)
    }

    /// The number in a hash was changed.
    fn enter(&mut self, news: &LockNews, cause: &Cause<'_>, depth: u64) {
        let Some(entered) = &mut self.tenure.entered else { return };
        let before = std::mem::replace(&mut entered.depth, depth);
        let what = if depth > before { REENTERED } else { "released it, not for the last time" };
        // A release for the last time deletes it next.
        if depth > 0 && depth != before {
            self.step(news, cause, what);
        }
    }

    fn expire(&mut self, news: &LockNews, cause: &Cause<'_>, expires_at_ms: Option<u64>) -> Option<Wrong> {
        let what = if expires_at_ms.is_some() { "set its expiry" } else { "took its expiry away" };
        self.step(news, cause, what);
        let had_none = self.tenure.expires_at_ms.is_none();
        self.tenure.expires_at_ms = expires_at_ms;
        let is_one_step = cause.is_grouped && self.tenure.was_grouped;
        let is_holder = self.tenure.holder.id == cause.who.id;
        let is_late = is_holder && had_none && expires_at_ms.is_some() && !is_one_step;
        self.wrong(is_late, Rule::ExpirySetSeparately, cause)
    }

    fn rewrite(
        &mut self,
        news: &LockNews,
        cause: &Cause<'_>,
        before: Token,
        token: Token,
        expires_at_ms: Option<u64>,
        next_fence: u64,
    ) -> Option<Wrong> {
        let now_ms = news.at_ms;
        self.tenure.token = before;
        if self.tenure.holder.id == cause.who.id || cause.shows(before.digest) {
            self.tenure.token = token;
            self.tenure.expires_at_ms = expires_at_ms;
            self.step(news, cause, "wrote it anew");
            return None;
        }
        // The page of SETNX: a client that gets an old stamp that has passed holds the lock, any other has
        // lost.
        let has_lost = before.stamp_ms.is_some() && token.stamp_ms.is_some();
        if has_lost && !self.tenure.stamp_has_passed(now_ms) {
            self.tenure.token = token;
            self.tenure.expires_at_ms = expires_at_ms;
            self.step(news, cause, "lost, and replaced its time stamp");
            return self.wrong(true, Rule::TakeoverOverwritten, cause);
        }
        let next = Tenure::new(news, cause, next_fence, token, expires_at_ms);
        self.pass_to(news, cause, next, End::TakenOver);
        None
    }

    fn free(&mut self, news: &LockNews, cause: &Cause<'_>) -> Option<Wrong> {
        let knows_value =
            cause.shows(self.tenure.token.digest) || cause.is_grouped && self.has_read(cause.who.id);
        if let Some(signal) = &news.name {
            self.signal = Some(signal.clone());
            self.woken += 1;
        }
        if self.tenure.holder.id == cause.who.id || knows_value {
            self.end(End::Released, news, cause);
            self.step(news, cause, "released it");
            return None;
        }
        self.end(End::Deleted, news, cause);
        self.step(news, cause, "deleted it, not being its holder");
        // By its own value, a lock whose time stamp has passed is free.
        let is_wrong = !self.tenure.stamp_has_passed(news.at_ms);
        self.wrong(is_wrong, Rule::DeletedByAnother, cause)
    }

    fn end(&mut self, how: End, news: &LockNews, cause: &Cause<'_>) {
        self.tenure.ended = Some(Ended { how, at_ms: news.at_ms, by: cause.who.id });
    }

    /// Whether a client has read the value that the lock has now.
    fn has_read(&self, client: u64) -> bool {
        let since_ms = self.tenure.since_ms;
        self.steps.iter().any(|step| step.what == READ && step.who.id == client && step.last_ms >= since_ms)
    }

    /// Checks whether the client held the lock before and no longer does.
    fn came_back(&mut self, news: &LockNews, cause: &Cause<'_>) -> Option<Wrong> {
        let (client, is_hash) = (cause.who.id, self.is_hash());
        // Threads with different tokens may share a connection, and a script of theirs shows which one it is.
        let is_known = is_hash && cause.is_script;
        let is_holder = self.tenure.holder.id == client && !is_known;
        if self.is_held() && (is_holder || cause.shows(self.tenure.token.digest)) {
            return None;
        }
        let acts = cause.deletes() || cause.extends();
        if is_hash && !acts && !cause.looks() {
            return None;
        }
        let means = |tenure: &Tenure| {
            // Any script may ask whether a lock is free; a script that brings its value means that lock.
            let is_holder = tenure.holder.id == client && acts && !cause.is_script;
            is_holder || cause.shows(tenure.token.digest)
        };
        let mut tenures = std::iter::once(&mut self.tenure).chain(&mut self.past);
        let tenure = tenures.find(|tenure| tenure.ended.is_some() && means(tenure))?;
        let rule = match tenure.ended? {
            Ended { how: End::Expired, .. } => Rule::ExpiredWhileHeld,
            Ended { how: End::Released, by, at_ms }
                // A hash may be renewed at the moment at which another thread releases it.
                if by == client && at_ms <= news.at_ms && (cause.deletes() || cause.is_script && !is_hash) =>
            {
                Rule::ReleasedTwice
            }
            _ => return None,
        };
        if !tenure.tell_once(rule) {
            return None;
        }
        Some(Wrong { rule, clients: self.involved(cause) })
    }

    /// A finding about the present holder, if `is_wrong` holds and no finding of this rule came before.
    fn wrong(&mut self, is_wrong: bool, rule: Rule, cause: &Cause<'_>) -> Option<Wrong> {
        let is_news = is_wrong && self.tenure.tell_once(rule);
        is_news.then(|| Wrong { rule, clients: self.involved(cause) })
    }

    /// The client that acted, and the lock's holder.
    fn involved(&self, cause: &Cause<'_>) -> Vec<Arc<Who>> {
        let mut clients = vec![Arc::clone(&cause.who)];
        if self.tenure.holder.id != cause.who.id {
            clients.push(Arc::clone(&self.tenure.holder));
        }
        clients
    }

    fn refuse(&mut self, news: &LockNews, cause: &Cause<'_>) {
        self.refused += 1;
        let at = self.refused_by.iter().position(|refused| refused.who.id == cause.who.id);
        let mut refused = match at {
            Some(at) => self.refused_by.remove(at),
            None => Refused { who: Arc::clone(&cause.who), times: 0, last_ms: 0 },
        };
        refused.times += 1;
        refused.last_ms = news.at_ms;
        if self.refused_by.len() == REFUSED_MAX {
            self.refused_by.remove(0);
        }
        self.refused_by.push(refused);
        self.step(news, cause, REFUSED);
    }

    /// Adds a step, or counts it to the last one if that was the same.
    fn step(&mut self, news: &LockNews, cause: &Cause<'_>, what: &'static str) {
        if let Some(last) = self.steps.back_mut()
            && (last.who.id, last.command, last.what) == (cause.who.id, cause.command, what)
        {
            last.times = last.times.saturating_add(1);
            last.last_ms = news.at_ms;
            return;
        }
        if self.steps.len() == STEPS_MAX {
            self.steps.pop_front();
        }
        self.steps.push_back(Step {
            who: Arc::clone(&cause.who),
            command: cause.command,
            is_script: cause.is_script,
            what,
            first_ms: news.at_ms,
            last_ms: news.at_ms,
            times: 1,
        });
    }

    /// The history, one step a line, with the milliseconds since the first step.
    pub fn timeline(&self) -> Vec<String> {
        let start_ms = self.steps.front().map_or(0, |step| step.first_ms);
        let line = |step: &Step| {
            let script = if step.is_script { " in a script" } else { "" };
            let times = if step.times > 1 { format!(", {} times", step.times) } else { String::new() };
            format!(
                "+{} ms {}: {}{script} {}{times}",
                step.first_ms.saturating_sub(start_ms),
                step.who,
                step.command.to_uppercase(),
                step.what,
            )
        };
        self.steps.iter().map(line).collect()
    }

    /// When the first step of the timeline was, in milliseconds since 1970.
    pub fn timeline_since_ms(&self) -> u64 {
        self.steps.front().map_or(0, |step| step.first_ms)
    }

    /// The time of the last step, in milliseconds since 1970.
    pub(super) fn last_ms(&self) -> u64 {
        self.steps.back().map_or(0, |step| step.last_ms)
    }
}
