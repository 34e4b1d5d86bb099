//! Sends one batch after the other. While one is under way, the next one forms: the slower the store, the
//! larger the batches.
//!
//! If a connection ends while a batch is under way, the next connection asks the store whether it has done
//! the batch. If the store does not reply in time, clients get the error that the outcome is unknown. The
//! lane never sends a batch twice: requests that were not done run again, on new guesses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::all_keys::NotTold;
use super::batch::{Answer, Found, Part, Verdict};
use super::clock::own_us;
use super::forming::Taken;
use super::gathering::Gathering;
use super::news::{Became, Ears, News};
use super::row::{KeyMap, KeySet, Row, Tenure};
use super::store::{Failure, Front, Store};
use super::target::Target;
use super::{Remote, State};

/// Pauses between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often a store that has refused a batch is tried out.
const TRIAL_EVERY: Duration = Duration::from_secs(1);
/// The pause before the store is asked again about a batch.
const PAUSE_BEFORE_ASKING: Duration = Duration::from_millis(50);

/// Begins to serve the requests of a front-end, until the process ends: one task sends batches, one asks the
/// clients' questions about all keys, one looks after locks with guards, and one exchanges news with other
/// front-ends.
pub(crate) fn serve(remote: &Arc<Remote>, ears: &Arc<impl Ears>, tasks: &mut JoinSet<()>) {
    match &remote.settings.target {
        #[cfg(feature = "postgres")]
        Target::Postgres(_) => serve_by::<super::postgres::Postgres>(remote, ears, tasks),
        #[cfg(feature = "etcd")]
        Target::Etcd(_) => serve_by::<super::etcd::Etcd>(remote, ears, tasks),
        #[allow(unreachable_patterns, reason = "a store that is not built in")]
        _ => _ = (ears, tasks),
    }
}

fn serve_by<S: Store + 'static>(remote: &Arc<Remote>, ears: &Arc<impl Ears>, tasks: &mut JoinSet<()>) {
    let [lane, questions, news, guards] = [(); 4].map(|()| Arc::clone(remote));
    tasks.spawn(async move { Lane::<S>::new(&lane).serve().await });
    tasks.spawn(async move { answer_questions::<S>(&questions).await });
    tasks.spawn(guards.keep_guards(Arc::clone(ears)));
    let ears = Arc::clone(ears);
    tasks.spawn(async move { S::exchange_news(&news, &*ears).await });
}

/// Asks the clients' questions about all keys, one after the other.
async fn answer_questions<S: Store>(remote: &Remote) {
    let Some(mut questions) = remote.questions.receiver.lock().take() else { return };
    let mut last = None;
    while let Some((question, asker)) = questions.recv().await {
        // Once the question is sent, the store may have done it although no answer comes.
        let mut is_sent = false;
        let answered = timeout(remote.settings.patience, async {
            let connected = S::connect_to_ask(remote, last.take()).await;
            let asking = connected.map_err(|why| NotTold::NotDone(why.into()))?;
            is_sent = true;
            let (answer, left) = S::ask(remote, asking, question).await;
            last = left;
            answer
        });
        let answer = answered.await.unwrap_or_else(|_elapsed| {
            Err(if is_sent { NotTold::Unknown } else { NotTold::NotDone("it cannot be reached".into()) })
        });
        // The client may have left.
        let _ = asker.send(answer);
    }
}

/// The connection, and what is under way on it.
struct Lane<'r, S> {
    remote: &'r Remote,
    store: Option<S>,
    front: Option<Front>,
    /// The last complaint about the connection, so that it is logged once.
    complaint: String,
    /// Why it has refused a batch, so that it is logged once.
    refusal: String,
    /// When it was tried out last.
    tried: Option<Instant>,
}

