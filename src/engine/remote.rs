//! The engine whose data is in a store outside this process.
//!
//! A request runs as often as needed. First it runs on a guess, and travels to the store with its changes.
//! Meanwhile its client waits. Then the request is executed again: if the store has done it, the reply of the
//! last run is its reply. Otherwise it runs on the rows that the store has returned. If it changes nothing on
//! these, that is its reply, for the rows were read while it waited.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot::error::TryRecvError;

use crate::clients::Waiting;
use crate::commands::Command;
use crate::commands::error::Error;
use crate::commands::execution::blocking::deadline;
use crate::commands::facts::{Blocking, Concern, Patience, Result, Run, Scope, Timeout};
use crate::commands::locks::watching::{describe_one_in_store, permits_in_row};
use crate::engine::memory::take_turn;
use crate::engine::scratch::{Ran, Work, look_at, run_on_rows};
use crate::excerpt::excerpt;
use crate::instance::Instance;
use crate::remote::batch::{Attempt, AttemptPart, Found, Seat, Verdict};
use crate::remote::row::{Key, Row};
use crate::remote::{Known, Listening, Looked, NotJoined, OwnWrites, Promised, Remote, StoreWish, WaitsFor};
use crate::resp::{OwnedRequest, Reply, Request};
use crate::scripting::NotYet;
use crate::session::{AttemptResult, Contention, Draw, Drawn, Outbox, Pending, Session};
use crate::values::ABSENT_KIND;

/// The most runs of a request that the store has not done. After that, its client gets TRYAGAIN.
const TRIES_MAX: u32 = 100;
/// How often others are faster before a request asks other front-ends for a turn, and before it asks again.
const PATIENT_TRIES: u32 = 4;
/// How often it runs before it has joined a batch, while others change the rows.
const LOOKS_MAX: u32 = 16;
/// For how long a request keeps the fencing numbers that it has drawn. The store keeps the rows of deleted
/// keys for longer, by which it sees that a lock was taken meanwhile.
const DRAWN_FOR_MAX: Duration = Duration::from_secs(60);

/// Why a request has no reply yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAnswered {
    /// It waits for the store, as the session's `pending` says.
    Store,
    /// It waits for something that another client holds.
    Contended(Contention),
    /// A script has been running for too long.
    Busy,
}

/// Executes a request on keys in the store, and appends its reply to `out`.
///
/// # Errors
///
/// [`NotAnswered`]: the caller executes the request again when the wait is over.
pub(crate) fn execute(
    (instance, remote): (&Instance, &Arc<Remote>),
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    keys: Vec<Key>,
    out: &mut Vec<u8>,
) -> std::result::Result<Result<()>, NotAnswered> {
    let own = session.pending.take();
    let mut pending = session.ahead.take(own);
    if let Some(ticket) = &mut pending.ticket {
        // It travelled with the request before it, whose verdict has just come.
        match ticket.try_recv() {
            Ok(verdict) => pending.verdict = Some(verdict),
            Err(TryRecvError::Closed) => pending.verdict = Some(Verdict::Unknown),
            Err(TryRecvError::Empty) => {
                session.pending = Some(pending);
                return Err(NotAnswered::Store);
            }
        }
        pending.ticket = None;
    }
    let waits_with = pending.waits_with.take();
    let request = waits_with.as_ref().and_then(OwnedRequest::request).unwrap_or(request);
    let mut errand = StoreRequest { instance, remote, command, request, keys: keys.into(), pending };
    match errand.go_on(session, out) {
        Ok(result) => {
            if errand.pending.listening.is_some() {
                session.client.set_waiting(Waiting::No);
            }
            Ok(result)
        }
        Err(why) => {
            let mut pending = errand.pending;
            pending.waits_with = pending.waits_with.or(waits_with);
            session.pending = Some(pending);
            Err(why)
        }
    }
}

