//! Locks in the store whose holders want more than that others are refused: that the lock lives as long as
//! their connection (LOCK ACQUIRE … BOUND), or to be notified when they lose it (NOTIFY).
//!
//! The rules are those of a [guard](Guard) in memory. But other front-ends change the lock as well, and only
//! the store knows what it is. So for each such lock a [`Post`] stands in the line of the key, like a client
//! that waits and only reads. It hears of changes, and asks the store what the lock is now. A renewal, or the
//! end, is a write as that of any request: it is done if the row is as it was seen. If clients of this
//! front-end have several [`permits`](super::permits) of a lock, one post looks after all of them: each
//! change of the row is read once, and one write renews all that are due.
//!
//! - **Another connection takes the lock over**, maybe at another front-end: it writes its name into the row.
//!   The post before finds another holder there, and lets go. The row does not say to whom a permit is bound:
//!   it lives as long as one of the connections.
//! - **The store cannot be reached**: once the time of the lock has passed by this front-end's clock, its
//!   holder is notified that it has expired.
//! - **What the holder did itself** is no news for it. A request that ends a lock stakes that before it
//!   travels ([`OwnWrites`]), since the post may hear of the change before the request has its reply.
//! - **The connection ends while the store grants the lock**: the post is there before the request travels
//!   ([`Promised`]), and looks whether the lock was granted.

use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout_at};

use super::batch::{Attempt, AttemptPart, Verdict};
use super::news::{Ears, News};
use super::permits::Permits;
use super::row::{Key, KeyMap, Live, Row};
use super::{Listening, Looked, NotJoined, Remote, WaitsFor};
use crate::keyspace::{BondShown, Cut, Guard, GuardWish, Guarded, Lifeline, LossReason, LostLock};
use crate::values::ABSENT_KIND;

/// The pause before a store is asked again that could not be reached.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause before the store is asked again that has done nothing, since others were faster.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// The longest pause before a lock is looked for again that should have expired. etcd frees it up to seconds
/// late.
const OVERDUE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// By how much the clock here may be behind the store's, in milliseconds.
const CLOCKS_APART_MS: u64 = 50;

/// What a client wishes of a lock that the store grants to it.
#[derive(Debug)]
pub struct StoreWish {
    /// The key that is the lock.
    pub key: Key,
    /// The token by which the client holds it.
    pub token: Bytes,
    /// Its fencing number.
    pub number: u64,
    /// When it expires, or the permit ends, in milliseconds since 1970 by the store's clock.
    pub expires_at_ms: Option<u64>,
    /// What the client wants besides.
    pub wish: GuardWish,
}

/// The locks of this front-end that have guards.
#[derive(Debug)]
pub(super) struct Guards {
    table: Mutex<Table>,
    /// How many there are, for a look without the mutex.
    count: AtomicUsize,
    /// Those that nothing looks after yet.
    sender: mpsc::UnboundedSender<Arc<Post>>,
    receiver: Mutex<Option<mpsc::UnboundedReceiver<Arc<Post>>>>,
    /// Whether the server ends. That ends the connections of all holders, and is no end of their locks: what
    /// is left of these is left.
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// The newest guard of each key.
    posts: KeyMap<Arc<Post>>,
    /// Guards of locks that the store may be about to grant.
    promised: KeyMap<Vec<Arc<Post>>>,
}

impl Table {
    fn all(&self) -> impl Iterator<Item = &Arc<Post>> {
        self.posts.values().chain(self.promised.values().flatten())
    }

    fn of_key(&self, key: &Key) -> impl Iterator<Item = &Arc<Post>> {
        self.posts.get(key).into_iter().chain(self.promised.get(key).into_iter().flatten())
    }

    /// Forgets that a lock may be about to be granted.
    fn take_promised(&mut self, post: &Arc<Post>) {
        if let Some(promised) = self.promised.get_mut(&post.key) {
            promised.retain(|other| !Arc::ptr_eq(other, post));
            if promised.is_empty() {
                self.promised.remove(&post.key);
            }
        }
    }
}

