//! One lock: its holder, its former holders, and what each command on it means.
//!
//! A lock is a string with a token for its value, or a hash with the token for its field and the number of
//! times that its holder has taken it. A holder of a hash has the same token each time. So a script that
//! finds another's token may want to take the lock, or come back to it. Only a script that wants to take it
//! asks first whether the hash is there (EXISTS). Of a string, the script that took it shows what it is for.
//!
//! A client that shows a token means the holder that had it, on whatever connection. Without a token, the
//! connection tells who it is.

mod comeback;
mod contenders;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::advice::{Advice, LockKind};
use super::cause::Cause;
use super::evidence::Evidence;
use super::lock_use::LockUse;
use super::metrics::{Name, PatternMetrics};
use super::rules::Rule;
use super::tenure::{End, Ended, Tenure};
use super::timeline::{GAVE_UP, GONE, OF_ANOTHER, READ, READ_IN_EXEC, Timeline, WAITS, What};
use super::waits::Holder;
use crate::clients::Who;
use crate::keyspace::{LockChange, LockNews, Token};
use contenders::KnownTokens;
pub(crate) use contenders::Refused;

/// Former holders that are kept of each lock.
const PAST_MAX: usize = 4;

/// A key that acts as a lock.
#[derive(Clone, Debug)]
pub struct Lock {
    pub(super) hash: u64,
    /// The number of the key's database.
    pub database: usize,
    /// The key that acts as a lock.
    pub key: Box<[u8]>,
    /// The field that is the lock, if it is one of a hash.
    pub field: Option<Box<[u8]>>,
    /// The present or last time for which a client holds it.
    pub tenure: Tenure,
    /// Earlier times for which clients held it, the last one first.
    pub past: VecDeque<Tenure>,
    /// How many attempts to take it failed since it is followed.
    pub refused: u64,
    /// The clients that tried to take it while another had it, the last one last.
    pub refused_by: Vec<Refused>,
    timeline: Timeline,
    /// The list that wakes waiting clients, once a release has shown it.
    pub signal: Option<Box<[u8]>>,
    /// How often a release has woken a client by that list.
    pub woken: u64,
    /// The client whose script has asked whether it exists, and has done nothing else since.
    sought_by: Option<u64>,
    /// What shows that it is a lock.
    evidence: Evidence,
    /// The tokens with which clients have tried to take it, or have taken it before those that are kept.
    known: Option<Box<KnownTokens>>,
    /// Whether a script takes it without asking, as one that takes the job that it is for.
    is_taken_unasked: bool,
    /// Whether clients look at it that have not held it, as at an entry of a cache.
    is_read_by_others: bool,
    /// Whether it is known that holders share a token.
    told_shared: bool,
    /// Where it is counted, if a pattern of `lock-metrics` matches its key.
    pub(super) metrics: Option<Arc<PatternMetrics>>,
}

/// A kind of misuse, the clients that were involved, and what to do instead.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) rule: Rule,
    pub(super) clients: Vec<Arc<Who>>,
    pub(super) advice: Advice,
    /// Whether it is only worth a line in the server's log: the finding is known.
    pub(super) is_known: bool,
    /// Whether the key may be none: it may only remember that something was done.
    pub(super) is_quiet: bool,
}

impl Lock {
    /// A lock that was just taken.
    pub(super) fn new(
        news: &LockNews,
        cause: &Cause<'_>,
        tenure: Tenure,
        metrics: Option<Arc<PatternMetrics>>,
    ) -> Lock {
        let mut lock = Lock {
            hash: news.hash,
            database: news.database,
            key: news.key.clone(),
            field: news.name.clone().filter(|_| matches!(news.change, LockChange::FieldTaken { .. })),
            tenure,
            past: VecDeque::new(),
            refused: 0,
            refused_by: Vec::new(),
            timeline: Timeline::default(),
            signal: None,
            woken: 0,
            sought_by: None,
            evidence: Evidence::default(),
            known: None,
            is_taken_unasked: false,
            is_read_by_others: false,
            told_shared: false,
            metrics,
        };
        lock.begin(news, cause, "took it");
        lock
    }

