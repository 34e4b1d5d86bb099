//! The lines in which clients wait for keys that have nothing for them yet (BLPOP and the like).
//!
//! Clients that wait for the same key, and for the same kind of value, stand in one line, in the order in
//! which they came. A client that waits for several keys stands in several lines. Only the first of a line
//! asks the store: when its key has changed, and once a second ([`GLANCE`]), in case a change was not heard
//! of. When it has taken something, and something is left, the next one is called: at once, so that what both
//! take travels in one batch. If the first leaves before the store has answered it, the next one is called,
//! too. So a push costs one request of one client, and nothing is overlooked.
//!
//! Each client looks once when it comes. If something is there, and other clients stand before it, it leaves
//! it to them. A client whose time is up before it has found its keys empty once takes what is there.
//!
//! Clients that only read (XREAD) take nothing from each other. A change calls all of them, and the first one
//! looks once a second for all: what it finds is news for the others.
//!
//! # Over front-ends
//!
//! Front-ends tell each other when the first client of each line came ([`News::First`]): when that changes,
//! and once a second. The moment is the time of the store, as the front-end knows it, or of the machine where
//! the store is etcd. But it is always later than all such moments that the front-end has heard of. So a
//! client that came after another front-end had told of an earlier client stands behind it, whatever the
//! clocks show.
//!
//! A front-end whose first client came later than that of another one lets the other one ask first. If the
//! other one does not do so within [`GRACE`], for it is frozen or dead, it is passed over: this first client
//! of it does not count here any more, and none of its other ones until it tells of them again. What was not
//! told again for [`FIRST_KEPT`] is forgotten.
//!
//! Clients that wait for a lock stand in a line, too: their kind of value is none ([`ABSENT_KIND`]), and the
//! first one also looks when the lock expires. If the store still has the lock then, it looks again after
//! [`OVERDUE_GLANCE`], and then each time after twice as long: the clock here may be ahead of the store's by
//! a little, and etcd frees keys up to some seconds late.
//!
//! The order is not in the store, since nothing but the order depends on it: which client gets an element is
//! decided by the store, as for every request, and no element is lost or given twice, whatever front-ends
//! believe. To keep the lines in the store would cost a write when a client comes and one when it leaves. And
//! it would need leases shorter than a second, which etcd does not have, to pass over a front-end that hangs.
//!
//! What the order does not promise:
//!
//! - Of two clients that come to two front-ends within the time that news take, some milliseconds, either may
//!   be first. So it is in the first second after a front-end has connected, or has lost news.
//! - When a front-end hangs, or needs more than [`GRACE`] for its turn, clients of others are served before
//!   its own.
//! - A client that takes without waiting (LPOP) does not stand in any line, and may come before all.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::news::News;
use super::row::{Key, KeyMap, Row};
use crate::values::ABSENT_KIND;

/// How soon the first of a line asks the store though no change was heard of.
const GLANCE: Duration = Duration::from_secs(1);
/// How soon the first of a line looks again for a lock that should have expired.
const OVERDUE_GLANCE: Duration = Duration::from_millis(1);
/// How long a front-end waits for another one whose client came earlier.
const GRACE: Duration = Duration::from_secs(1);
/// How long the first of a line at another front-end counts. Front-ends send it once a second.
const FIRST_KEPT: Duration = Duration::from_millis(2_500);
/// Lines of other front-ends that are noted. In other ones, only the order over front-ends is lost.
const ELSEWHERE_MAX: usize = 100_000;

/// When a client came: microseconds since 1970, by the store's clock or somewhat later. No two clients of one
/// front-end have the same.
pub(super) type Arrival = u64;

/// The batches that have not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenBatches {
    /// The one that forms.
    pub(super) forming: u64,
    /// The one that is under way.
    pub(super) under_way: Option<u64>,
}

/// What a client does next that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It asks the store.
    Look,
    /// It waits: until it is woken, or until this moment.
    Wait(Option<Instant>),
}

/// All lines of a front-end.
#[derive(Debug, Default)]
pub(super) struct Lines {
    clients: HashMap<Arrival, InLine>,
    /// The lines for a key, one for each kind of value that is waited for.
    lines: KeyMap<Vec<Line>>,
    elsewhere: KeyMap<Vec<Elsewhere>>,
    elsewhere_count: usize,
    /// The latest arrival that was given or heard of.
    last: Arrival,
    /// What is to be told to other front-ends.
    news: Vec<News>,
}