impl<'r, S: Store> Lane<'r, S> {
    fn new(remote: &'r Remote) -> Lane<'r, S> {
        Lane {
            remote,
            store: None,
            front: None,
            complaint: String::new(),
            refusal: String::new(),
            tried: None,
        }
    }

    async fn serve(&mut self) {
        self.connect(None).await;
        let mut gathering = Gathering::default();
        loop {
            self.wait_for_requests().await;
            if self.remote.clock.is_in_doubt() {
                self.remote.health.is_connected.store(false, Ordering::Relaxed);
                self.connect(None).await;
            }
            let Some(taken) = self.take() else { continue };
            let answered = taken.requests;
            self.send(taken).await;
            gathering.gather(self.remote, answered).await;
        }
    }

    /// Waits until there is something to send. A store that has refused a batch is tried out meanwhile: it
    /// may be that no client asks it for anything until it is said to be well.
    async fn wait_for_requests(&mut self) {
        if !self.remote.health.is_refusing.load(Ordering::Relaxed) {
            return self.remote.has_formed(1).await;
        }
        let _ = timeout(TRIAL_EVERY, self.remote.has_formed(1)).await;
        if self.tried.is_some_and(|tried| tried.elapsed() < TRIAL_EVERY) {
            return;
        }
        self.tried = Some(Instant::now());
        let (Some(front), Some(store)) = (&self.front, &mut self.store) else { return };
        match timeout(self.remote.settings.patience, store.try_out(front.last + 1)).await {
            Ok(Ok(())) => {
                tracing::info!("The store {} does again what is asked of it", self.remote.settings.target);
                self.remote.health.is_refusing.store(false, Ordering::Relaxed);
                self.refusal.clear();
            }
            Ok(Err(Failure::Refused(_) | Failure::Again)) => {}
            _ => {
                self.store = None;
                self.remote.health.is_connected.store(false, Ordering::Relaxed);
                self.connect(None).await;
            }
        }
    }

    /// Ends a batch that the store has refused.
    fn refuse(&mut self, taken: Taken, why: String) {
        self.remote.health.failed.fetch_add(taken.requests as u64, Ordering::Relaxed);
        self.note_refusal(taken.requests, &why);
        self.remote.end(taken, &Verdict::Failed(why.into()));
    }

    /// Notes that the store does not do what a batch has asked. It is tried out until it does.
    fn note_refusal(&mut self, requests: usize, why: &str) {
        self.remote.health.is_refusing.store(true, Ordering::Relaxed);
        if self.refusal != why {
            tracing::warn!("The store refused a batch of {requests} requests: {why}");
            why.clone_into(&mut self.refusal);
        }
    }

    fn take(&self) -> Option<Taken> {
        let mut state = self.remote.state.lock();
        if state.forming.requests() == 0 {
            return None;
        }
        let mut taken = state.forming.take();
        state.in_flight.note_sent(&mut taken);
        Some(taken)
    }

    /// Sends a batch, and passes the result on.
    async fn send(&mut self, mut taken: Taken) {
        let patience = self.remote.settings.patience;
        let (Some(front), Some(store)) = (&mut self.front, &mut self.store) else {
            return self.remote.end(taken, &Verdict::Again);
        };
        front.last += 1;
        let number = front.last;
        let (began, sent_us, window) = (Instant::now(), own_us(), self.remote.clock.window());
        let exchanged = timeout(patience, store.exchange(&taken.batch, number, window)).await;
        let health = &self.remote.health;
        let lost = match exchanged {
            Ok(Ok((answer, store_us))) => {
                self.remote.clock.learn(store_us, sent_us, own_us());
                health.answered(taken.requests, began.elapsed());
                if let Some(refusal) = &answer.refusal {
                    self.note_refusal(taken.requests, &refusal.why);
                }
                return self.remote.finish(taken, answer);
            }
            Ok(Err(Failure::Again)) => {
                // The store has not counted it.
                front.last -= 1;
                return self.remote.end(taken, &Verdict::Again);
            }
            Ok(Err(Failure::Late)) => {
                front.last -= 1;
                tracing::warn!(
                    "A batch came too late by the clock of the store {}",
                    self.remote.settings.target
                );
                health.is_connected.store(false, Ordering::Relaxed);
                self.store = None;
                self.remote.end(taken, &Verdict::Again);
                return self.connect(None).await;
            }
            Ok(Err(Failure::Refused(why))) => {
                front.last -= 1;
                return self.refuse(taken, why);
            }
            Ok(Err(Failure::Unusable(why))) => {
                front.last -= 1;
                health.is_connected.store(false, Ordering::Relaxed);
                self.store = None;
                self.refuse(taken, why);
                return self.connect(None).await;
            }
            Ok(Err(Failure::Forgotten(why))) => {
                tracing::warn!(
                    "The store {} no longer knows this front-end: {why}",
                    self.remote.settings.target
                );
                health.is_connected.store(false, Ordering::Relaxed);
                (self.front, self.store) = (None, None);
                self.remote.end(taken, &Verdict::Again);
                return self.connect(None).await;
            }
            Ok(Err(Failure::Lost(why))) => why,
            Err(_elapsed) => format!("no reply within {} ms", patience.as_millis()),
        };
        tracing::warn!("Lost the store {}: {lost}", self.remote.settings.target);
        self.store = None;
        health.is_connected.store(false, Ordering::Relaxed);
        if taken.batch.is_uncounted.load(Ordering::Relaxed) {
            self.remote.give_up(&mut taken);
            self.remote.end(taken, &Verdict::Unknown);
            return self.connect(None).await;
        }
        // Also if no client waits any more: the next batch may not begin before this one is settled.
        let deadline = began + patience;
        let mut complaint = String::new();
        loop {
            self.connect(Some((&mut taken, deadline))).await;
            let Some(store) = &mut self.store else { continue };
            let left = deadline.saturating_duration_since(Instant::now());
            let left = if left.is_zero() { patience } else { left };
            match timeout(left, store.resolve(&taken.batch, number)).await {
                Ok(Ok(Some(answer))) => return self.remote.finish(taken, answer),
                Ok(Ok(None)) => return self.remote.end(taken, &Verdict::Again),
                Ok(Err(Failure::Refused(why) | Failure::Unusable(why) | Failure::Forgotten(why))) => {
                    // It begins anew, as another front-end.
                    tracing::error!("Cannot find out which changes the store has made: {why}");
                    self.remote.give_up(&mut taken);
                    (self.front, self.store) = (None, None);
                    self.remote.end(taken, &Verdict::Unknown);
                    return self.connect(None).await;
                }
                unsettled => {
                    let why = match unsettled {
                        Ok(Err(Failure::Lost(why))) => why,
                        // Mostly the store is still executing what the earlier connection sent.
                        Ok(_) => "a request of an earlier connection is still running".to_owned(),
                        Err(_elapsed) => "no reply in time".to_owned(),
                    };
                    if why != complaint {
                        tracing::warn!("Not known yet which changes the store has made: {why}");
                        complaint = why;
                    }
                }
            }
            self.store = None;
            self.mind(&mut taken, deadline);
            // The next connection may be made at once.
            sleep(PAUSE_BEFORE_ASKING).await;
        }
    }

    /// After the deadline, ends the waiting: for the batch under way the outcome is unknown, for other
    /// requests the store is away.
    fn mind(&self, taken: &mut Taken, deadline: Instant) {
        if Instant::now() >= deadline {
            self.remote.give_up(taken);
            self.remote.went_away();
        }
    }

    /// Connects, however long that takes. Meanwhile requests that have waited for too long get their errors.
    async fn connect(&mut self, mut under_way: Option<(&mut Taken, Instant)>) {
        let (remote, began, mut pause) = (self.remote, Instant::now(), PAUSE_MIN);
        let patience = remote.settings.patience;
        loop {
            let left = under_way
                .as_ref()
                .map_or(patience, |(_, deadline)| deadline.saturating_duration_since(Instant::now()));
            let left = left.clamp(PAUSE_MAX.min(patience), patience);
            let connecting = timeout(left, S::connect(remote, &mut self.front));
            let complaint = match connecting.await {
                Ok(Ok(store)) => {
                    remote.front.store(self.front.map_or(0, |front| front.id), Ordering::Relaxed);
                    self.store = Some(store);
                    self.complaint.clear();
                    remote.came_back();
                    tracing::info!("Connected to the store {}", remote.settings.target);
                    return;
                }
                Ok(Err(complaint)) => complaint,
                Err(_elapsed) => "no reply in time".to_owned(),
            };
            remote.health.why_away.lock().clone_from(&complaint);
            if complaint != self.complaint {
                tracing::warn!("Cannot reach the store {}: {complaint}", remote.settings.target);
                self.complaint = complaint;
            }
            if let Some((taken, deadline)) = &mut under_way {
                self.mind(taken, *deadline);
            }
            if began.elapsed() >= patience {
                remote.went_away();
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl Remote {
    /// Passes on what the store has done.
    fn finish(&self, mut taken: Taken, mut answer: Answer) {
        let fences: Arc<[u64]> = std::mem::take(&mut answer.fences).into();
        let mut found: Vec<(KeyMap<Arc<Row>>, KeySet)> = Vec::new();
        found.resize_with(taken.batch.groups, Default::default);
        let is_wanted = self.outgoing.wanted().keys;
        let mut state = self.state.lock();
        for (index, part) in taken.batch.parts.drain(..).enumerate() {
            if answer.done[part.group] {
                if let Some(written) = part.written.clone() {
                    let mut row = Row { version: answer.version, ..self.row_after(&part, &written) };
                    if row.fence == 0 && answer.first_fence > 0 {
                        row.fence = answer.first_fence.saturating_add(index as i64);
                    }
                    let expires_at_ms = answer.expiries.remove(&index);
                    if let Some(live) = &mut row.live {
                        live.expires_at_ms = expires_at_ms.or(live.expires_at_ms);
                    }
                    let became = Became::of(&row);
                    state.saw_row(&self.clock, &part.key, &row, true);
                    match part.lifetime_ms.is_some() && expires_at_ms.is_none() {
                        // SETTLE does not return when its life began.
                        true => state.hints.forget(&part.key),
                        false => state.hints.put(part.key.clone(), Arc::new(row)),
                    }
                    if is_wanted {
                        self.outgoing.tell(&News::Changed(part.key, became));
                    }
                } else {
                    state.saw_row(&self.clock, &part.key, &part.seen, false);
                    state.hints.put(part.key, part.seen);
                }
            } else if let Some(row) = answer.rows.remove(&index) {
                let row = Arc::new(row);
                state.saw_row(&self.clock, &part.key, &row, false);
                state.hints.put(part.key.clone(), Arc::clone(&row));
                let (rows, changed) = &mut found[part.group];
                if !part.is_as_guessed(&row) {
                    changed.insert(part.key.clone());
                }
                rows.insert(part.key, row);
            } else {
                state.hints.forget(&part.key);
            }
        }
        // News that came while the batch travelled may be of a later change than what the store has said.
        for key in state.in_flight.take_outdated() {
            state.hints.forget(&key);
            state.lines.call_readers(&key);
        }
        state.in_flight.end();
        drop(state);
        let groups = taken.waiting.into_iter().zip(found).zip(answer.done).enumerate();
        for (group, ((waiting, (rows, changed)), is_done)) in groups {
            let refusal = answer.refusal.as_ref().filter(|refusal| refusal.groups.contains(&group));
            let verdict = match (is_done, refusal) {
                (true, _) => Verdict::Done,
                (false, Some(refusal)) => {
                    self.health.failed.fetch_add(waiting.len() as u64, Ordering::Relaxed);
                    Verdict::Failed(Arc::clone(&refusal.why))
                }
                (false, None) => {
                    self.health.overtaken.fetch_add(waiting.len() as u64, Ordering::Relaxed);
                    let (rows, fences) = (Arc::new(rows), Arc::clone(&fences));
                    Verdict::Overtaken(Arc::new(Found { rows, changed, fences }))
                }
            };
            waiting.into_iter().for_each(|waiting| drop(waiting.send(verdict.clone())));
        }
    }

    /// A row that was written over another one, as far as it is known without asking the store.
    fn row_after(&self, part: &Part, written: &Row) -> Row {
        let keeps = !part.is_renewed && part.seen.keeps_tenure_in(written);
        let tenure = match written.granted {
            _ if keeps => part.seen.tenure.clone(),
            0 => None,
            fence => {
                let holder = part.holder.as_deref().unwrap_or_default().to_owned();
                Some(Arc::new(Tenure { holder, fence, since_ms: self.clock.now_ms() }))
            }
        };
        let fence = if keeps { part.seen.fence } else { written.granted };
        Row { live: written.live.clone(), fence, tenure, ..Row::default() }
    }

    /// Ends a batch of which nothing was done.
    fn end(&self, taken: Taken, verdict: &Verdict) {
        self.state.lock().in_flight.end();
        taken.end(verdict);
    }

    /// Ends the waiting for a batch whose outcome is unknown.
    fn give_up(&self, taken: &mut Taken) {
        for waiting in taken.waiting.iter_mut().flat_map(|group| group.drain(..)) {
            self.health.unknown.fetch_add(1, Ordering::Relaxed);
            let _ = waiting.send(Verdict::Unknown);
        }
    }

    /// The store has been away for longer than a request waits.
    fn went_away(&self) {
        let verdict = Verdict::Failed(format!("it {}", self.health.unreachable()).into());
        self.health.is_away.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let State { forming, in_flight, .. } = &mut *state;
        let taken = forming.take();
        in_flight.give_up(&verdict);
        drop(state);
        self.health.failed.fetch_add(taken.requests as u64, Ordering::Relaxed);
        taken.end(&verdict);
    }

    /// The store is there, or there again. All guesses are dropped: its clock may be another one, and news
    /// may have been lost.
    fn came_back(&self) {
        let mut state = self.state.lock();
        state.look_again();
        let taken = state.forming.take();
        drop(state);
        taken.end(&Verdict::Again);
        self.health.connections.fetch_add(1, Ordering::Relaxed);
        self.health.is_connected.store(true, Ordering::Relaxed);
        self.health.is_away.store(false, Ordering::Relaxed);
        self.health.why_away.lock().clear();
        self.work.notify_one();
    }
}