/// Runs a request whose client waits for the one before it, which travels in this seat, so that both travel
/// in one group. Returns how far it is, or `None` if it has to wait. In that case nothing has happened.
pub(crate) fn run_ahead(
    (instance, remote): (&Instance, &Arc<Remote>),
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    keys: Vec<Key>,
    beside: Seat,
) -> Option<Box<Pending>> {
    let began = Some(Instant::now());
    // Both run on the rows that the store has returned to the one before it. A long one is nowhere else.
    let told_rows = session.pending.as_ref().and_then(|before| before.told_rows.clone());
    let pending = Box::new(Pending { began, told_rows, ..Pending::default() });
    let mut errand = StoreRequest { instance, remote, command, request, keys: keys.into(), pending };
    match errand.attempt(session, Some(beside)) {
        Err(NotAnswered::Store) if errand.pending.result.is_some() => Some(errand.pending),
        _ => None,
    }
}

/// A request on its way.
struct StoreRequest<'a, 'r> {
    instance: &'a Instance,
    remote: &'a Arc<Remote>,
    command: &'static Command,
    request: Request<'r>,
    keys: Arc<[Key]>,
    pending: Box<Pending>,
}

/// A run of a request, and the rows on which it is to travel.
struct Guess {
    rows: Vec<Arc<Row>>,
    /// Whether each row must have the version that was seen, even if it is absent.
    are_strict: Vec<bool>,
    ran: Ran,
    /// The fencing numbers that it draws, if it lacks some: it only reads the rows of their keys then.
    draw: Option<Draw>,
}

/// The next step, if it is no reply.
type Stopped = std::result::Result<Result<()>, NotAnswered>;

impl StoreRequest<'_, '_> {
    fn go_on(&mut self, session: &mut Session, out: &mut Vec<u8>) -> Stopped {
        match self.pending.unblocked.take() {
            None => {}
            Some(Waiting::Failed) => return Ok(Err(Error::UNBLOCKED)),
            Some(_) => return self.nothing(session, out),
        }
        self.settle();
        let draw = self.pending.draws.take();
        match (self.pending.verdict.take(), self.pending.result.take()) {
            (Some(Verdict::Done), Some(result)) => return self.conclude(session, result, out),
            (Some(Verdict::Overtaken(found)), Some(_)) => {
                self.pending.tries += 1;
                match draw {
                    Some(draw) => self.note_drawn(&found, draw),
                    None => self.note_overtaken(&found),
                }
                let rows: Option<Vec<_>> = self.keys.iter().map(|key| found.rows.get(key).cloned()).collect();
                if let Some(rows) = rows
                    && let Some(result) = self.answer_from(session, &rows)?
                {
                    if !self.still_waits(session, result.found_nothing) {
                        return Err(NotAnswered::Store);
                    }
                    return self.conclude(session, result, out);
                }
            }
            (Some(Verdict::Failed(why)), _) => {
                return Ok(Err(Error::text(format!("STOREDOWN The store has not done this: {why}"))));
            }
            (Some(Verdict::Unknown), _) => return Ok(Err(OUTCOME_UNKNOWN)),
            (Some(_), Some(_)) => self.pending.tries += 1,
            // It has waited for others.
            (Some(_), None) | (None, _) => {}
        }
        if self.pending.tries > TRIES_MAX {
            return Ok(Err(Error::fixed("TRYAGAIN Other clients keep changing these keys")));
        }
        let began = *self.pending.began.get_or_insert_with(Instant::now);
        if began.elapsed() >= self.remote.settings.patience {
            return Ok(Err(Error::fixed("TRYAGAIN The store was too slow to do this in time")));
        }
        if self.waits_in_vain() {
            return self.nothing(session, out);
        }
        // Those that have travelled beside it were not done either.
        session.ahead.clear();
        self.attempt(session, None)
    }

    /// Notes the rows that the store has returned instead of doing it.
    fn note_overtaken(&mut self, found: &Found) {
        self.pending.told_rows = Some(Arc::clone(&found.rows));
        if !found.rows.is_empty() {
            self.pending.was_overtaken = self.keys.iter().any(|key| found.changed.contains(key));
        }
        if self.pending.was_overtaken && self.pending.tries.is_multiple_of(PATIENT_TRIES) {
            let changed = self.keys.iter().filter(|key| found.changed.contains(key)).cloned();
            self.pending.turn = Some(self.remote.ask_turn(changed.collect()));
        }
        // Where the row of a lock has changed, it may have had a holder with a larger number.
        let keys = &self.keys;
        self.pending
            .drawn
            .take_if(|drawn| drawn.rows.keys().any(|place| found.changed.contains(&keys[*place])));
    }