/// A client that waits.
#[derive(Debug)]
struct InLine {
    keys: Arc<[Key]>,
    kind: u8,
    takes: bool,
    woken: Arc<Notify>,
    /// Whether it has asked the store, and does not know yet what came of it.
    is_looking: bool,
    /// The batch with which it takes something.
    travels_in: Option<u64>,
    /// Whether it looks wherever it stands.
    is_due: bool,
    /// Since when it lets others take first from another key.
    lets_others: Option<Instant>,
}

/// The clients that wait for one kind of value in one key.
#[derive(Debug)]
struct Line {
    kind: u8,
    /// Those that take something, of which the first is served.
    takers: BTreeSet<Arrival>,
    /// Those that only read.
    readers: BTreeSet<Arrival>,
    /// Whether there may be something for the first.
    may_have: bool,
    /// The version of the row that was seen last, if it is known; none for an absent row.
    seen: Option<Option<i64>>,
    /// When the line has looked last.
    looked: Instant,
    /// When the lock expires for which the clients wait.
    expires: Option<Instant>,
    /// How often it was looked for in vain after that moment, and when it is looked for again at the
    /// earliest.
    overdue: (u32, Option<Instant>),
    /// Since when a client of another front-end may take first what is there.
    owed: Option<Instant>,
    /// The first, as other front-ends were told.
    told: Option<Arrival>,
    /// Clients that let others take first from this key, though they are the first of another line.
    lets_others: Vec<Arrival>,
}

/// The first of a line at another front-end.
#[derive(Debug)]
struct Elsewhere {
    kind: u8,
    front: i64,
    first: Arrival,
    heard: Instant,
    /// Whether it did not come in its turn.
    was_passed_over: bool,
}

/// Whether what a client takes is on its way.
fn is_on_its_way(clients: &HashMap<Arrival, InLine>, arrival: Arrival, open: OpenBatches) -> bool {
    let travels_in = clients.get(&arrival).and_then(|client| client.travels_in);
    travels_in.is_some_and(|batch| batch == open.forming || Some(batch) == open.under_way)
}

impl Line {
    fn new(kind: u8, now: Instant) -> Line {
        Line {
            kind,
            takers: BTreeSet::new(),
            readers: BTreeSet::new(),
            may_have: false,
            seen: None,
            looked: now,
            expires: None,
            overdue: (0, None),
            owed: None,
            told: None,
            lets_others: Vec::new(),
        }
    }

    /// The first of those that take something, and are not doing so already.
    fn next(&self, clients: &HashMap<Arrival, InLine>, open: OpenBatches) -> Option<Arrival> {
        self.takers.iter().copied().find(|arrival| !is_on_its_way(clients, *arrival, open))
    }

    /// Calls the next client if there may be something for it.
    fn call(&self, clients: &HashMap<Arrival, InLine>, open: OpenBatches) {
        if self.may_have
            && let Some(client) = self.next(clients, open).and_then(|next| clients.get(&next))
        {
            client.woken.notify_one();
        }
    }

    /// Calls those that let others take first from this key: it is not as it was.
    fn go_on(&mut self, clients: &mut HashMap<Arrival, InLine>) {
        for arrival in self.lets_others.drain(..) {
            if let Some(client) = clients.get_mut(&arrival).filter(|client| client.lets_others.is_some()) {
                (client.lets_others, client.is_due) = (None, true);
                client.woken.notify_one();
            }
        }
    }

    /// Calls those that only read.
    fn call_readers(&self, clients: &mut HashMap<Arrival, InLine>) {
        for arrival in &self.readers {
            if let Some(client) = clients.get_mut(arrival) {
                client.is_due = true;
                client.woken.notify_one();
            }
        }
    }
}

impl Lines {
    /// Whether clients wait for a key that take something, here or at another front-end.
    pub(super) fn has_line(&self, key: &Key, kind: u8, now: Instant) -> bool {
        let is_here = |line: &Line| line.kind == kind && !line.takers.is_empty();
        self.lines.get(key).is_some_and(|lines| lines.iter().any(is_here))
            || is_later_than_another(&self.elsewhere, (key, kind), (Arrival::MAX, i64::MAX), now)
    }

