//! How front-ends hear of each other in etcd.
//!
//! Each front-end has a key with a lease, which it keeps alive instead of writing heartbeats. When the
//! front-end ends, etcd removes the key. The front-end writes its news into this key. All front-ends watch
//! these keys, and a watch returns each revision of a key.
//!
//! etcd itself sends the changes of keys, also expiries. The front-end watches them while one of its clients
//! waits for a key, or tracks what it has read. Every batch writes the ledger of its front-end in the same
//! revision, so a front-end recognizes its own changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};
use tonic::Status;

use super::flushed::Flushed;
use super::look_at_flushes;
use super::messages::{Event, RangeRequest, WatchCreateRequest, WatchResponse, put};
use super::names::{self, Flushes, Named, Names};
use super::wire::{Watch, Wire, describe, still_watched};
use crate::remote::Remote;
use crate::remote::news::{Became, Ears, HEARTBEAT, Incoming, News, Wants};
use crate::remote::row::Row;

/// How long the key of a front-end is there after it was heard of last, in seconds.
const PRESENCE_SECONDS: i64 = 10;
/// How many heartbeats are between two signs of life.
const KEEP_ALIVE_EVERY: u32 = 3;
/// How long etcd is left to the others after some of these were deleted.
const FLUSHED_EVERY: Duration = Duration::from_millis(20);
/// How long changes are watched after they were wanted last.
const WANTED: Duration = Duration::from_secs(5);
/// The most bytes of news in one write: etcd accepts 1.5 MiB.
const PIECE_BYTES: usize = 512 << 10;

/// Receives and sends news until the process ends.
pub(super) async fn exchange(remote: &Arc<Remote>, ears: &impl Ears) {
    loop {
        if let Err(why) = listen(remote, ears).await {
            tracing::debug!("No news from the store: {why}");
        }
        tokio::time::sleep(HEARTBEAT / 4).await;
    }
}

async fn listen(remote: &Arc<Remote>, ears: &impl Ears) -> Result<(), String> {
    let Some(front) = remote.front() else { return Err("not connected yet".to_owned()) };
    let patience = remote.settings.patience;
    let opened = timeout(patience, super::open(remote)).await.map_err(|_elapsed| "no reply in time")?;
    let (wire, names) = opened?;
    let mut session = Session {
        remote,
        ears,
        front,
        wire,
        names,
        incoming: Incoming::default(),
        others: HashSet::new(),
        lease: 0,
        letter: 0,
    };
    session.serve().await.map_err(|status| describe(&status))
}

/// A connection to etcd for news.
struct Session<'r, E> {
    remote: &'r Arc<Remote>,
    ears: &'r E,
    front: i64,
    wire: Wire,
    names: Names,
    incoming: Incoming,
    /// The other front-ends that are connected.
    others: HashSet<i64>,
    /// The lease of the key that shows that this front-end is connected.
    lease: i64,
    /// The number of the last letter to the others.
    letter: u64,
}