/// A lock with a guard, or one of which clients of this front-end have permits with guards.
#[derive(Debug)]
struct Post {
    key: Key,
    /// Whether it is for permits.
    is_shared: bool,
    state: Mutex<State>,
    /// Wakes what looks after it.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What clients hold, by their tokens; a single one, unless it is for permits.
    held: HashMap<Bytes, Held>,
    /// Permits in whose place their tokens have got others.
    former: Vec<Held>,
    /// How often something was added: a look that has begun before shows nothing about that.
    additions: u64,
}

/// What a client holds.
#[derive(Debug)]
struct Held {
    number: u64,
    /// `None` once another post of the same lock has taken it over.
    guard: Option<Guard>,
    /// Who has bound it, as the row says.
    holder: Arc<str>,
    /// When it expires, as it was seen last, in milliseconds since 1970 by the store's clock.
    expires_at_ms: Option<u64>,
    /// Whether the expiry was not read since the request that has bound it.
    is_fresh: bool,
    /// Whether it is not known that it was granted: the connection has ended before.
    is_in_doubt: bool,
    /// Whether its token was granted it anew.
    is_anew: bool,
    /// Which addition it was.
    addition: u64,
    /// What its holder itself does to it.
    own: Arc<Own>,
    /// Whether its database was emptied.
    is_flushed: bool,
    /// How often it was looked for in vain after its time.
    overdue: u32,
}

/// What a holder itself does to its lock.
#[derive(Debug, Default)]
struct Own {
    /// Requests of its holder under way that end the lock.
    writes: AtomicUsize,
    /// Whether its holder has ended it.
    is_let_go: AtomicBool,
    /// Wakes what waits for these requests.
    changed: Notify,
}

/// A row, and the permits in it.
struct Shown<'r> {
    row: &'r Row,
    permits: Option<Permits>,
}

/// What is due for a lock.
enum Due {
    /// It is as it should be.
    Nothing(Next),
    /// It gets this expiry.
    Expiry(Kept),
}

/// The expiry that a lock gets by its guard.
struct Kept {
    own: Arc<Own>,
    /// How its connection was cut, if it was.
    cut: Option<Cut>,
    /// In milliseconds since 1970.
    after_ms: u64,
}

/// What is next for a lock.
enum Next {
    /// It is looked at again at this moment of the store's clock, in milliseconds since 1970; `None` for not
    /// before it has changed.
    At(Option<u64>),
    /// It is looked at again after so long.
    In(Duration),
}

impl Default for Guards {
    fn default() -> Guards {
        let (sender, receiver) = mpsc::unbounded_channel();
        Guards {
            table: Mutex::default(),
            count: AtomicUsize::new(0),
            sender,
            receiver: Mutex::new(Some(receiver)),
            is_over: AtomicBool::new(false),
        }
    }
}

impl Guards {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Has the end of connections end no lock any more.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Changes the table.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let changed = change(&mut table);
        self.count.store(table.posts.len() + table.promised.len(), Ordering::Relaxed);
        changed
    }

    /// Puts a guard where the store has granted the lock, in place of an earlier one of the same lock.
    fn stand(&self, post: Arc<Post>) {
        let is_new = self.change(|table| {
            table.take_promised(&post);
            if let Some(before) = table.posts.get(&post.key) {
                if before.is_shared && post.is_shared {
                    before.add(&post);
                    return false;
                }
                post.inherit(before);
            }
            table.posts.insert(post.key.clone(), Arc::clone(&post));
            true
        });
        if is_new {
            // Without a receiver the server has ended.
            let _ = self.sender.send(post);
        }
    }

    /// Forgets a post that has nothing left to do. Returns whether it is so.
    fn forget(&self, post: &Arc<Post>) -> bool {
        self.change(|table| {
            let state = post.state.lock();
            let is_done = state.held.is_empty() && state.former.is_empty();
            if is_done && table.posts.get(&post.key).is_some_and(|newest| Arc::ptr_eq(newest, post)) {
                table.posts.remove(&post.key);
            }
            is_done
        })
    }

    /// The guards that fulfil a condition.
    fn find(&self, is_meant: impl Fn(&Post) -> bool) -> Vec<Arc<Post>> {
        match self.is_empty() {
            true => Vec::new(),
            false => self.table.lock().all().filter(|post| is_meant(post)).map(Arc::clone).collect(),
        }
    }

    /// Notes that a database was emptied, or all.
    pub(super) fn note_flushed(&self, database: Option<u32>) {
        for post in self.find(|post| database.is_none_or(|database| post.key.database == database)) {
            post.state.lock().held.values_mut().for_each(|held| held.is_flushed = true);
        }
    }
}