    /// Whether no client waits.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Places a client at the end of the lines of its keys. Returns when it came, and what wakes it.
    pub(super) fn stand(
        &mut self,
        keys: Arc<[Key]>,
        (kind, takes): (u8, bool),
        (now_us, now): (u64, Instant),
    ) -> (Arrival, Arc<Notify>) {
        let arrival = now_us.max(self.last.saturating_add(1));
        self.last = arrival;
        for key in keys.iter() {
            let lines = self.lines.entry(key.clone()).or_default();
            let place = lines.iter().position(|line| line.kind == kind).unwrap_or_else(|| {
                lines.push(Line::new(kind, now));
                lines.len() - 1
            });
            let line = &mut lines[place];
            let side = if takes { &mut line.takers } else { &mut line.readers };
            side.insert(arrival);
            tell_first(line, key, &mut self.news);
        }
        let woken = Arc::new(Notify::new());
        let client = InLine {
            keys,
            kind,
            takes,
            woken: Arc::clone(&woken),
            is_looking: false,
            travels_in: None,
            is_due: false,
            lets_others: None,
        };
        self.clients.insert(arrival, client);
        (arrival, woken)
    }

    /// Removes a client from its lines. If it has asked the store, and does not know what came of it, the
    /// next one asks.
    pub(super) fn leave(&mut self, arrival: Arrival, open: OpenBatches) {
        let Some(left) = self.clients.remove(&arrival) else { return };
        for key in left.keys.iter() {
            let Some(lines) = self.lines.get_mut(key) else { continue };
            let Some(place) = lines.iter().position(|line| line.kind == left.kind) else { continue };
            let line = &mut lines[place];
            line.takers.remove(&arrival);
            line.readers.remove(&arrival);
            line.may_have |= left.is_looking;
            line.go_on(&mut self.clients);
            // Also because the next one looks once a second from now on.
            if let Some(client) = line.next(&self.clients, open).and_then(|next| self.clients.get(&next)) {
                client.woken.notify_one();
            }
            if let Some(client) = line.readers.first().and_then(|first| self.clients.get(first)) {
                client.woken.notify_one();
            }
            tell_first(line, key, &mut self.news);
            if line.takers.is_empty() && line.readers.is_empty() {
                lines.swap_remove(place);
            }
            if lines.is_empty() {
                self.lines.remove(key);
            }
        }
    }

    /// Notes that a key has changed, and is not known as it is now.
    pub(super) fn changed(&mut self, key: &Key, open: OpenBatches) {
        let Lines { clients, lines, .. } = self;
        for line in lines.get_mut(key).into_iter().flatten() {
            changed(line, clients, open);
        }
    }

    /// Notes that all keys may have changed.
    pub(super) fn all_changed(&mut self, open: OpenBatches) {
        let Lines { clients, lines, .. } = self;
        lines.values_mut().flatten().for_each(|line| changed(line, clients, open));
    }

    /// Notes how the store has a key, and when it expires, if it does. `is_written` says that this front-end
    /// has just written it.
    pub(super) fn saw(
        &mut self,
        key: &Key,
        (row, expires): (&Row, Option<Instant>),
        is_written: bool,
        open: OpenBatches,
    ) {
        let Lines { clients, lines, .. } = self;
        let version = row.live.as_ref().map(|_| row.version);
        let kind = row.live.as_ref().map_or(ABSENT_KIND, |live| live.kind);
        for line in lines.get_mut(key).into_iter().flatten() {
            let before = line.seen.replace(version);
            if before != Some(version) {
                line.overdue = (0, None);
            }
            let expires = expires.filter(|_| line.kind == ABSENT_KIND);
            line.expires = expires.max(expires.and(line.overdue.1));
            if before == Some(version) && !is_written {
                continue;
            }
            line.may_have |= kind == line.kind;
            line.call(clients, open);
            line.go_on(clients);
            // Where nothing is known of before, those that read know of no other row either.
            if is_written || before.is_some() {
                line.call_readers(clients);
            }
        }
    }