    /// Notes the fencing numbers that it has drawn, with the rows that were read by that.
    fn note_drawn(&mut self, found: &Found, draw: Draw) {
        let first = self.pending.seat.map_or(0, |seat| seat.drawn);
        let fences = found.fences.get(first..first + draw.count);
        let row = |place| Some((place, found.rows.get(&self.keys[place]).cloned()?));
        let rows: Option<BTreeMap<_, _>> = draw.places.into_iter().map(row).collect();
        let drawn = rows.zip(fences);
        self.pending.drawn =
            drawn.map(|(rows, fences)| Drawn { rows, fences: fences.to_vec(), at: Instant::now() });
    }

    /// The fencing numbers that it may give.
    fn fences(&self) -> &[u64] {
        self.pending.drawn.as_ref().map_or(&[], |drawn| &drawn.fences)
    }

    /// Replies that there is nothing, for a client that does not wait, or has waited in vain.
    fn nothing(&self, session: &Session, out: &mut Vec<u8>) -> Stopped {
        let reply = Reply::new(out, session.protocol);
        let _ = match self.command.run {
            Run::Block(blocking) => (blocking.waiting.timed_out)(reply),
            _ => reply.nil_array(),
        };
        Ok(Ok(()))
    }

    /// Whether the time of a client that waits is up, and it need not ask the store: it has found nothing,
    /// and has heard of nothing since.
    fn waits_in_vain(&self) -> bool {
        let is_called = || self.pending.listening.as_ref().is_none_or(Listening::is_called);
        self.pending.has_found_nothing && (self.has_given_way() || self.is_time_up() && !is_called())
    }

    /// Whether another attempt of the client has taken over its place.
    fn has_given_way(&self) -> bool {
        self.pending.listening.as_ref().is_some_and(Listening::has_given_way)
    }

    fn is_time_up(&self) -> bool {
        self.pending.until.is_some_and(|until| until <= Instant::now())
    }

    /// The result on rows that the store has returned, if the request changes none of them.
    fn answer_from(
        &mut self,
        session: &mut Session,
        rows: &[Arc<Row>],
    ) -> std::result::Result<Option<AttemptResult>, NotAnswered> {
        if self.is_watch(session) {
            for (key, row) in self.keys.iter().zip(rows) {
                // A key that is watched already stays watched as it was then, as in memory: the client may
                // have read it since.
                session.watched_in_store.entry(key.clone()).or_insert_with(|| Arc::clone(row));
            }
            return Ok(Some(AttemptResult::of(b"+OK\r\n".to_vec())));
        }
        if self.command.concern == Concern::Holders {
            let mut reply = Vec::new();
            let (key, now_ms) = (&self.keys[0], self.remote.clock.now_ms());
            let described = rows.first().and_then(|row| {
                let here = (self.instance, &**self.remote);
                let permits =
                    || look_at(self.instance, (key, row), now_ms, |tx| permits_in_row(here, tx, key));
                describe_one_in_store(here, key, row, || permits()?)
            });
            let answer = Reply::new(&mut reply, session.protocol);
            let _ = match described {
                Some(described) => answer.tree(&described),
                None => answer.nil(),
            };
            return Ok(Some(AttemptResult::of(reply)));
        }
        if self.command.scope == Scope::Queue {
            let is_overtaken = session.watched_in_store.iter().any(|(key, seen)| {
                let now = self.keys.iter().zip(rows).find(|(other, _)| *other == key);
                now.is_none_or(|(_, now)| {
                    now.version != seen.version || now.live.is_some() != seen.live.is_some()
                })
            });
            if is_overtaken {
                let mut reply = Vec::new();
                let _ = Reply::new(&mut reply, session.protocol).nil_array();
                return Ok(Some(AttemptResult::of(reply)));
            }
        }
        let ran = match self.run_in_turn(session, rows)? {
            Ok(ran) => ran,
            Err(error) => return Ok(Some(AttemptResult::failed(error))),
        };
        if ran.wants_fences.is_some() {
            return Ok(None);
        }
        let changes_nothing = ran.written.iter().all(Option::is_none);
        Ok(changes_nothing.then(|| AttemptResult::from(ran)))
    }