/// Guards of locks that a request is about to be granted.
#[derive(Debug)]
pub struct Promised {
    remote: Arc<Remote>,
    posts: Vec<Arc<Post>>,
}

impl Promised {
    /// The store has granted the locks.
    pub fn stand(mut self) {
        take(&mut self.posts).into_iter().for_each(|post| self.remote.guards.stand(post));
    }

    /// It has not, or the client does not know.
    pub fn give_up(mut self) {
        for post in take(&mut self.posts) {
            self.remote.guards.change(|table| table.take_promised(&post));
            post.state
                .lock()
                .held
                .values_mut()
                .filter_map(|held| held.guard.as_mut())
                .for_each(Guard::unbind);
        }
    }
}

/// The connection has ended, and the store may grant the locks yet.
impl Drop for Promised {
    fn drop(&mut self) {
        for post in take(&mut self.posts) {
            self.remote.guards.change(|table| table.take_promised(&post));
            post.state.lock().held.values_mut().for_each(|held| held.is_in_doubt = true);
            let _ = self.remote.guards.sender.send(post);
        }
    }
}

/// Locks that a request of their holder ends, if the store does it.
#[derive(Debug)]
pub struct OwnWrites(Vec<Arc<Own>>);

impl OwnWrites {
    fn of(owned: Vec<Arc<Own>>) -> Option<OwnWrites> {
        owned.iter().for_each(|own| _ = own.writes.fetch_add(1, Ordering::Relaxed));
        (!owned.is_empty()).then_some(OwnWrites(owned))
    }

    /// The store has done it.
    pub fn settle(self) {
        self.0.iter().for_each(|own| own.is_let_go.store(true, Ordering::Relaxed));
    }
}

impl Drop for OwnWrites {
    fn drop(&mut self) {
        for own in &self.0 {
            own.writes.fetch_sub(1, Ordering::Release);
            own.changed.notify_one();
        }
    }
}

impl Remote {
    /// Has guards stand ready for the locks that a request of a client is about to be granted. `holder` is
    /// what the rows will say of it.
    pub fn promise(
        self: &Arc<Remote>,
        wishes: Vec<StoreWish>,
        client: u64,
        lifeline: &Arc<Lifeline>,
        holder: &Arc<str>,
    ) -> Promised {
        let now_ms = self.clock.now_ms();
        let posts = wishes.into_iter().map(|wish| {
            let StoreWish { key, token, number, expires_at_ms, wish } = wish;
            let permit = wish.permit.as_ref();
            let name = Guarded::new(key.database as usize, &key.name, permit.map(|permit| &*permit.token));
            let (is_shared, is_anew) = (permit.is_some(), permit.is_some_and(|permit| permit.is_anew));
            let mut guard = Guard::in_store(name, number);
            guard.grant(&wish, client, || lifeline, expires_at_ms, now_ms);
            let held = Held {
                number,
                guard: Some(guard),
                holder: Arc::clone(holder),
                expires_at_ms,
                // The end of a permit is a moment.
                is_fresh: !is_shared,
                is_in_doubt: false,
                is_anew,
                addition: 0,
                own: Arc::default(),
                is_flushed: false,
                overdue: 0,
            };
            let state = State { held: HashMap::from([(token, held)]), ..State::default() };
            Arc::new(Post { key, is_shared, state: Mutex::new(state), changed: Notify::new() })
        });
        let posts: Vec<Arc<Post>> = posts.collect();
        self.guards.change(|table| {
            for post in &posts {
                table.promised.entry(post.key.clone()).or_default().push(Arc::clone(post));
            }
        });
        Promised { posts, remote: Arc::clone(self) }
    }