    /// What a client does now that waits.
    pub(super) fn next_step(
        &mut self,
        (arrival, front): (Arrival, i64),
        open: OpenBatches,
        now: Instant,
    ) -> Step {
        let Lines { clients, lines, elsewhere, .. } = self;
        let Some(client) = clients.get_mut(&arrival) else { return Step::Look };
        if client.lets_others.is_some_and(|since| since + GRACE <= now) {
            (client.lets_others, client.is_due) = (None, true);
        }
        if std::mem::take(&mut client.is_due) {
            return Step::Look;
        }
        let (keys, kind, takes) = (Arc::clone(&client.keys), client.kind, client.takes);
        let mut until = client.lets_others.map(|since| since + GRACE);
        let lets_others = until.is_some();
        for key in keys.iter() {
            let Some(line) = line_of(lines, key, kind) else { continue };
            let first = if takes { line.next(clients, open) } else { line.readers.first().copied() };
            if first != Some(arrival) {
                continue;
            }
            let mut moment = line.expires.map_or(line.looked + GLANCE, |at| at.min(line.looked + GLANCE));
            if takes && line.may_have && !lets_others {
                if !is_later_than_another(elsewhere, (key, kind), (arrival, front), now) {
                    return Step::Look;
                }
                moment = moment.min(*line.owed.get_or_insert(now) + GRACE);
            }
            if moment <= now {
                if line.expires.take().is_some_and(|expires| expires <= now) {
                    let (times, _) = line.overdue;
                    let pause = OVERDUE_GLANCE.saturating_mul(1 << times.min(10)).min(GLANCE);
                    line.overdue = (times + 1, Some(now + pause));
                }
                line.looked = now;
                return Step::Look;
            }
            until = Some(until.map_or(moment, |until| until.min(moment)));
        }
        Step::Wait(until)
    }

    /// Whether a client may take something from a key that seems to have it. Otherwise it goes on waiting,
    /// and the client whose turn it is is called.
    pub(super) fn may_take(
        &mut self,
        (arrival, front): (Arrival, i64),
        key: &Key,
        open: OpenBatches,
        now: Instant,
    ) -> bool {
        let Lines { clients, lines, elsewhere, .. } = self;
        let Some(client) = clients.get_mut(&arrival) else { return true };
        (client.is_looking, client.travels_in) = (false, None);
        let (keys, kind) = (Arc::clone(&client.keys), client.kind);
        let Some(line) = line_of(lines, key, kind) else { return true };
        if line.next(clients, open) == Some(arrival) {
            if !is_later_than_another(elsewhere, (key, kind), (arrival, front), now) {
                return true;
            }
            if *line.owed.get_or_insert(now) + GRACE <= now {
                line.owed = None;
                self.pass_over((key, kind), (arrival, front));
                return true;
            }
        }
        line.may_have = true;
        line.call(clients, open);
        let mut is_first_elsewhere = false;
        for other in keys.iter().filter(|other| *other != key) {
            let Some(line) = line_of(lines, other, kind) else { continue };
            if line.next(clients, open) == Some(arrival) {
                (line.may_have, is_first_elsewhere) = (true, true);
            }
        }
        if is_first_elsewhere
            && let Some(client) = clients.get_mut(&arrival)
            && let Some(line) = line_of(lines, key, kind)
        {
            client.lets_others = Some(now);
            line.lets_others.retain(|other| *other != arrival);
            line.lets_others.push(arrival);
        }
        false
    }

    /// Notes that a client asks the store now.
    pub(super) fn asks(&mut self, arrival: Arrival, open: OpenBatches) {
        let Lines { clients, lines, .. } = self;
        let Some(client) = clients.get_mut(&arrival) else { return };
        (client.is_looking, client.travels_in, client.is_due) = (true, None, false);
        client.lets_others = None;
        let (keys, kind) = (Arc::clone(&client.keys), client.kind);
        for key in keys.iter() {
            let Some(line) = line_of(lines, key, kind) else { continue };
            if line.next(clients, open) == Some(arrival) {
                line.may_have = false;
            }
        }
    }

    /// Notes that a client takes something from a key with this batch, and whether it leaves something there.
    pub(super) fn takes(
        &mut self,
        arrival: Arrival,
        batch: u64,
        key: &Key,
        leaves_some: bool,
        open: OpenBatches,
    ) {
        let Lines { clients, lines, .. } = self;
        let Some(client) = clients.get_mut(&arrival) else { return };
        client.travels_in = Some(batch);
        let (keys, kind) = (Arc::clone(&client.keys), client.kind);
        for other in keys.iter() {
            let Some(line) = line_of(lines, other, kind) else { continue };
            line.may_have |= leaves_some && other == key;
            line.call(clients, open);
        }
    }

