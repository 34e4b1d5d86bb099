//! Locks in the store whose holders want more than that others are refused: that the lock lives as long as
//! their connection (LOCK ACQUIRE … BOUND), or to be notified when they lose it (NOTIFY).
//!
//! The rules are those of a [guard](Guard) in memory. But other front-ends change the lock as well, and only
//! the store knows what it is. So for each such lock a [`Post`] stands in the line of the key, like a client
//! that waits and only reads. It hears of changes, and asks the store what the lock is now. A renewal, or the
//! end, is a write as that of any request: it is done if the row is as it was seen.
//!
//! - **Another connection takes the lock over**, maybe at another front-end: it writes its name into the row.
//!   The post before finds another holder there, and lets go.
//! - **The store cannot be reached**: once the time of the lock has passed by this front-end's clock, its
//!   holder is notified that it has expired.
//! - **What the holder did itself** is no news for it. A request that ends a lock stakes that before it
//!   travels ([`OwnWrites`]), since the post may hear of the change before the request has its reply.
//! - **The connection ends while the store grants the lock**: the post is there before the request travels
//!   ([`Promised`]), and looks whether the lock was granted.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout_at};

use super::batch::{Attempt, AttemptPart, Verdict};
use super::news::{Ears, News};
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
    /// When it expires, in milliseconds since 1970 by the store's clock.
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

/// A lock with a guard.
#[derive(Debug)]
struct Post {
    key: Key,
    token: Bytes,
    number: u64,
    state: Mutex<State>,
    /// Wakes what looks after it.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// `None` once another post of the same lock has taken it over.
    guard: Option<Guard>,
    /// Who has bound it, as the row says.
    holder: Arc<str>,
    /// When the lock expires, as it was seen last, in milliseconds since 1970 by the store's clock.
    expires_at_ms: Option<u64>,
    /// Whether the expiry was not read since the request that has bound it.
    is_fresh: bool,
    /// Whether it is not known that the lock was granted: the connection has ended before.
    is_in_doubt: bool,
    /// Requests of its holder under way that end the lock.
    own_writes: usize,
    /// Whether its holder has ended it.
    is_let_go: bool,
    /// Whether its database was emptied.
    is_flushed: bool,
    /// How often it was looked for in vain after its time.
    overdue: u32,
}

/// What a look at the store has shown.
enum Seen {
    /// The lock is there, as this row.
    Held(Arc<Row>),
    /// It is not. This row is there.
    Lost(Arc<Row>),
    /// The store cannot be asked now.
    Unreachable,
}

/// What is due for a lock.
enum Due {
    /// It is as it should be.
    Nothing(Next),
    /// It gets this expiry, in milliseconds since 1970; because its connection was cut, if it was.
    Expiry(Option<Cut>, u64),
}

/// What is next for a lock.
enum Next {
    /// It is looked at again at this moment of the store's clock, in milliseconds since 1970; `None` for not
    /// before it has changed.
    At(Option<u64>),
    /// It is looked at again after so long.
    In(Duration),
    /// Nothing is left to do.
    Over,
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
        let before = self.change(|table| {
            table.take_promised(&post);
            table.posts.insert(post.key.clone(), Arc::clone(&post))
        });
        if let Some(before) = before.filter(|before| before.number == post.number) {
            let (guard, holder) = {
                let mut state = before.state.lock();
                (state.guard.take(), Arc::clone(&state.holder))
            };
            before.changed.notify_one();
            let mut state = post.state.lock();
            let state = &mut *state;
            if let (Some(own), Some(guard)) = (&mut state.guard, guard) {
                if own.lifeline().is_none() && guard.lifeline().is_some() {
                    (state.holder, state.is_fresh) = (holder, false);
                }
                own.inherit(guard);
            }
        }
        // Without a receiver the server has ended.
        let _ = self.sender.send(post);
    }

    /// Forgets a guard, unless another one of the key is there.
    fn forget(&self, post: &Arc<Post>) {
        self.change(|table| {
            if table.posts.get(&post.key).is_some_and(|newest| Arc::ptr_eq(newest, post)) {
                table.posts.remove(&post.key);
            }
        });
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
            post.state.lock().is_flushed = true;
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
            post.state.lock().guard.iter_mut().for_each(Guard::unbind);
        }
    }
}

/// The connection has ended, and the store may grant the locks yet.
impl Drop for Promised {
    fn drop(&mut self) {
        for post in take(&mut self.posts) {
            self.remote.guards.change(|table| table.take_promised(&post));
            post.state.lock().is_in_doubt = true;
            let _ = self.remote.guards.sender.send(post);
        }
    }
}

/// Locks that a request of their holder ends, if the store does it.
#[derive(Debug)]
pub struct OwnWrites(Vec<Arc<Post>>);