    /// The locks with guards that a request of their holder ends, if it writes these rows.
    pub fn own_writes<'r>(
        &self,
        client: u64,
        written: impl Iterator<Item = (&'r Key, &'r Row)>,
    ) -> Option<OwnWrites> {
        if self.guards.is_empty() {
            return None;
        }
        let table = self.guards.table.lock();
        let mut ended = Vec::new();
        for (key, row) in written {
            for post in table.of_key(key) {
                let state = post.state.lock();
                if !state.held.values().any(|held| held.is_notified(client)) {
                    continue;
                }
                let shown = Shown::of(row);
                let notified = state.held.iter().filter(|(_, held)| held.is_notified(client));
                let lost = notified.filter(|(token, held)| shown.end_of(token, held).is_none());
                ended.extend(lost.map(|(_, held)| Arc::clone(&held.own)));
            }
        }
        OwnWrites::of(ended)
    }

    /// The locks with guards that a flush of their holder ends: of a database, or of all.
    pub fn own_flush(&self, client: u64, database: Option<u32>) -> Option<OwnWrites> {
        let is_meant = |post: &Post| database.is_none_or(|database| post.key.database == database);
        let mut ended = Vec::new();
        for post in self.guards.find(is_meant) {
            let state = post.state.lock();
            let notified = state.held.values().filter(|held| held.is_notified(client));
            ended.extend(notified.map(|held| Arc::clone(&held.own)));
        }
        OwnWrites::of(ended)
    }

    /// The connection to this front-end to which a lock is bound, or the permit of a token, if it is.
    pub fn bond_of(&self, key: &Key, permit: Option<&[u8]>) -> Option<BondShown> {
        let post = self.guards.table.lock().posts.get(key).map(Arc::clone)?;
        let state = post.state.lock();
        let held = match permit {
            Some(token) => state.held.get(token).filter(|_| post.is_shared),
            None => state.held.values().next().filter(|_| !post.is_shared),
        };
        let lifeline = held?.guard.as_ref()?.lifeline()?;
        Some(BondShown { client: lifeline.client, locks: lifeline.count() })
    }

    /// Has the end of connections end no lock any more: the server ends.
    pub fn stop_guards(&self) {
        self.guards.stop();
    }

    /// Looks after the locks with guards, until the process ends.
    pub(super) async fn keep_guards(self: Arc<Remote>, ears: Arc<impl Ears>) {
        let Some(mut receiver) = self.guards.receiver.lock().take() else { return };
        let mut keepers = JoinSet::new();
        loop {
            tokio::select! {
                Some(post) = receiver.recv() => {
                    keepers.spawn(post.keep(Arc::clone(&self), Arc::clone(&ears)));
                }
                Some(_ended) = keepers.join_next() => {}
                else => return,
            }
        }
    }
}