    /// Whether a client holds it. Call [`catch_up`](Self::catch_up) first.
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

    /// Whether it looks like a note that something was done for all time: nothing shows that clients wait for
    /// its end.
    fn is_mere_note(&self) -> bool {
        self.refused_by.is_empty() && self.past.is_empty() && !self.tenure.was_dated && self.signal.is_none()
    }

    /// What shows that the key is a lock, if anything does.
    pub fn evidence(&self) -> Option<&'static str> {
        self.evidence.name().or_else(|| self.signal.as_ref().map(|_| "waiting-list"))
    }

    /// How much it is worth to know it.
    pub(super) fn worth(&self, now_ms: u64) -> u8 {
        let is_held = self.is_held() && self.tenure.expires_at_ms.is_none_or(|at_ms| at_ms > now_ms);
        2 * self.evidence.worth(is_held, self.was_released()) + u8::from(self.refused > 0)
    }

    /// Notes whether its name, or the command that took it, says that it is a lock.
    pub(super) fn note_name(&mut self, cause: &Cause<'_>) {
        let is_known = cause.is_listed || cause.means.has(LockUse::IS_FOR_LOCKS);
        self.evidence.note_name(self.field.as_ref().unwrap_or(&self.key), is_known);
    }

    /// Notes whether a command compares the token of a holder, present or past.
    fn weigh(&mut self, news: &LockNews, cause: &Cause<'_>) {
        if self.evidence.is_compared || !cause.compares_token() {
            return;
        }
        let looks = matches!(news.change, LockChange::Read | LockChange::Sought | LockChange::Refused);
        // A script that fills a cache shows the value, too.
        if looks && self.is_taken_by(cause.script_id()) {
            return;
        }
        // A script may show the same number for another reason.
        let is_token = |token: Token| !cause.is_script() || !token.is_small_number;
        let mut tenures = std::iter::once(&self.tenure).chain(&self.past);
        let is_compared = tenures.any(|tenure| is_token(tenure.token) && cause.shows(tenure.token.digest));
        let is_packed = || news.value.as_ref().is_some_and(|value| cause.shows_part(value));
        self.evidence.is_compared = is_compared || cause.is_script() && is_packed();
    }

    /// Whether this script took it, for any of its holders that are known.
    pub(super) fn is_taken_by(&self, script: Option<u64>) -> bool {
        let mut tenures = std::iter::once(&self.tenure).chain(&self.past);
        script.is_some() && tenures.any(|tenure| tenure.script == script)
    }

    /// Whether a holder that is known had this token.
    pub(super) fn had(&self, token: u64) -> bool {
        let mut tenures = std::iter::once(&self.tenure).chain(&self.past);
        tenures.any(|tenure| tenure.token.digest == token)
    }

    /// Ends its time if it has expired by now. Returns whether it did.
    pub(super) fn catch_up(&mut self, now_ms: u64) -> bool {
        match self.tenure.expires_at_ms {
            Some(at_ms) if self.is_held() && at_ms <= now_ms => {
                self.end(End::Expired, at_ms, None);
                self.timeline.add_end("it expired", at_ms);
                true
            }
            _ => false,
        }
    }

    /// Ends its time, because it is not there any more. Returns whether a client held it.
    pub(super) fn lose(&mut self, how: End, now_ms: u64) -> bool {
        if !self.is_held() {
            return false;
        }
        let what = match how {
            End::Flushed => "all keys were removed, and the lock with them",
            End::Evicted => "it was evicted, since memory was short",
            _ => "it ended unseen",
        };
        self.end(how, now_ms, None);
        self.timeline.add_end(what, now_ms);
        true
    }

    /// Notes the beginning of a tenure.
    fn begin(&mut self, news: &LockNews, cause: &Cause<'_>, what: &'static str) {
        self.tenure.holder.habits.held.fetch_add(1, Ordering::Relaxed);
        let is_renewed = matches!(news.change, LockChange::Renewed { .. });
        if is_renewed {
            self.is_taken_unasked = true;
            self.evidence.is_compared = true;
            self.renew(cause, news.at_ms);
        } else if let Some(metrics) = &self.metrics {
            // Short ones may be the same for all clients.
            let token = Some(self.tenure.token).filter(|token| token.is_long);
            let names = token.map(|token| Name::Token(token.digest)).into_iter();
            let names = names.chain([Name::Connection(cause.who.id)]);
            metrics.note_taken(names, self.hash, news.at_ms);
        }
        let what = if is_renewed { "renewed it" } else { what };
        self.timeline.add(cause, What::Start(what), news.at_ms);
    }

    /// Another client holds it from now on.
    pub(super) fn pass_to(&mut self, news: &LockNews, cause: &Cause<'_>, next: Tenure, end: End) {
        if self.is_held() {
            if end == End::Unseen {
                self.timeline.add_end("it ended unseen", news.at_ms);
            }
            self.end(end, news.at_ms, Some(cause));
        }
        self.sought_by = None;
        if self.past.len() == PAST_MAX
            && let Some(oldest) = self.past.pop_back()
        {
            self.remember(oldest.token.digest);
        }
        self.past.push_front(std::mem::replace(&mut self.tenure, next));
        let what = match end {
            End::TakenOver => "took it over",
            End::Overwritten => "overwrote it",
            _ => "took it",
        };
        self.begin(news, cause, what);
    }

    /// Whether a key that a script writes after its end is this lock once more: it has the token of a former
    /// holder, or is one that scripts take without asking, and the client has sent what it writes.
    pub(super) fn is_remade(&self, token: Token, is_shown: impl Fn() -> bool) -> bool {
        self.had(token.digest) || self.is_taken_unasked && is_shown()
    }

    /// Whether a number in its place is a count: another one that a client writes who knows the one before,
    /// or, if nothing shows that the key is a lock, that another client writes.
    pub(super) fn is_count(&self, by: u64, is_watched: bool) -> bool {
        is_watched || self.tenure.holder.id != by && self.evidence().is_none()
    }

    /// Handles news of the lock, other than that it was taken. `next_fence` returns the number of the next
    /// holder. Returns misuse, if there is any.
    pub(super) fn follow(
        &mut self,
        news: &LockNews,
        cause: &Cause<'_>,
        next_fence: &dyn Fn() -> u64,
    ) -> Option<Wrong> {
        self.weigh(news, cause);
        let sought_by = self.sought_by.take();
        let seeks = sought_by == Some(cause.who.id);
        match news.change {
            change if change.is_taken() => None,
            LockChange::Changed | LockChange::Evicted => None,
            LockChange::Sought if self.is_hash() => {
                self.sought_by = cause.is_grouped.then_some(cause.who.id);
                None
            }
            LockChange::Depth(depth) => {
                self.enter(news, cause, depth);
                None
            }
            LockChange::Read if self.is_hash() && cause.is_grouped => self.look(news, cause, seeks),
            LockChange::Missed
                if self.is_hash() && cause.is_grouped && (seeks || cause.means.has(LockUse::SEEKS)) =>
            {
                self.sought_by = Some(cause.who.id);
                self.step(news, cause, GONE);
                None
            }
            LockChange::FieldFreed => {
                // By whatever connection: nothing shows whose a field is.
                self.end(End::Released, news.at_ms, Some(cause));
                self.step(news, cause, What::Deed("released it"));
                None
            }
            LockChange::FieldRefused { expires_at_ms } => {
                self.tenure.expires_at_ms = expires_at_ms;
                self.refuse(news, cause)
            }
            LockChange::Refused if cause.looks_again => None,
            LockChange::Refused => self.turn_away(news, cause),
            LockChange::TakenAgain => {
                self.let_go();
                self.tenure.holder = Arc::clone(&cause.who);
                self.tenure.holder.habits.held.fetch_add(1, Ordering::Relaxed);
                (self.tenure.has_left, self.tenure.client_is_gone) = (false, false);
                self.step(news, cause, What::Deed("asked for it again, and has it"));
                None
            }
            LockChange::Waits => self.contend(news, cause, WAITS),
            LockChange::GaveUp => self.contend(news, cause, GAVE_UP),
            LockChange::Sought | LockChange::Read if cause.is_script() => self.ask(news, cause),
            LockChange::Read => {
                self.step(news, cause, if cause.is_grouped { READ_IN_EXEC } else { READ });
                self.look_first(cause)
            }
            LockChange::Written { before, token, expires_at_ms } => {
                self.rewrite(news, cause, before, token, expires_at_ms, next_fence())
            }
            LockChange::Remade { token, expires_at_ms } => {
                let next = Tenure::new(news, cause, next_fence(), token, Some(expires_at_ms));
                self.remake(news, cause, next)
            }
            LockChange::Expiry(expires_at_ms) => self.expire(news, cause, expires_at_ms),
            LockChange::Freed => self.free(news, cause),
            LockChange::Broken => {
                self.end(End::Broken, news.at_ms, Some(cause));
                self.step(news, cause, What::Deed("broke it"));
                None
            }
            // It was gone before the script took it, so nothing is wrong.
            LockChange::Missed if cause.settles_it => None,
            LockChange::Missed | LockChange::Unmet => {
                self.step(news, cause, if self.is_held() { OF_ANOTHER } else { GONE });
                self.is_read_by_others |= !cause.is_script() && !cause.acts();
                self.came_back(news, cause)
            }
            _ => None,
        }
    }

    /// Handles several commands that have read or written a hash.
    fn look(&mut self, news: &LockNews, cause: &Cause<'_>, seeks: bool) -> Option<Wrong> {
        if cause.shows(self.tenure.token.digest) {
            return None;
        }
        if seeks {
            return self.refuse(news, cause);
        }
        self.step(news, cause, OF_ANOTHER);
        self.came_back(news, cause)
    }

    /// A script has asked for the lock, or has read it. If it is a script that takes it, it did not get it.
    fn ask(&mut self, news: &LockNews, cause: &Cause<'_>) -> Option<Wrong> {
        let is_own = cause.shows(self.tenure.token.digest);
        if !self.is_taken_by(cause.script_id()) || is_own {
            if news.change == LockChange::Read {
                self.step(news, cause, READ);
            }
            return self.came_back(news, cause);
        }
        // A script may ask twice in one attempt: by EXISTS or GET, and then by GET or SET NX.
        if cause.looks_again {
            return None;
        }
        self.turn_away(news, cause)
    }

    /// The number in a hash was changed.
    fn enter(&mut self, news: &LockNews, cause: &Cause<'_>, depth: u64) {
        let Some(entered) = &mut self.tenure.entered else { return };
        let before = std::mem::replace(&mut entered.depth, depth);
        let what = if depth > before { "took it once more" } else { "released it, not for the last time" };
        // A release for the last time deletes it next.
        if depth > 0 && depth != before {
            self.step(news, cause, What::Deed(what));
        }
    }

    fn expire(&mut self, news: &LockNews, cause: &Cause<'_>, expires_at_ms: Option<u64>) -> Option<Wrong> {
        let what = if expires_at_ms.is_some() { "set its expiry" } else { "took its expiry away" };
        self.step(news, cause, What::Deed(what));
        let before_ms = std::mem::replace(&mut self.tenure.expires_at_ms, expires_at_ms);
        if self.knows_value(news, cause) {
            if expires_at_ms.is_some() && (before_ms.is_some() || self.tenure.was_dated) {
                self.renew(cause, news.at_ms);
            }
            let is_one_step = cause.is_grouped && self.tenure.was_grouped;
            let is_holder = self.tenure.holder.id == cause.who.id;
            let is_late = is_holder && before_ms.is_none() && expires_at_ms.is_some() && !is_one_step;
            let is_too_long = self.is_renewed_too_long(news.at_ms);
            let rule = if is_too_long { Rule::RenewedTooLong } else { Rule::ExpirySetSeparately };
            return self.wrong(is_late || is_too_long, rule, cause);
        }
        // Another connection of the holder may set the first expiry.
        let is_wrong = before_ms != expires_at_ms && (before_ms.is_some() || self.has_refused(cause.who.id));
        self.wrong(is_wrong, Rule::ExtendedByAnother, cause)
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
        if before.digest != self.tenure.token.digest {
            self.tenure.token = before;
        }
        let next = Tenure::new(news, cause, next_fence, token, expires_at_ms);
        let is_holder = self.tenure.holder.id == cause.who.id;
        let is_late = token.digest != before.digest && self.is_of_past(token, cause);
        // A script that writes the same token again knows it from somewhere.
        let is_same = token.digest == before.digest && token.is_long && cause.is_script();
        let is_own = cause.shows(before.digest) || is_same || is_holder && !is_late;
        // The page of SETNX: a client that gets an old stamp that has passed holds the lock, any other has
        // lost.
        let has_lost = self.tenure.is_stamped() && next.is_stamped();
        let has_lost = has_lost && !self.tenure.stamp_has_passed(news.at_ms);
        if is_own || has_lost {
            let is_new = token.digest != before.digest;
            if is_new {
                self.remember(before.digest);
            }
            if is_new && is_holder && !cause.shows(before.digest) {
                self.tenure.covered.get_or_insert(before.digest);
            }
            if is_own && !is_new && expires_at_ms.is_some() {
                self.renew(cause, news.at_ms);
            }
            self.tenure.token = next.token;
            self.tenure.expires_at_ms = expires_at_ms;
            let what = if is_own { "wrote it anew" } else { "lost, and replaced its time stamp" };
            self.step(news, cause, What::Deed(what));
            if is_own {
                return self.wrong(self.is_renewed_too_long(news.at_ms), Rule::RenewedTooLong, cause);
            }
            return self.wrong(true, Rule::TakeoverOverwritten, cause);
        }
        // A client that gets the old value knows from whom it takes the lock over; so does one that has read
        // it while it watches the key.
        let knows_it =
            cause.means.has(LockUse::TAKES_OVER) || cause.is_watched && self.has_read(cause.who.id);
        if knows_it || self.tenure.stamp_has_passed(news.at_ms) {
            self.pass_to(news, cause, next, End::TakenOver);
            return None;
        }
        let wrong = self.wrong(self.is_held(), Rule::OverwrittenByAnother, cause);
        self.pass_to(news, cause, next, End::Overwritten);
        wrong
    }

    /// Whether a token is that of a holder whose time has ended.
    fn is_of_past(&self, token: Token, cause: &Cause<'_>) -> bool {
        let is_same = |tenure: &&Tenure| tenure.token.digest == token.digest;
        self.past.iter().filter(is_same).any(|tenure| tenure.is_meant_by(cause))
    }

    /// A command that does not ask has written a token of a former holder after the end.
    fn remake(&mut self, news: &LockNews, cause: &Cause<'_>, next: Tenure) -> Option<Wrong> {
        let wrong = self.came_back(news, cause);
        self.pass_to(news, cause, next, End::Unseen);
        wrong
    }

    fn free(&mut self, news: &LockNews, cause: &Cause<'_>) -> Option<Wrong> {
        if let Some(signal) = &news.name {
            self.signal = Some(signal.clone());
            self.woken += 1;
        }
        if self.knows_value(news, cause) {
            self.note_pool(cause);
            self.tenure.was_compared = cause.compares_token() && cause.shows(self.tenure.token.digest);
            self.end(End::Released, news.at_ms, Some(cause));
            self.step(news, cause, What::Deed("released it"));
            return None;
        }
        if self.tenure.has_left && !self.is_contended() {
            self.end(End::ReleasedElsewhere, news.at_ms, Some(cause));
            self.step(news, cause, What::Deed("released it, after its holder had disconnected"));
            let is_due = !self.tenure.stamp_has_passed(news.at_ms);
            return self.wrong(is_due, Rule::ReleasedElsewhere, cause);
        }
        self.end(End::Deleted, news.at_ms, Some(cause));
        self.step(news, cause, What::Deed("deleted it, not being its holder"));
        // By its own value, a lock whose time stamp has passed is free.
        let is_wrong = !self.tenure.stamp_has_passed(news.at_ms);
        self.wrong(is_wrong, Rule::DeletedByAnother, cause)
    }

    /// Notes that another connection of the holder than the one that has taken the lock releases it.
    fn note_pool(&self, cause: &Cause<'_>) {
        if self.tenure.holder.id != cause.who.id && !self.tenure.has_left {
            for who in [&self.tenure.holder, &cause.who] {
                who.habits.is_pooled.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether a client acts for the holder: it shows the value, or has read it while it watched the key, or
    /// the command comes from the holder's connection and does not show the token of another. To have read
    /// the value is not enough: a thief looks, too, before it breaks a lock. LOCK does nothing with a wrong
    /// token: if that is not the one that is known, the lens has missed a grant.
    fn knows_value(&self, news: &LockNews, cause: &Cause<'_>) -> bool {
        let is_by_token = cause.means.has(LockUse::IS_FOR_LOCKS) && cause.acts();
        if is_by_token
            || cause.shows(self.tenure.token.digest)
            || cause.is_watched && self.has_read(cause.who.id)
        {
            return true;
        }
        let knows_part = cause.is_script()
            && match &news.value {
                Some(value) => cause.shows_part(value),
                None => self.has_read(cause.who.id),
            };
        if knows_part {
            return true;
        }
        let is_late = cause.is_script() && self.past.iter().any(|tenure| tenure.is_meant_by(cause));
        self.tenure.holder.id == cause.who.id && !is_late
    }

    /// Whether its holder renews it for far longer than those before have needed it, while others want it.
    fn is_renewed_too_long(&self, at_ms: u64) -> bool {
        self.tenure.is_renewed_too_long(self.past.iter(), at_ms) && self.is_contended()
    }

    fn renew(&mut self, cause: &Cause<'_>, at_ms: u64) {
        self.tenure.note_renewal(cause, at_ms);
        if let Some(metrics) = &self.metrics {
            metrics.note_renewal();
        }
    }

    fn end(&mut self, how: End, at_ms: u64, cause: Option<&Cause<'_>>) {
        self.let_go();
        if let Some(metrics) = &self.metrics {
            metrics.note_end(how, at_ms.saturating_sub(self.tenure.since_ms));
        }
        let (by, script) = cause.map_or((0, None), |cause| (cause.who.id, cause.script_id()));
        self.tenure.ended = Some(Ended { how, at_ms, by, script });
    }

    /// The connection of the holder has one lock less, or it is not known any more that it has this one.
    pub(super) fn let_go(&self) {
        if self.is_held() {
            // More may have been forgotten than are known.
            let less = |held: u32| held.checked_sub(1);
            let _ = self.tenure.holder.habits.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Whether a client has read the value that the lock has now.
    fn has_read(&self, client: u64) -> bool {
        self.timeline.has(client, READ, self.tenure.since_ms)
    }

    /// A finding about the present holder, if `is_wrong` holds and no finding of this rule came before.
    fn wrong(&mut self, is_wrong: bool, rule: Rule, cause: &Cause<'_>) -> Option<Wrong> {
        let is_news = is_wrong && self.tenure.tell_once(rule);
        is_news.then(|| self.describe(rule, cause))
    }

    fn describe(&self, rule: Rule, cause: &Cause<'_>) -> Wrong {
        let advice = Advice::of(rule, self.kind(), cause.compares());
        let (clients, is_quiet) = (self.involved(cause), self.is_quiet(rule));
        Wrong { rule, clients, advice, is_known: false, is_quiet }
    }

    /// Whether a finding is worth no line in the log.
    fn is_quiet(&self, rule: Rule) -> bool {
        match rule {
            // Some frameworks mean it.
            Rule::ReleasedElsewhere => true,
            Rule::NoExpiry if self.is_mere_note() => true,
            _ => self.evidence().is_none(),
        }
    }

    /// The client of a lock without an expiry has disconnected. Returns misuse if it is the first time.
    pub(super) fn leave(&mut self, client: u64) -> Option<Wrong> {
        for tenure in std::iter::once(&mut self.tenure).chain(&mut self.past) {
            tenure.client_is_gone |= tenure.holder.id == client;
        }
        if !self.is_held() || self.tenure.holder.id != client {
            return None;
        }
        self.tenure.has_left = true;
        // That a field has got an expiry is seen when the next client is refused.
        if self.field.is_some() || !self.tenure.is_for_ever() || !self.tenure.tell_once(Rule::NoExpiry) {
            return None;
        }
        let clients = vec![Arc::clone(&self.tenure.holder)];
        let advice = Advice::of(Rule::NoExpiry, self.kind(), false);
        let is_quiet = self.is_quiet(Rule::NoExpiry);
        Some(Wrong { rule: Rule::NoExpiry, clients, advice, is_known: false, is_quiet })
    }

    /// What kind of lock it is.
    fn kind(&self) -> LockKind {
        match () {
            () if self.is_hash() => LockKind::Hash,
            () if self.tenure.is_set => LockKind::SortedSet,
            () if self.signal.is_some() || self.key.starts_with(b"lock:") && self.woken > 0 => {
                LockKind::Signal
            }
            () => LockKind::Text,
        }
    }

    /// The client that acted, and the lock's holder.
    fn involved(&self, cause: &Cause<'_>) -> Vec<Arc<Who>> {
        let mut clients = vec![Arc::clone(&cause.who)];
        if self.tenure.holder.id != cause.who.id {
            clients.push(Arc::clone(&self.tenure.holder));
        }
        clients
    }

    fn step(&mut self, news: &LockNews, cause: &Cause<'_>, what: What) {
        self.timeline.add(cause, what, news.at_ms);
    }

    /// Its holder, if a client holds it.
    pub(super) fn holder(&self) -> Option<Holder> {
        let Tenure { holder, token, fence, since_ms, has_left, .. } = &self.tenure;
        let holder = || Holder {
            who: Arc::clone(holder),
            token: *token,
            fence: *fence,
            since_ms: *since_ms,
            has_left: *has_left,
        };
        self.is_held().then(holder)
    }

    /// Notes a finding about several locks. Returns whether it is the first of its rule about this holder.
    pub(super) fn tell_once(&mut self, rule: Rule) -> bool {
        self.tenure.tell_once(rule)
    }

    /// What a rule means for it, and what to do instead.
    pub(super) fn advice(&self, rule: Rule) -> Advice {
        Advice::of(rule, self.kind(), false)
    }

    /// The history, one step a line, with the milliseconds since a moment.
    pub(super) fn timeline_from(&self, since_ms: u64) -> Vec<String> {
        self.timeline.lines_since(since_ms)
    }

    /// The history, one step a line, with the milliseconds since the first step.
    pub fn timeline(&self) -> Vec<String> {
        self.timeline.lines()
    }

    /// When the first step of the timeline was, in milliseconds since 1970.
    pub fn timeline_since_ms(&self) -> u64 {
        self.timeline.since_ms()
    }
}