impl OwnWrites {
    fn of(posts: Vec<Arc<Post>>) -> Option<OwnWrites> {
        posts.iter().for_each(|post| post.state.lock().own_writes += 1);
        (!posts.is_empty()).then_some(OwnWrites(posts))
    }

    /// The store has done it.
    pub fn settle(self) {
        self.0.iter().for_each(|post| post.state.lock().is_let_go = true);
    }
}

impl Drop for OwnWrites {
    fn drop(&mut self) {
        for post in &self.0 {
            post.state.lock().own_writes -= 1;
            post.changed.notify_one();
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
            let mut guard = Guard::in_store(Guarded::key(key.database as usize, &key.name), number);
            guard.grant(&wish, client, || lifeline, expires_at_ms, now_ms);
            let state = State {
                guard: Some(guard),
                holder: Arc::clone(holder),
                expires_at_ms,
                is_fresh: true,
                is_in_doubt: false,
                own_writes: 0,
                is_let_go: false,
                is_flushed: false,
                overdue: 0,
            };
            Arc::new(Post { key, token, number, state: Mutex::new(state), changed: Notify::new() })
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
            let posts = table.of_key(key).filter(|post| post.is_notified(client) && !post.is_in(row));
            ended.extend(posts.map(Arc::clone));
        }
        OwnWrites::of(ended)
    }

    /// The locks with guards that a flush of their holder ends: of a database, or of all.
    pub fn own_flush(&self, client: u64, database: Option<u32>) -> Option<OwnWrites> {
        let is_meant = |post: &Post| {
            database.is_none_or(|database| post.key.database == database) && post.is_notified(client)
        };
        OwnWrites::of(self.guards.find(is_meant))
    }