impl Shown<'_> {
    fn of(row: &Row) -> Shown<'_> {
        Shown { row, permits: row.live.as_ref().and_then(Permits::of) }
    }

    /// When what a client holds expires, if the row is that, or is written by a request as that: the inner
    /// `None` for never. A permit may have ended.
    fn end_of(&self, token: &Bytes, held: &Held) -> Option<Option<u64>> {
        if held.is_permit() {
            return self.permits.as_ref()?.end_of(token).map(Some);
        }
        let row = self.row;
        let number = Some(row.fence).filter(|fence| *fence != 0).or_else(|| row.known_fence());
        let is_it = row.live.as_ref().is_some_and(|live| live.value == token)
            && number.is_none_or(|number| number.cast_unsigned() == held.number);
        is_it.then(|| row.expires_at_ms())
    }

    /// The same of a permit that has not ended.
    fn current_end_of(&self, token: &Bytes, held: &Held, now_ms: u64) -> Option<Option<u64>> {
        self.end_of(token, held).filter(|end_ms| !held.is_permit() || *end_ms > Some(now_ms))
    }
}

impl Post {
    /// Takes over the guard of another post, if that is of the same lock.
    fn inherit(&self, before: &Post) {
        let (mut state, mut former) = (self.state.lock(), before.state.lock());
        for (token, held) in &mut state.held {
            let same = former.held.get_mut(token).filter(|before| before.number == held.number);
            let Some((before, guard)) =
                same.and_then(|before| before.guard.take().map(|guard| (before, guard)))
            else {
                continue;
            };
            if held.guard.as_ref().is_some_and(|own| own.lifeline().is_none()) && guard.lifeline().is_some() {
                (held.holder, held.is_fresh) = (Arc::clone(&before.holder), false);
            }
            if let Some(own) = &mut held.guard {
                own.inherit(guard);
            }
        }
        before.changed.notify_one();
    }

    /// Looks after the permits of another post, too.
    fn add(&self, other: &Post) {
        let (mut state, mut added) = (self.state.lock(), other.state.lock());
        state.additions += 1;
        for (token, mut held) in added.held.drain() {
            if let Some(mut before) = state.held.remove(&token) {
                match held.is_anew {
                    true => state.former.push(before),
                    false => {
                        if let (Some(own), Some(guard)) = (&mut held.guard, before.guard.take()) {
                            own.inherit(guard);
                        }
                    }
                }
            }
            held.addition = state.additions;
            state.held.insert(token, held);
        }
        self.changed.notify_one();
    }

    /// Looks after the lock, until nothing is left to do.
    async fn keep(self: Arc<Post>, remote: Arc<Remote>, ears: Arc<impl Ears>) {
        let keys: Arc<[Key]> = [self.key.clone()].into();
        let wants = WaitsFor { kind: ABSENT_KIND, takes: false, joins: None };
        let listening = remote.listen(keys, wants, None);
        while !remote.guards.is_over() {
            let (former, additions) = {
                let mut state = self.state.lock();
                (take(&mut state.former), state.additions)
            };
            for held in former {
                self.lose(&remote, &*ears, held, None).await;
            }
            listening.asks();
            let seen = self.see(&remote).await;
            listening.has_looked(true, &[]);
            let next = match seen {
                Some(row) => self.tend(&remote, &*ears, row, additions).await,
                None => self.miss(&remote, &*ears).await,
            };
            if remote.guards.forget(&self) {
                return;
            }
            match next {
                Next::In(pause) => sleep(pause).await,
                Next::At(moment_ms) => {
                    let left_ms = moment_ms.map(|ms| ms.saturating_sub(remote.clock.now_ms()).max(1));
                    let left = left_ms.map(Duration::from_millis);
                    let until = left.and_then(|left| Instant::now().checked_add(left));
                    self.wait(&listening, until).await;
                }
            }
        }
        let held = take(&mut self.state.lock().held);
        held.into_values().filter_map(|held| held.guard).for_each(|mut guard| guard.unbind());
        remote.guards.forget(&self);
    }