    /// Runs the request on a guess, and lets it travel to the store, beside another one if there is one.
    fn attempt(&mut self, session: &mut Session, beside: Option<Seat>) -> Stopped {
        if let Err(error) = self.check_size().and_then(|()| self.begin_to_wait(session)) {
            return Ok(Err(error));
        }
        self.pending.drawn.take_if(|drawn| drawn.at.elapsed() >= DRAWN_FOR_MAX);
        let is_reader = matches!(self.command.run, Run::Read(_));
        let mut reads_in = is_reader.then_some(beside);
        for _ in 0..LOOKS_MAX {
            let guess = match self.guess(session, reads_in, beside) {
                Ok(guess) => guess,
                Err(stopped) => return stopped,
            };
            let taken = self.takes_from(session, &guess);
            if !taken.iter().all(|(key, _)| self.is_its_turn(session, key)) {
                return Err(NotAnswered::Store);
            }
            if !self.still_waits(session, guess.ran.found_nothing) {
                return Err(NotAnswered::Store);
            }
            if let Some(listening) = &self.pending.listening {
                listening.asks();
            }
            let attempt = self.attempt_of(session, &guess, beside);
            let (holder, own_writes) = (Arc::clone(&attempt.holder), self.own_writes(session, &guess.ran));
            match self.remote.join(attempt) {
                Ok((ticket, seat)) => {
                    if let (Some(listening), Some((key, leaves_some))) =
                        (&self.pending.listening, taken.first())
                    {
                        listening.takes(seat.batch, key, *leaves_some);
                    }
                    (self.pending.stood_back, self.pending.draws) = (0, guess.draw);
                    (self.pending.ticket, self.pending.seat) = (Some(ticket), Some(seat));
                    let mut result = AttemptResult::from(guess.ran);
                    self.pending.promised = self.promise(session, take(&mut result.wishes), holder);
                    (self.pending.result, self.pending.own_writes) = (Some(result), own_writes);
                    return Err(NotAnswered::Store);
                }
                // One that was to read has freed fields of a hash that have expired.
                Err(NotJoined::Changed) => reads_in = None,
                Err(NotJoined::Left) => return Err(NotAnswered::Store),
                Err(NotJoined::After(ticket)) => {
                    self.pending.ticket = Some(ticket);
                    return Err(NotAnswered::Store);
                }
                Err(NotJoined::StandsBack(ticket)) => {
                    self.pending.stood_back += 1;
                    self.pending.ticket = Some(ticket);
                    return Err(NotAnswered::Store);
                }
                Err(NotJoined::LeavesTo(ticket, until)) => {
                    (self.pending.ticket, self.pending.yields_until) = (Some(ticket), Some(until));
                    return Err(NotAnswered::Store);
                }
                Err(NotJoined::Full) => {
                    return Ok(Err(Error::fixed("TRYAGAIN Too many requests wait for the store")));
                }
            }
        }
        Ok(Err(Error::fixed("TRYAGAIN Other clients keep changing these keys")))
    }

    /// Refuses a request that names more keys than the store takes at once.
    fn check_size(&self) -> Result<()> {
        let limits = self.remote.settings.target.limits();
        let (keys_max, bytes_max) = (limits.request_keys, limits.request_name_bytes);
        if self.keys.len() > keys_max {
            return Err(Error::text(format!("ERR A request may name {keys_max} keys in this store at most")));
        }
        if self.keys.iter().map(|key| key.name.len()).sum::<usize>() > bytes_max {
            return Err(Error::text(format!(
                "ERR The names of a request's keys may have {bytes_max} bytes together in this store at most"
            )));
        }
        Ok(())
    }

    /// Places a client that waits in the lines of its keys, before it looks, so that no change is missed.
    fn begin_to_wait(&mut self, session: &Session) -> Result<()> {
        let Run::Block(blocking) = self.command.run else { return Ok(()) };
        if self.pending.listening.is_some() {
            return Ok(());
        }
        let Patience { timeout, comes_again, joins } = (blocking.check)(self.request)?;
        if !matches!(timeout, Timeout::None) {
            let (keys, takes) = (self.waits_for(session, blocking), !blocking.waiting.is_shared);
            let client = || Arc::clone(&session.client);
            // By what the client is known, for another attempt that takes over its place.
            let known = blocking.waiting.token.map(|token| self.request.at(token).into());
            let known = known.map(|token| Known { token, comes_again, client: client() });
            let wants = WaitsFor { kind: blocking.kind, takes, joins };
            self.pending.listening = Some(self.remote.listen(keys, wants, known));
        }
        self.pending.until = deadline(timeout)?;
        Ok(())
    }