impl<E: Ears> Session<'_, E> {
    async fn serve(&mut self) -> Result<(), Status> {
        let begun = self.appear().await?;
        let mut news = self.watch(self.names.all_news(), begun + 1).await?;
        let mut changes: Option<Watch> = None;
        let (mut ticks, mut beats) = (interval(HEARTBEAT), 0);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut wanted = Instant::now();
        let mut flushed = Flushed::new(&self.names, self.remote.settings.databases);
        let (mut is_first, mut freed) = (false, Instant::now());
        // Changes before this were not received.
        self.remote.look_again();
        loop {
            if self.remote.has_listeners() || self.ears.wants_keys() {
                wanted = Instant::now();
                if changes.is_none() {
                    let looked = self.within(look_at_flushes(&self.wire, &self.names)).await?;
                    let revision;
                    (self.names, revision) = looked;
                    changes = Some(self.watch(self.names.all_changes(), revision + 1).await?);
                    // Changes before this were not received.
                    self.remote.look_again();
                    if self.ears.wants_keys() {
                        self.ears.hear(News::Flushed(None));
                    }
                }
            } else if wanted.elapsed() > WANTED {
                changes = None;
            }
            let bytes = self.remote.outgoing.take();
            if !bytes.is_empty() {
                self.within(self.send(&bytes)).await?;
                self.letter += 1;
            }
            tokio::select! {
                response = news.responses.message() => {
                    let Some(response) = response? else { return Ok(()) };
                    self.hear_news(response)?;
                }
                response = next(&mut changes) => {
                    let Some(response) = response? else { return Ok(()) };
                    self.hear_changes(response)?;
                }
                () = self.remote.outgoing.work.notified() => {}
                () = sleep_until((freed + FLUSHED_EVERY).into()), if is_first && !flushed.is_empty() => {
                    self.within(flushed.free_some(&self.wire)).await?;
                    freed = Instant::now();
                }
                _ = ticks.tick() => {
                    if self.remote.front() != Some(self.front) {
                        return Ok(());
                    }
                    beats += 1;
                    if beats % KEEP_ALIVE_EVERY == 0 {
                        self.within(self.keep_alive()).await?;
                    }
                    self.greet();
                    is_first = self.others.iter().all(|other| *other > self.front);
                    self.within(flushed.look(&self.wire)).await?;
                }
            }
        }
    }

    /// Begins to watch keys from a revision on.
    async fn watch(&self, [key, range_end]: [Bytes; 2], start_revision: i64) -> Result<Watch, Status> {
        self.within(self.wire.watch(WatchCreateRequest { key, range_end, start_revision })).await
    }

    /// Says that this front-end is there, and looks which others are. Returns the revision of that.
    async fn appear(&mut self) -> Result<i64, Status> {
        self.lease = self.within(self.wire.grant(PRESENCE_SECONDS)).await?;
        let here = put(self.names.news(self.front), Bytes::new(), self.lease);
        self.within(self.wire.all(vec![here])).await?;
        let [key, range_end] = self.names.all_news();
        let request = RangeRequest { key, range_end, keys_only: true, ..RangeRequest::default() };
        let found = self.within(self.wire.range(request)).await?;
        for key in found.kvs {
            if let Some(Named::News(other)) = self.names.read(&key.key) {
                self.others.insert(other);
            }
        }
        self.greet();
        Ok(found.header.map_or(0, |header| header.revision))
    }

    /// Notes which front-ends are there. Changes of keys need no news: etcd sends them.
    fn greet(&mut self) {
        self.others.remove(&self.front);
        for other in &self.others {
            self.remote.outgoing.hear(*other, Wants::default());
        }
        self.remote.tidy_fronts();
    }

    async fn keep_alive(&self) -> Result<(), Status> {
        let (here, ledger) =
            tokio::try_join!(self.wire.keep_alive(self.lease), self.wire.keep_alive(self.front))?;
        match here && ledger {
            true => Ok(()),
            false => Err(Status::not_found("etcd has taken this front-end for gone")),
        }
    }

    /// Sends news to the other front-ends.
    async fn send(&self, bytes: &[u8]) -> Result<(), Status> {
        let letter = self.letter + 1;
        let mut pieces = bytes.chunks(PIECE_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            let head = [&letter.to_be_bytes()[..], &[u8::from(pieces.peek().is_some())]].concat();
            let value = [&head, piece].concat().into();
            self.wire.all(vec![put(self.names.news(self.front), value, self.lease)]).await?;
        }
        Ok(())
    }

    /// The result of `future`, or an error if it takes longer than a request may.
    async fn within<T>(&self, future: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let done = timeout(self.remote.settings.patience, future).await;
        done.unwrap_or_else(|_elapsed| Err(Status::deadline_exceeded("no reply in time")))
    }

    fn hear_news(&mut self, response: WatchResponse) -> Result<(), Status> {
        still_watched(&response)?;
        for event in response.events {
            let Some(key) = event.kv else { continue };
            let Some(Named::News(other)) = self.names.read(&key.key) else { continue };
            if other == self.front {
                continue;
            }
            if event.kind == Event::GONE {
                self.others.remove(&other);
                continue;
            }
            if self.others.insert(other) {
                self.greet();
            }
            let Some((letter, rest)) = key.value.split_first_chunk() else { continue };
            let Some((has_more, bytes)) = rest.split_first() else { continue };
            let letter = u64::from_be_bytes(*letter);
            let heard = self.incoming.add_bytes(other, letter, *has_more != 0, bytes);
            for news in heard.into_iter().flatten() {
                self.remote.hear(self.ears, other, news);
            }
        }
        Ok(())
    }

    fn hear_changes(&mut self, response: WatchResponse) -> Result<(), Status> {
        still_watched(&response)?;
        let (mut keys, mut authors) = (Vec::new(), HashMap::new());
        for event in response.events {
            let Some(key) = event.kv else { continue };
            match self.names.read(&key.key) {
                Some(Named::Flushes) => {
                    let found = Some(&key).filter(|_| event.kind != Event::GONE);
                    self.names = self.names.after(Flushes::of(found).unwrap_or_default());
                }
                Some(Named::Ledger(front)) => drop(authors.insert(key.mod_revision, front)),
                Some(Named::Key(name)) => {
                    let row = match event.kind {
                        Event::GONE => Row::default(),
                        _ => names::read(&key.value, key.mod_revision),
                    };
                    keys.push((name, key.mod_revision, Became::of(&row)));
                }
                _ => {}
            }
        }
        for (key, revision, became) in keys {
            if authors.get(&revision) != Some(&self.front) {
                self.remote.hear(self.ears, self.front, News::Changed(key, became));
            }
        }
        Ok(())
    }
}

/// The next response of a watch; without a watch, it waits for ever.
async fn next(watch: &mut Option<Watch>) -> Result<Option<WatchResponse>, Status> {
    match watch {
        Some(watch) => watch.responses.message().await,
        None => std::future::pending().await,
    }
}