    /// Waits until there may be something to do, or until this moment.
    async fn wait(&self, listening: &Listening, until: Option<Instant>) {
        let later = async {
            match until {
                Some(until) => sleep_until(until.into()).await,
                None => pending().await,
            }
        };
        let mut lifelines: Vec<Arc<Lifeline>> = {
            let state = self.state.lock();
            let guards = state.held.values().filter_map(|held| held.guard.as_ref());
            guards.filter_map(|guard| guard.lifeline().map(Arc::clone)).collect()
        };
        lifelines.sort_unstable_by_key(|lifeline| lifeline.client);
        lifelines.dedup_by_key(|lifeline| lifeline.client);
        let mut cuts: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> =
            lifelines.iter().map(|lifeline| Box::pin(lifeline.cut_next(|| false)) as _).collect();
        let mut is_first = true;
        // All have begun to wait when it is asked whether one was cut before.
        let cut = poll_fn(|context| {
            let was_cut = cuts.iter_mut().any(|cut| cut.as_mut().poll(context).is_ready());
            let is_cut = was_cut || take(&mut is_first) && self.is_cut();
            if is_cut { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = listening.heard(None) => {}
            () = self.changed.notified() => {}
            () = cut => {}
            () = later => {}
        }
    }

    fn is_cut(&self) -> bool {
        let state = self.state.lock();
        state.held.values().any(|held| held.guard.as_ref().is_some_and(|guard| guard.cut().is_some()))
    }

    /// Looks what the key is in the store; `None` if that cannot be asked now. What this front-end has seen
    /// of it last is enough, if all that is held is there: a write finds out whether it is so still.
    async fn see(&self, remote: &Remote) -> Option<Arc<Row>> {
        loop {
            let guess = match remote.look(std::slice::from_ref(&self.key), None, None) {
                Looked::Away => return None,
                Looked::After(ticket) => {
                    let _ = ticket.await;
                    continue;
                }
                Looked::Rows(rows) => rows.into_iter().next().unwrap_or_default(),
            };
            let now_ms = remote.clock.now_ms();
            let is_current = guess.version > 0 && guess.expires_at_ms().is_none_or(|at_ms| at_ms > now_ms);
            if is_current && self.is_in(&guess, now_ms) {
                // If news of a change are lost, a later look finds that the row has another version.
                remote.state.lock().saw_row(&remote.clock, &self.key, &guess, false);
                return Some(guess);
            }
            match self.exchange(remote, Row::unread(), None).await {
                Verdict::Overtaken(found) => match found.rows.get(&self.key) {
                    Some(row) => return Some(Arc::clone(row)),
                    None => sleep(PAUSE_MIN).await,
                },
                Verdict::Done | Verdict::Again => sleep(PAUSE_MIN).await,
                Verdict::Failed(_) | Verdict::Unknown => return None,
            }
        }
    }

    /// Whether a row has all that is held, and that without a doubt.
    fn is_in(&self, row: &Row, now_ms: u64) -> bool {
        let shown = Shown::of(row);
        let state = self.state.lock();
        let mut all = state.held.iter();
        all.all(|(token, held)| !held.is_in_doubt && shown.current_end_of(token, held, now_ms).is_some())
    }

    /// Does what is due for what is held, and finds out what is lost. The row was looked for after so many
    /// additions.
    async fn tend(&self, remote: &Remote, ears: &impl Ears, row: Arc<Row>, additions: u64) -> Next {
        let now_ms = remote.clock.now_ms();
        let mut shown = Shown::of(&row);
        let (mut kept, mut next) = (Vec::<(Bytes, Kept)>::new(), Next::At(None));
        let is_overwritten = row.live.is_some() && (!self.is_shared || shown.permits.is_none());
        let lost: Vec<Held> = {
            let mut state = self.state.lock();
            let is_lost = |token: &Bytes, held: &mut Held| {
                let is_lost =
                    held.addition <= additions && shown.current_end_of(token, held, now_ms).is_none();
                // Its end may be seen first when it has passed.
                held.expires_at_ms =
                    shown.end_of(token, held).filter(|_| is_lost).unwrap_or(held.expires_at_ms);
                is_lost
            };
            let lost =
                state.held.extract_if(|token, held| is_lost(token, held)).map(|(_, held)| held).collect();
            state.held.retain(|token, held| {
                let Some(end_ms) = shown.current_end_of(token, held, now_ms) else { return true };
                let due = held.due(&row, end_ms, now_ms);
                match due {
                    None => held.guard.iter_mut().for_each(Guard::unbind),
                    Some(Due::Nothing(later)) => {
                        next = std::mem::replace(&mut next, Next::At(None)).or_sooner(later);
                        return true;
                    }
                    Some(Due::Expiry(due)) => {
                        kept.push((token.clone(), due));
                        return true;
                    }
                }
                false
            });
            lost
        };
        for held in lost {
            self.lose(remote, ears, held, Some(is_overwritten)).await;
        }
        if !kept.is_empty() {
            let live = match shown.permits.take() {
                Some(mut permits) => {
                    for (token, Kept { after_ms, .. }) in &kept {
                        match *after_ms <= now_ms {
                            true => permits.remove(token),
                            false => permits.set_end(token, *after_ms),
                        }
                    }
                    permits.into_live(now_ms)
                }
                None => {
                    let after_ms = kept.first().map_or(0, |(_, kept)| kept.after_ms);
                    let live = row.live.as_ref().filter(|_| after_ms > now_ms);
                    live.map(|live| Live { expires_at_ms: Some(after_ms), ..live.clone() })
                }
            };
            let (is_end, mut ended) = (live.is_none(), Vec::new());
            let written = Arc::new(Row { live, ..Row::default() });
            match self.exchange(remote, Arc::clone(&row), Some(written)).await {
                Verdict::Done => {
                    let mut state = self.state.lock();
                    for (token, Kept { own, cut, after_ms }) in kept {
                        let held = state.held.get_mut(&token);
                        let Some(held) = held.filter(|held| Arc::ptr_eq(&held.own, &own)) else { continue };
                        held.expires_at_ms = Some(after_ms);
                        held.guard.iter_mut().for_each(|guard| guard.tended(cut, Some(after_ms), now_ms));
                        if after_ms <= now_ms {
                            ended.extend(state.held.remove(&token));
                        }
                    }
                    next = Next::At(Some(0));
                }
                Verdict::Overtaken(_) | Verdict::Again => return Next::In(PAUSE_MIN),
                Verdict::Failed(_) | Verdict::Unknown => return self.miss(remote, ears).await,
            }
            if is_end {
                let news = News::Expired(self.key.clone());
                remote.tell(&news);
                ears.hear(news);
            }
            for held in ended {
                self.lose(remote, ears, held, None).await;
            }
        }
        next
    }

    /// Sends a row to the store, or asks for it.
    async fn exchange(&self, remote: &Remote, seen: Arc<Row>, written: Option<Arc<Row>>) -> Verdict {
        loop {
            let part = AttemptPart {
                key: self.key.clone(),
                seen: Arc::clone(&seen),
                is_strict: written.is_none(),
                written: written.clone(),
                is_renewed: false,
                lifetime_ms: None,
            };
            let attempt = Attempt {
                parts: vec![part],
                holder: Arc::default(),
                is_reader: false,
                beside: None,
                was_overtaken: false,
                stood_back: 0,
                draws: 0,
                draws_beyond: 0,
            };
            let joined = remote.join(attempt);
            remote.set_off();
            match joined {
                Ok((ticket, _seat)) => return ticket.await.unwrap_or(Verdict::Unknown),
                Err(NotJoined::Changed | NotJoined::Left) => return Verdict::Again,
                Err(NotJoined::After(ticket) | NotJoined::StandsBack(ticket)) => _ = ticket.await,
                Err(NotJoined::LeavesTo(ticket, until)) => _ = timeout_at(until.into(), ticket).await,
                Err(NotJoined::Full) => sleep(PAUSE).await,
            }
        }
    }

    /// The store cannot be asked: the own clock decides.
    async fn miss(&self, remote: &Remote, ears: &impl Ears) -> Next {
        let now_ms = remote.clock.now_ms();
        let is_over = |held: &Held| held.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        let lost: Vec<Held> = {
            let mut state = self.state.lock();
            state.held.extract_if(|_, held| is_over(held)).map(|(_, held)| held).collect()
        };
        for held in lost {
            self.lose(remote, ears, held, None).await;
        }
        Next::In(PAUSE)
    }

    /// Something is lost. Notifies its holder, unless it has done it itself. `is_overwritten` says whether
    /// the store has something else in its place, if that is known.
    async fn lose(&self, remote: &Remote, ears: &impl Ears, held: Held, is_overwritten: Option<bool>) {
        let own = Arc::clone(&held.own);
        while own.writes.load(Ordering::Acquire) > 0 {
            own.changed.notified().await;
        }
        let now_ms = remote.clock.now_ms() + CLOCKS_APART_MS;
        // What others have done to the key meanwhile is not known.
        let seen = match is_overwritten {
            _ if held.is_flushed => LossReason::Flushed,
            _ if held.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) => LossReason::Expired,
            Some(true) => LossReason::Overwritten,
            Some(false) | None => LossReason::Deleted,
        };
        let is_let_go = own.is_let_go.load(Ordering::Relaxed);
        let lost = held.guard.and_then(|guard| {
            let why = guard.reason(seen, now_ms);
            guard.lost(why)
        });
        let is_known = |lost: &LostLock| held.is_in_doubt || is_let_go && lost.is_known(Some(lost.client));
        lost.filter(|lost| !is_known(lost)).into_iter().for_each(|lost| ears.hear_lost(&lost));
    }
}

impl Next {
    /// The sooner one.
    fn or_sooner(self, other: Next) -> Next {
        match (self, other) {
            (Next::In(one), Next::In(other)) => Next::In(one.min(other)),
            (Next::In(pause), Next::At(_)) | (Next::At(_), Next::In(pause)) => Next::In(pause),
            (Next::At(one), Next::At(other)) => Next::At([one, other].into_iter().flatten().min()),
        }
    }
}

impl Held {
    fn is_permit(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_of_permit)
    }