    /// Runs the request on the rows as they can be guessed, or as they were when it drew fencing numbers for
    /// them. If it lacks numbers, what is returned reads the rows of their keys and draws them.
    fn guess(
        &mut self,
        session: &mut Session,
        reads_in: Option<Option<Seat>>,
        beside: Option<Seat>,
    ) -> std::result::Result<Guess, Stopped> {
        let mut rows = match self.remote.look(&self.keys, self.pending.told_rows.as_deref(), reads_in) {
            Looked::Rows(rows) => rows,
            Looked::After(ticket) => {
                self.pending.ticket = Some(ticket);
                return Err(Err(NotAnswered::Store));
            }
            Looked::Away => {
                let why = self.remote.health.unreachable();
                return Err(Ok(Err(Error::text(format!("STOREDOWN The store {why}")))));
            }
        };
        let mut are_strict = vec![false; rows.len()];
        self.expect_watched(session, &mut rows, &mut are_strict);
        self.expect_drawn(&mut rows, &mut are_strict);
        let ran = match self.wants_rows(session) {
            true => Ran::nothing(rows.len()),
            // An error about the request, or about a row that was really read.
            false => self.run_in_turn(session, &rows).map_err(Err)?.map_err(|error| Ok(Err(error)))?,
        };
        if let Err(error) = &ran.reply
            && error.as_bytes().starts_with(KILLED)
        {
            // It has written nothing, and does not run again.
            return Err(Ok(Err(Error::bytes(error.as_bytes().to_vec()))));
        }
        let Some(draw) = self.draw_for(&ran) else { return Ok(Guess { rows, are_strict, ran, draw: None }) };
        if beside.is_some() {
            return Err(Err(NotAnswered::Store));
        }
        let draws_max = self.remote.settings.target.limits().batch_draws;
        if draw.count > draws_max {
            return Err(Ok(Err(Error::text(format!(
                "ERR A request may take {draws_max} locks in the store at most"
            )))));
        }
        let (found_nothing, fences_beyond) = (self.pending.listening.is_some(), ran.fences_beyond);
        let ran = Ran { found_nothing, fences_beyond, ..Ran::nothing(rows.len()) };
        Ok(Guess { rows, are_strict, ran, draw: Some(draw) })
    }

    /// The fencing numbers that a run lacks, or that were drawn for other keys than those for which it has
    /// taken them.
    fn draw_for(&self, ran: &Ran) -> Option<Draw> {
        let is_drawn =
            |place: &usize| self.pending.drawn.as_ref().is_some_and(|drawn| drawn.rows.contains_key(place));
        let is_fenced = |place: &usize| ran.fenced[*place];
        let all = || 0..self.keys.len();
        let is_for_others = || all().any(|place| is_fenced(&place) && !is_drawn(&place));
        let count = ran.wants_fences.or_else(|| is_for_others().then(|| self.fences().len()))?;
        let places: Vec<usize> = all().filter(|place| is_fenced(place) || is_drawn(place)).collect();
        Some(Draw { count, places: if places.is_empty() { all().collect() } else { places } })
    }

    /// What travels to the store.
    fn attempt_of(&self, session: &Session, guess: &Guess, beside: Option<Seat>) -> Attempt {
        let Guess { rows, are_strict, ran, draw } = guess;
        let part = |place: usize| AttemptPart {
            key: self.keys[place].clone(),
            seen: Arc::clone(&rows[place]),
            is_strict: are_strict[place],
            written: ran.written[place].clone(),
            is_renewed: ran.renewed[place],
            lifetime_ms: ran.lifetime_ms(place),
        };
        let parts = match draw {
            None => (0..self.keys.len()).map(part).collect(),
            // No other key: requests that change it are not in one group with this one.
            Some(draw) => draw.places.iter().map(|place| unread_part(&self.keys[*place])).collect(),
        };
        Attempt {
            parts,
            holder: self.holder(session, ran),
            is_reader: matches!(self.command.run, Run::Read(_)),
            beside,
            was_overtaken: self.pending.was_overtaken,
            stood_back: self.pending.stood_back,
            draws: draw.as_ref().map_or(0, |draw| draw.count),
            draws_beyond: ran.fences_beyond,
        }
    }