    /// Notes that a client knows what came of its question.
    pub(super) fn has_looked(&mut self, arrival: Arrival, now: Instant) {
        let Lines { clients, lines, .. } = self;
        let Some(client) = clients.get_mut(&arrival) else { return };
        (client.is_looking, client.travels_in) = (false, None);
        for key in client.keys.iter() {
            let Some(line) = line_of(lines, key, client.kind) else { continue };
            line.looked = now;
            if !line.may_have {
                line.owed = None;
            }
        }
    }

    /// Hears from another front-end when the first client of a line there came; `None` if it has none.
    pub(super) fn hear_first(
        &mut self,
        front: i64,
        (key, kind, first): (&Key, u8, Option<Arrival>),
        open: OpenBatches,
        now: Instant,
    ) {
        self.last = self.last.max(first.unwrap_or(0));
        let firsts = self.elsewhere.entry(key.clone()).or_default();
        let place = firsts.iter().position(|one| one.front == front && one.kind == kind);
        let is_same = match (place, first) {
            (Some(place), Some(first)) if firsts[place].first == first => {
                firsts[place].heard = now;
                true
            }
            (Some(place), Some(first)) => {
                firsts[place] = Elsewhere { kind, front, first, heard: now, was_passed_over: false };
                false
            }
            (Some(place), None) => {
                firsts.swap_remove(place);
                self.elsewhere_count -= 1;
                false
            }
            (None, Some(first)) if self.elsewhere_count < ELSEWHERE_MAX => {
                firsts.push(Elsewhere { kind, front, first, heard: now, was_passed_over: false });
                self.elsewhere_count += 1;
                false
            }
            (None, _) => true,
        };
        if firsts.is_empty() {
            self.elsewhere.remove(key);
        }
        let Lines { clients, lines, .. } = self;
        if !is_same && let Some(line) = line_of(lines, key, kind) {
            // The other one has taken its turn, or waits no longer.
            line.owed = None;
            line.go_on(clients);
            line.call(clients, open);
        }
    }

    /// Notes all that other front-ends shall know, and forgets what they have not told for some time.
    pub(super) fn tell_all(&mut self, now: Instant) {
        for (key, lines) in &self.lines {
            for Line { kind, takers, .. } in lines {
                if let Some(first) = takers.first() {
                    self.news.push(News::First { key: key.clone(), kind: *kind, first: Some(*first) });
                }
            }
        }
        self.keep_elsewhere(|_, one| now.duration_since(one.heard) < FIRST_KEPT);
    }

    /// What is to be told to other front-ends.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Passes over the front-ends that have not taken something from a line in their turn.
    fn pass_over(&mut self, (key, kind): (&Key, u8), own: (Arrival, i64)) {
        let is_earlier = |one: &Elsewhere| one.kind == kind && (one.first, one.front) < own;
        let mut fronts = Vec::new();
        for one in self.elsewhere.get_mut(key).into_iter().flatten().filter(|one| is_earlier(one)) {
            one.was_passed_over = true;
            fronts.push(one.front);
        }
        self.keep_elsewhere(|_, one| one.was_passed_over || !fronts.contains(&one.front));
    }

    fn keep_elsewhere(&mut self, is_kept: impl Fn(&Key, &Elsewhere) -> bool) {
        self.elsewhere.retain(|key, firsts| {
            firsts.retain(|one| is_kept(key, one));
            !firsts.is_empty()
        });
        self.elsewhere_count = self.elsewhere.values().map(Vec::len).sum();
    }
}

fn line_of<'l>(lines: &'l mut KeyMap<Vec<Line>>, key: &Key, kind: u8) -> Option<&'l mut Line> {
    lines.get_mut(key)?.iter_mut().find(|line| line.kind == kind)
}

/// A key of this line has changed.
fn changed(line: &mut Line, clients: &mut HashMap<Arrival, InLine>, open: OpenBatches) {
    (line.may_have, line.seen) = (true, None);
    line.call(clients, open);
    line.go_on(clients);
    line.call_readers(clients);
}

/// Notes that other front-ends are to know who is the first of a line, if they do not.
fn tell_first(line: &mut Line, key: &Key, news: &mut Vec<News>) {
    let first = line.takers.first().copied();
    if first != line.told {
        line.told = first;
        news.push(News::First { key: key.clone(), kind: line.kind, first });
    }
}