    fn is_notified(&self, client: u64) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.notified() == Some(client))
    }

    /// What is due for it, which is there with this expiry; `None` if its guard has nothing to do any more.
    fn due(&mut self, row: &Row, expires_at_ms: Option<u64>, now_ms: u64) -> Option<Due> {
        let is_permit = self.is_permit();
        let guard = self.guard.as_mut()?;
        (self.expires_at_ms, self.is_in_doubt) = (expires_at_ms, false);
        if !is_permit && row.tenure.as_ref().is_some_and(|tenure| tenure.holder != *self.holder) {
            guard.unbind();
        }
        match take(&mut self.is_fresh) {
            true => guard.note_own_expiry(expires_at_ms),
            false => guard.note_expiry(expires_at_ms),
        }
        let cut = guard.cut().map(|cut| cut.by_clock(now_ms));
        if let Some(after_ms) = guard.due(cut, expires_at_ms, now_ms).or_else(|| guard.excess(expires_at_ms))
        {
            self.overdue = 0;
            return Some(Due::Expiry(Kept { own: Arc::clone(&self.own), cut, after_ms }));
        }
        guard.tended(cut, None, now_ms);
        if guard.is_idle() {
            return None;
        }
        let is_overdue = expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        self.overdue = if is_overdue { self.overdue + 1 } else { 0 };
        Some(Due::Nothing(match is_overdue {
            true => Next::In(PAUSE_MIN.saturating_mul(1 << self.overdue.min(10)).min(OVERDUE_PAUSE_MAX)),
            false => Next::At([guard.renew_at_ms(), expires_at_ms].into_iter().flatten().min()),
        }))
    }
}