    /// The keys for which a blocking command waits, each one once.
    fn waits_for(&self, session: &Session, blocking: &Blocking) -> Arc<[Key]> {
        let named = self.command.keys_of(self.request).take(blocking.keys);
        let keys: BTreeSet<Key> = named.map(|(name, _)| Key::new(session.database, name)).collect();
        keys.into_iter().collect()
    }

    /// The key from which a client takes something for which others wait as well, and whether it leaves
    /// something there. Only some take several at once.
    fn takes_from(&self, session: &Session, guess: &Guess) -> Vec<(Key, bool)> {
        let Run::Block(blocking) = self.command.run else { return Vec::new() };
        let (rows, ran) = (&guess.rows, &guess.ran);
        if ran.found_nothing || blocking.waiting.is_shared {
            return Vec::new();
        }
        let joins = (blocking.check)(self.request).ok().and_then(|patience| patience.joins);
        let keys_max = if blocking.waiting.takes_all.is_some() { usize::MAX } else { 1 };
        let taken = self.command.keys_of(self.request).take(blocking.keys).filter_map(|(name, _)| {
            let key = Key::new(session.database, name);
            let place = self.keys.binary_search(&key).ok()?;
            let kind = |row: &Row| row.live.as_ref().map_or(ABSENT_KIND, |live| live.kind);
            // A client that comes again for its lock takes nothing from those that wait until it is free.
            let is_there = kind(&rows[place]) == blocking.kind || Some(kind(&rows[place])) == joins;
            let is_there = is_there && !ran.kept[place];
            let leaves_some = kind(ran.written[place].as_ref()?) == blocking.kind;
            is_there.then_some((key, leaves_some))
        });
        taken.take(keys_max).collect()
    }

    /// Whether a client may take something from a key: clients that came before it take first. Its time may
    /// be up though it has never found nothing: then it takes what is there. Otherwise it goes on waiting.
    fn is_its_turn(&mut self, session: &Session, key: &Key) -> bool {
        let is_late = self.is_time_up() && !self.pending.has_found_nothing;
        if is_late || self.pending.listening.as_ref().is_none_or(|listening| listening.may_take(key)) {
            return true;
        }
        session.client.release();
        self.pending.has_waited = true;
        self.begin_anew();
        false
    }

    /// Forgets what came of its runs so far: it waits until a key has changed.
    fn begin_anew(&mut self) {
        (self.pending.told_rows, self.pending.drawn, self.pending.turn) = (None, None, None);
        (self.pending.tries, self.pending.began) = (0, None);
    }

    /// Whether a blocking command may get what it has found, or ask the store for it: from then on no other
    /// client ends its wait. Returns false if one has ended it. While it finds nothing, each may.
    fn still_waits(&self, session: &Session, found_nothing: bool) -> bool {
        if self.pending.listening.is_none() {
            return true;
        }
        if found_nothing {
            session.client.release();
            return true;
        }
        session.client.look_again().is_none()
    }

    /// The names of this front-end and this client, for people who look into the store.
    fn holder(&self, session: &Session, ran: &Ran) -> Arc<str> {
        if ran.written.iter().all(Option::is_none) {
            return Arc::default();
        }
        let client = &session.client;
        let name = excerpt(&client.profile.lock().name).into_owned();
        format!("{}name={}", self.remote.name_of_client(client), String::from_utf8_lossy(&name)).into()
    }

    /// Whether it watches keys. In a transaction that is being queued, it fails.
    fn is_watch(&self, session: &Session) -> bool {
        self.command.concern == Concern::Changes && session.queue.is_none()
    }

    /// Whether it wants to know the rows themselves.
    fn wants_rows(&self, session: &Session) -> bool {
        self.command.concern == Concern::Holders || self.is_watch(session)
    }

    /// A watched key must be as it was when it was watched. A command that wants to know the rows reads them.
    fn expect_watched(&self, session: &Session, rows: &mut [Arc<Row>], are_strict: &mut [bool]) {
        if self.wants_rows(session) {
            rows.clone_from_slice(&unread(rows.len()));
            are_strict.fill(true);
        }
        if self.command.scope == Scope::Queue {
            for (key, seen) in &session.watched_in_store {
                if let Ok(place) = self.keys.binary_search(key) {
                    rows[place] = Arc::clone(seen);
                    are_strict[place] = true;
                }
            }
        }
    }