    /// The connection to this front-end to which a lock is bound, if it is.
    pub fn bond_of(&self, key: &Key) -> Option<BondShown> {
        let post = self.guards.table.lock().posts.get(key).map(Arc::clone)?;
        let state = post.state.lock();
        let lifeline = state.guard.as_ref()?.lifeline()?;
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

impl Post {
    fn is_notified(&self, client: u64) -> bool {
        self.state.lock().guard.as_ref().is_some_and(|guard| guard.notified() == Some(client))
    }

    /// Whether a row is the lock, or is written by a request as the lock.
    fn is_in(&self, row: &Row) -> bool {
        let number = Some(row.fence).filter(|fence| *fence != 0).or_else(|| row.known_fence());
        row.live.as_ref().is_some_and(|live| live.value == self.token)
            && number.is_none_or(|number| number.cast_unsigned() == self.number)
    }

    /// Looks after the lock, until nothing is left to do.
    async fn keep(self: Arc<Post>, remote: Arc<Remote>, ears: Arc<impl Ears>) {
        let keys: Arc<[Key]> = [self.key.clone()].into();
        let wants = WaitsFor { kind: ABSENT_KIND, takes: false, joins: None };
        let listening = remote.listen(keys, wants, None);
        while !remote.guards.is_over() {
            listening.asks();
            let seen = self.see(&remote).await;
            listening.has_looked(true, &[]);
            let next = match seen {
                Seen::Held(row) => self.tend(&remote, &*ears, row).await,
                Seen::Lost(row) => self.lose(&remote, &*ears, Some(&row)).await,
                Seen::Unreachable => self.miss(&remote, &*ears).await,
            };
            match next {
                Next::Over => break,
                Next::In(pause) => sleep(pause).await,
                Next::At(moment_ms) => {
                    let left_ms = moment_ms.map(|ms| ms.saturating_sub(remote.clock.now_ms()).max(1));
                    let left = left_ms.map(Duration::from_millis);
                    let until = left.and_then(|left| Instant::now().checked_add(left));
                    self.wait(&listening, until).await;
                }
            }
        }
        remote.guards.forget(&self);
        let guard = self.state.lock().guard.take();
        guard.into_iter().for_each(|mut guard| guard.unbind());
    }

    /// Waits until there may be something to do, or until this moment.
    async fn wait(&self, listening: &Listening, until: Option<Instant>) {
        let later = async {
            match until {
                Some(until) => sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        let lifeline = self.state.lock().guard.as_ref().and_then(|guard| guard.lifeline().map(Arc::clone));
        let is_cut = || self.state.lock().guard.as_ref().is_some_and(|guard| guard.cut().is_some());
        let cut = async {
            match &lifeline {
                Some(lifeline) => lifeline.cut_next(is_cut).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = listening.heard(None) => {}
            () = self.changed.notified() => {}
            () = cut => {}
            () = later => {}
        }
    }

    /// Looks what the lock is in the store. What this front-end has seen of it last is enough, if that is the
    /// lock: a write finds out whether it is so still.
    async fn see(&self, remote: &Remote) -> Seen {
        loop {
            let guess = match remote.look(std::slice::from_ref(&self.key), None, None) {
                Looked::Away => return Seen::Unreachable,
                Looked::After(ticket) => {
                    let _ = ticket.await;
                    continue;
                }
                Looked::Rows(rows) => rows.into_iter().next().unwrap_or_default(),
            };
            let is_current = |row: &Row| {
                row.version > 0 && row.expires_at_ms().is_none_or(|at_ms| at_ms > remote.clock.now_ms())
            };
            if is_current(&guess) && self.is_in(&guess) && !self.state.lock().is_in_doubt {
                // If news of a change are lost, a later look finds that the row has another version.
                remote.state.lock().saw_row(&remote.clock, &self.key, &guess, false);
                return Seen::Held(guess);
            }
            match self.exchange(remote, Row::unread(), None).await {
                Verdict::Overtaken(found) => match found.rows.get(&self.key) {
                    Some(row) if self.is_in(row) => return Seen::Held(Arc::clone(row)),
                    Some(row) => return Seen::Lost(Arc::clone(row)),
                    None => sleep(PAUSE_MIN).await,
                },
                Verdict::Done | Verdict::Again => sleep(PAUSE_MIN).await,
                Verdict::Failed(_) | Verdict::Unknown => return Seen::Unreachable,
            }
        }
    }

    /// Does what is due for a lock that is there.
    async fn tend(&self, remote: &Remote, ears: &impl Ears, row: Arc<Row>) -> Next {
        let now_ms = remote.clock.now_ms();
        let Some(due) = self.state.lock().due(&row, now_ms) else { return Next::Over };
        let (cut, after_ms) = match due {
            Due::Nothing(next) => return next,
            Due::Expiry(cut, after_ms) => (cut, after_ms),
        };
        let is_end = after_ms <= now_ms;
        let live = row.live.as_ref().filter(|_| !is_end);
        let live = live.map(|live| Live { expires_at_ms: Some(after_ms), ..live.clone() });
        let written = Arc::new(Row { live, ..Row::default() });
        match self.exchange(remote, row, Some(written)).await {
            Verdict::Done => {
                let mut state = self.state.lock();
                state.expires_at_ms = Some(after_ms);
                state.guard.iter_mut().for_each(|guard| guard.tended(cut, Some(after_ms), now_ms));
            }
            Verdict::Overtaken(_) | Verdict::Again => return Next::In(PAUSE_MIN),
            Verdict::Failed(_) | Verdict::Unknown => return self.miss(remote, ears).await,
        }
        if !is_end {
            return Next::At(Some(0));
        }
        let news = News::Expired(self.key.clone());
        remote.tell(&news);
        ears.hear(news);
        self.lose(remote, ears, None).await
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
        let expires_at_ms = self.state.lock().expires_at_ms;
        match expires_at_ms.is_some_and(|at_ms| at_ms <= remote.clock.now_ms()) {
            true => self.lose(remote, ears, None).await,
            false => Next::In(PAUSE),
        }
    }

    /// The lock is lost. Notifies its holder, unless it has done it itself. `row` is what the store has of
    /// the key, if that is known.
    async fn lose(&self, remote: &Remote, ears: &impl Ears, row: Option<&Row>) -> Next {
        while self.state.lock().own_writes > 0 {
            self.changed.notified().await;
        }
        let now_ms = remote.clock.now_ms() + CLOCKS_APART_MS;
        let mut state = self.state.lock();
        // What others have done to the key meanwhile is not known.
        let seen = match row.is_some_and(|row| row.live.is_some()) {
            _ if state.is_flushed => LossReason::Flushed,
            _ if state.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) => LossReason::Expired,
            true => LossReason::Overwritten,
            false => LossReason::Deleted,
        };
        let (is_in_doubt, is_let_go) = (state.is_in_doubt, state.is_let_go);
        let guard = state.guard.take();
        drop(state);
        let lost = guard.and_then(|guard| {
            let why = guard.reason(seen, now_ms);
            guard.lost(why)
        });
        let is_news = |lost: &LostLock| !(is_in_doubt || is_let_go && lost.is_known(Some(lost.client)));
        lost.filter(|lost| is_news(lost)).into_iter().for_each(|lost| ears.hear_lost(&lost));
        Next::Over
    }
}

impl State {
    /// What is due for the lock, which is there as this row; `None` if its guard has nothing to do any more.
    fn due(&mut self, row: &Row, now_ms: u64) -> Option<Due> {
        let guard = self.guard.as_mut()?;
        let expires_at_ms = row.expires_at_ms();
        (self.expires_at_ms, self.is_in_doubt) = (expires_at_ms, false);
        if row.tenure.as_ref().is_some_and(|tenure| tenure.holder != *self.holder) {
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
            return Some(Due::Expiry(cut, after_ms));
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