/// Whether the first of the line of another front-end came earlier, as far as is known.
fn is_later_than_another(
    elsewhere: &KeyMap<Vec<Elsewhere>>,
    (key, kind): (&Key, u8),
    own: (Arrival, i64),
    now: Instant,
) -> bool {
    elsewhere.get(key).into_iter().flatten().any(|one| {
        one.kind == kind
            && !one.was_passed_over
            && (one.first, one.front) < own
            && now.duration_since(one.heard) < FIRST_KEPT
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::remote::row::Live;

    const LIST: u8 = 1;
    const FRONT: i64 = 5;
    const IDLE: OpenBatches = OpenBatches { forming: 3, under_way: None };

    fn row(version: i64, kind: u8) -> Row {
        let live = Live { kind, value: Bytes::new(), expires_at_ms: None, is_lock: false };
        Row { version, live: Some(live), ..Row::default() }
    }

    /// The lines of a front-end with clients that wait for these keys, who came in this order.
    fn lines(clients: &[&[&str]], now: Instant) -> (Lines, Vec<Arrival>) {
        let mut lines = Lines::default();
        let arrivals = clients.iter().map(|keys| {
            let keys = keys.iter().map(|key| Key::new(0, key.as_bytes())).collect();
            lines.stand(keys, (LIST, true), (100, now)).0
        });
        let arrivals = arrivals.collect();
        (lines, arrivals)
    }

    fn looks(lines: &mut Lines, arrival: Arrival, open: OpenBatches, now: Instant) -> bool {
        lines.next_step((arrival, FRONT), open, now) == Step::Look
    }

    #[test]
    fn the_first_is_called_and_the_next_one_as_soon_as_it_takes_something_and_leaves_some() {
        let now = Instant::now();
        let (mut lines, arrivals) = lines(&[&["k"], &["k"], &["k"]], now);
        let key = Key::new(0, b"k");
        let called = |lines: &mut Lines, open| {
            let called = arrivals.iter().map(|arrival| looks(lines, *arrival, open, now));
            called.collect::<Vec<_>>()
        };
        assert_eq!(called(&mut lines, IDLE), [false, false, false]);
        lines.saw(&key, (&row(1, LIST + 1), None), true, IDLE);
        assert_eq!(called(&mut lines, IDLE), [false, false, false], "that is of another type");
        lines.saw(&key, (&row(2, LIST), None), true, IDLE);
        assert_eq!(called(&mut lines, IDLE), [true, false, false]);
        assert!(!lines.may_take((arrivals[1], FRONT), &key, IDLE, now));
        assert!(lines.may_take((arrivals[0], FRONT), &key, IDLE, now));
        lines.asks(arrivals[0], IDLE);
        assert_eq!(called(&mut lines, IDLE), [false, false, false]);
        lines.takes(arrivals[0], IDLE.forming, &key, true, IDLE);
        assert_eq!(called(&mut lines, IDLE), [false, true, false]);
        assert!(lines.may_take((arrivals[1], FRONT), &key, IDLE, now));
        // The store has not done it: the first is the first again.
        let later = OpenBatches { forming: 4, under_way: None };
        assert!(!lines.may_take((arrivals[1], FRONT), &key, later, now));
        assert_eq!(called(&mut lines, later), [true, false, false]);
        // It leaves before it knows what came of it.
        lines.asks(arrivals[0], later);
        lines.leave(arrivals[0], later);
        assert!(looks(&mut lines, arrivals[1], later, now));
        lines.asks(arrivals[1], later);
        lines.has_looked(arrivals[1], now);
        lines.leave(arrivals[1], later);
        assert!(!looks(&mut lines, arrivals[2], later, now), "nothing was there");
        assert!(looks(&mut lines, arrivals[2], later, now + GLANCE), "it looks once a second");
        lines.leave(arrivals[2], later);
        assert!(lines.is_empty() && lines.lines.is_empty());
    }

    #[test]
    fn a_lock_that_expires_late_is_looked_for_less_and_less_often() {
        let mut now = Instant::now();
        let mut lines = Lines::default();
        let key = Key::new(0, b"k");
        let (arrival, _) = lines.stand([key.clone()].into(), (ABSENT_KIND, true), (100, now));
        let (expires, began) = (now + Duration::from_millis(20), now);
        lines.saw(&key, (&row(1, 0), Some(expires)), false, IDLE);
        let mut looks = Vec::new();
        while now < began + Duration::from_secs(3) {
            match lines.next_step((arrival, FRONT), IDLE, now) {
                Step::Look => {
                    looks.push(now);
                    lines.asks(arrival, IDLE);
                    lines.saw(&key, (&row(1, 0), Some(expires)), false, IDLE);
                    lines.has_looked(arrival, now);
                }
                Step::Wait(until) => now = until.expect("a moment"),
            }
        }
        assert_eq!(looks[..2], [expires, expires + OVERDUE_GLANCE]);
        assert!(looks.len() < 15, "{looks:?}");
        // Another lock has a moment of its own.
        lines.has_looked(arrival, now);
        let expires = now + Duration::from_millis(5);
        lines.saw(&key, (&row(2, 0), Some(expires)), false, IDLE);
        assert_eq!(lines.next_step((arrival, FRONT), IDLE, now), Step::Wait(Some(expires)));
    }

    #[test]
    fn one_of_several_keys_waits_until_those_before_it_have_taken_what_it_would_get_first() {
        let now = Instant::now();
        let (mut lines, arrivals) = lines(&[&["a"], &["a", "b"]], now);
        let (a, b) = (Key::new(0, b"a"), Key::new(0, b"b"));
        lines.saw(&b, (&row(1, LIST), None), true, IDLE);
        assert!(looks(&mut lines, arrivals[1], IDLE, now));
        // It finds that its first key has something, too.
        assert!(!lines.may_take((arrivals[1], FRONT), &a, IDLE, now));
        assert!(!looks(&mut lines, arrivals[1], IDLE, now));
        assert!(looks(&mut lines, arrivals[0], IDLE, now));
        lines.saw(&a, (&Row::default(), None), true, IDLE);
        assert!(looks(&mut lines, arrivals[1], IDLE, now));
        assert!(lines.may_take((arrivals[1], FRONT), &b, IDLE, now));
    }

    #[test]
    fn a_front_end_lets_others_whose_clients_came_earlier_take_first_but_not_for_long() {
        let now = Instant::now();
        let (mut lines, arrivals) = lines(&[&["k"]], now);
        let (key, own) = (Key::new(0, b"k"), (arrivals[0], FRONT));
        let told = News::First { key: key.clone(), kind: LIST, first: Some(100) };
        assert_eq!(lines.take_news(), [told]);
        let hear = |lines: &mut Lines, front, first, now| {
            lines.hear_first(front, (&key, LIST, first), IDLE, now);
        };
        hear(&mut lines, FRONT + 1, Some(100), now);
        lines.changed(&key, IDLE);
        assert!(looks(&mut lines, own.0, IDLE, now), "of the same moment, that of the lower number is first");
        hear(&mut lines, FRONT - 1, Some(100), now);
        assert!(!looks(&mut lines, own.0, IDLE, now) && !lines.may_take(own, &key, IDLE, now));
        assert_eq!(lines.next_step(own, IDLE, now), Step::Wait(Some(now + GRACE)));
        // It has taken something, or gone.
        hear(&mut lines, FRONT - 1, Some(200), now);
        assert!(looks(&mut lines, own.0, IDLE, now));
        hear(&mut lines, FRONT - 1, Some(90), now);
        assert!(!looks(&mut lines, own.0, IDLE, now));
        hear(&mut lines, FRONT - 1, None, now);
        assert!(looks(&mut lines, own.0, IDLE, now));
        // It hangs.
        hear(&mut lines, FRONT - 1, Some(90), now);
        assert!(!looks(&mut lines, own.0, IDLE, now));
        let later = now + GRACE;
        hear(&mut lines, FRONT - 1, Some(90), later);
        assert!(looks(&mut lines, own.0, IDLE, later) && lines.may_take(own, &key, IDLE, later));
        hear(&mut lines, FRONT - 1, Some(90), later);
        assert!(lines.may_take(own, &key, IDLE, later), "it holds up no client twice");
        // It is not heard of any more.
        hear(&mut lines, FRONT - 1, Some(95), later);
        assert!(!lines.may_take(own, &key, IDLE, later));
        assert!(lines.may_take(own, &key, IDLE, later + FIRST_KEPT));
        lines.tell_all(later + FIRST_KEPT);
        assert!(lines.elsewhere.is_empty() && lines.elsewhere_count == 0);
        assert!(
            lines.stand([key].into(), (LIST, true), (0, now)).0 > 200,
            "later than all that it has heard of"
        );
    }
}