    /// A lock for which a fencing number was drawn must be as it was then. If it is watched and has changed
    /// since, what was watched counts, and EXEC fails.
    fn expect_drawn(&self, rows: &mut [Arc<Row>], are_strict: &mut [bool]) {
        let Some(drawn) = &self.pending.drawn else { return };
        for (place, row) in &drawn.rows {
            let watched = Some(&rows[*place]).filter(|_| are_strict[*place]);
            let is_same =
                |seen: &Arc<Row>| seen.version == row.version && seen.live.is_some() == row.live.is_some();
            if watched.is_none_or(is_same) {
                (rows[*place], are_strict[*place]) = (Arc::clone(row), true);
            }
        }
    }

    /// The rows as a client sees them that waits: a key that has become something else counts as absent, and
    /// it may still be served from another one.
    fn seen_while_waiting(&self, session: &Session, rows: &[Arc<Row>]) -> Option<Vec<Arc<Row>>> {
        let Run::Block(blocking) = self.command.run else { return None };
        let waits_for_value = blocking.kind != ABSENT_KIND;
        if !self.pending.has_waited || blocking.waiting.ends_without_value || !waits_for_value {
            return None;
        }
        let mut seen = rows.to_vec();
        for (name, _) in self.command.keys_of(self.request).take(blocking.keys) {
            if let Ok(place) = self.keys.binary_search(&Key::new(session.database, name))
                && rows[place].live.as_ref().is_some_and(|live| live.kind != blocking.kind)
            {
                seen[place] = Row::absent();
            }
        }
        Some(seen)
    }

    fn run_in_turn(
        &self,
        session: &mut Session,
        rows: &[Arc<Row>],
    ) -> std::result::Result<Result<Ran>, NotAnswered> {
        let turn = take_turn(self.instance, session, self.command).map_err(|why| match why {
            NotYet::Busy => NotAnswered::Busy,
            NotYet::Contended => NotAnswered::Contended(Contention::Turn),
        })?;
        if turn.as_ref().is_some_and(|turn| turn.has_waited) {
            session.began = Instant::now();
        }
        // The store decides when a row has expired, since the clock here may be ahead of the store's.
        let last_ms = rows.iter().filter_map(|row| Some(row.expires_at_ms()?.saturating_sub(1))).min();
        let now_ms = last_ms.unwrap_or(u64::MAX).min(self.remote.clock.now_ms());
        let seen = self.seen_while_waiting(session, rows);
        let rows = seen.as_deref().unwrap_or(rows);
        let (command, request, keys) = (self.command, self.request, &self.keys);
        let work = Work { command, request, keys, rows, now_ms, fences: self.fences() };
        Ok(run_on_rows(self.instance, session, work))
    }

    /// Gives the client its reply. What the request does for other clients is delivered now.
    fn conclude(&mut self, session: &mut Session, result: AttemptResult, out: &mut Vec<u8>) -> Stopped {
        let AttemptResult { reply, found_nothing, waits_with, again_ms, outbox, wishes, lacked } = result;
        if let Some(listening) = &self.pending.listening {
            listening.has_looked(found_nothing, &lacked);
        }
        if found_nothing {
            self.pending.has_found_nothing = true;
            let again = again_ms.map(Duration::from_millis);
            self.pending.again = again.and_then(|again| Instant::now().checked_add(again));
            if !self.pending.has_waited {
                // As in memory, where it looks before it waits: it may have made a consumer.
                self.deliver(session, outbox);
            }
            self.pending.has_waited = true;
            self.begin_anew();
            self.pending.waits_with = waits_with;
            if self.pending.until.is_none_or(|until| Instant::now() < until) && !self.has_given_way() {
                return Err(NotAnswered::Store);
            }
            return self.nothing(session, out);
        }
        let promised = self.pending.promised.take().or_else(|| self.promise(session, wishes, Arc::default()));
        promised.into_iter().for_each(Promised::stand);
        self.deliver(session, outbox);
        Ok(match reply {
            Ok(reply) => {
                out.extend_from_slice(&reply);
                Ok(())
            }
            Err(error) => Err(Error::bytes(error)),
        })
    }

    /// Has guards stand ready for the locks that the request is about to be granted, if its client wants more
    /// of them. `holder` is what their rows say.
    fn promise(&self, session: &Session, wishes: Vec<StoreWish>, holder: Arc<str>) -> Option<Promised> {
        let client = &session.client;
        if wishes.is_empty() {
            return None;
        }
        Some(self.remote.promise(wishes, client.id, client.lifeline(), &holder))
    }

    /// The locks with guards that the client itself ends by what travels to the store now.
    fn own_writes(&self, session: &Session, ran: &Ran) -> Option<OwnWrites> {
        let written = self.keys.iter().zip(&ran.written);
        self.remote.own_writes(
            session.client.id,
            written.filter_map(|(key, written)| Some((key, written.as_deref()?))),
        )
    }

    /// Notes what the store has done with what has travelled last.
    fn settle(&mut self) {
        let is_done = match &self.pending.verdict {
            None => return,
            Some(verdict) => matches!(verdict, Verdict::Done) && self.pending.result.is_some(),
        };
        let own_writes = self.pending.own_writes.take();
        if is_done {
            return own_writes.into_iter().for_each(OwnWrites::settle);
        }
        self.pending.promised.take().into_iter().for_each(Promised::give_up);
    }

    /// Delivers what a run has done for other clients.
    fn deliver(&self, session: &mut Session, outbox: Option<Box<Outbox>>) {
        session.outbox = outbox;
        if session.outbox.is_some() {
            self.instance.deliver(session, self.request);
        }
    }
}

/// A key whose row has to be read first.
fn unread_part(key: &Key) -> AttemptPart {
    let seen = Row::unread();
    let (is_strict, is_renewed) = (true, false);
    AttemptPart { key: key.clone(), seen, is_strict, written: None, is_renewed, lifetime_ms: None }
}

/// Rows that have to be read first.
fn unread(rows: usize) -> Vec<Arc<Row>> {
    std::iter::repeat_n(Row::unread(), rows).collect()
}

/// The beginning of the error of a killed script.
const KILLED: &[u8] = b"ERR Script killed by user with SCRIPT KILL";

/// The error for a request that may have been done.
pub(super) const OUTCOME_UNKNOWN: Error =
    Error::fixed("STOREDOWN Outcome unknown: the store has not said in time whether it has done this");

impl Ran {
    /// The result of a request that only wants to know the rows.
    fn nothing(keys: usize) -> Ran {
        Ran {
            now_ms: 0,
            reply: Ok(Vec::new()),
            written: vec![None; keys],
            outbox: None,
            found_nothing: false,
            waits_with: None,
            again_ms: None,
            span_ends_ms: BTreeSet::new(),
            wants_fences: None,
            fences_beyond: 0,
            exact: vec![false; keys],
            kept: vec![false; keys],
            lacked: Vec::new(),
            fenced: vec![false; keys],
            wishes: Vec::new(),
            renewed: vec![false; keys],
        }
    }
}

impl Ran {
    /// How long a key lives from when the store writes it, if the request has asked for a span of time.
    fn lifetime_ms(&self, place: usize) -> Option<u64> {
        let written = self.written[place].as_ref().filter(|_| !self.exact[place]);
        let expires_at_ms = written?.expires_at_ms()?;
        self.span_ends_ms.contains(&expires_at_ms).then(|| expires_at_ms.saturating_sub(self.now_ms))
    }
}

impl AttemptResult {
    fn of(reply: Vec<u8>) -> AttemptResult {
        AttemptResult {
            reply: Ok(reply),
            found_nothing: false,
            waits_with: None,
            again_ms: None,
            outbox: None,
            wishes: Vec::new(),
            lacked: Vec::new(),
        }
    }

    fn failed(error: Error) -> AttemptResult {
        AttemptResult { reply: Err(error.as_bytes().to_vec()), ..AttemptResult::of(Vec::new()) }
    }
}

impl From<Ran> for AttemptResult {
    fn from(ran: Ran) -> AttemptResult {
        let Ran { reply, outbox, found_nothing, waits_with, again_ms, wishes, lacked, .. } = ran;
        let reply = reply.map_err(|error| error.as_bytes().to_vec());
        AttemptResult { reply, found_nothing, waits_with, again_ms, outbox, wishes, lacked }
    }
}
