//! The connection on which a front-end receives the news of others, and sends its own. It also frees rows
//! and finds keys that have expired: one front-end at a time does.
//!
//! Front-ends tell of changed keys only while another one wants to know them. So there is a moment from which
//! on they do, and clients that keep copies of keys must not miss a change before it. Each front-end that
//! hears of a new want says from when on it serves it ([`News::Tells`]). Then the other one tells its clients
//! that all keys may have changed. It does so, too, when a connection begins: news before were not received.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Error, Statement};

use super::opening::{Closing, open};
use super::sweeping::{Flushed, may_free};
use super::{Wrong, in_time, statement_patience, sweeping, timed_statement, timekeeping};
use crate::remote::Remote;
use crate::remote::clock::{Window, own_us};
use crate::remote::news::{Ears, HEARTBEAT, Incoming, News, Wants, cut, next_letter};
use crate::remote::row::Key;
use crate::remote::seal::Seal;

/// Notes the time in the front-end's own row, unless a batch is about to.
const SEEN: &str = "
    UPDATE keyfast.fronts SET seen = {now} WHERE front = (
        SELECT front FROM keyfast.fronts WHERE front = $1 FOR NO KEY UPDATE SKIP LOCKED)";
/// Sends news. It also reads the time, and which table the front-ends have: another one if the schema was
/// dropped and made anew. Then there is another secret, too.
const NOTIFY: &str = "
    SELECT pg_notify('keyfast', piece), (extract(epoch FROM clock_timestamp() + ahead) * 1000000)::bigint,
        (extract(epoch FROM ahead) * 1000)::bigint, to_regclass('keyfast.fronts')::oid
    FROM unnest($1::text[]) piece, keyfast.clock";
const SECRET: &str = "SELECT secret FROM keyfast.secret";
const MAKE_SECRET: &str =
    "INSERT INTO keyfast.secret (is_only, secret) VALUES (true, $1) ON CONFLICT DO NOTHING";
/// Bytes of the secret.
const SECRET_BYTES: usize = 32;
/// How many heartbeats are between two looks for rows to free.
const FREE_EVERY: u32 = 2;
/// Old versions of front-ends' rows that are normal. With three times as many, a batch takes twice as long.
const DEAD_ROWS_MAX: u64 = 5_000;
/// How long batches have the store for themselves after some rows of flushed databases were deleted.
const FLUSHED_EVERY: Duration = Duration::from_millis(20);
/// Which of these keys are not as they were seen: another front-end may have ended before it could tell of
/// its last change, and a key may have expired.
const CHANGED: &str = "
    SELECT place - 1
    FROM unnest($1::int[], $2::bigint[], $3::bytea[], $4::bigint[])
        WITH ORDINALITY s(named, slot, key, seen, place)
    LEFT JOIN keyfast.keys k
        ON k.database = {numbers}[s.named] AND k.slot = s.slot AND k.key = s.key AND k.expires > {now}
    WHERE COALESCE(k.version, 0) <> s.seen";
/// How often the keys are looked at for which clients wait, and how many at once.
const GLANCE: Duration = Duration::from_millis(800);
const GLANCE_KEYS_MAX: usize = 1_000;
/// How often keys are looked for that have expired.
const EXPIRED_EVERY: Duration = Duration::from_millis(100);

/// What has arrived.
#[derive(Debug, Default)]
struct Inbox {
    pieces: Mutex<VecDeque<String>>,
    woken: Notify,
    /// Whether a piece had no room.
    has_lost: AtomicBool,
    is_over: AtomicBool,
}

/// Pieces that may wait. If there are more, later ones are lost.
const PIECES_MAX: usize = 100_000;

/// Receives and sends news until the process ends.
pub(super) async fn exchange(remote: &Arc<Remote>, ears: &impl Ears) {
    let mut complaint = String::new();
    let (mut incoming, mut letter) = (Incoming::default(), 0);
    loop {
        match listen(remote, ears, (&mut incoming, &mut letter)).await {
            // The connection for batches has said so already.
            Err(_) if !remote.health.is_connected.load(Ordering::Relaxed) => {}
            Err(why) if why != complaint => {
                tracing::warn!("No news of other front-ends from the store: {why}");
                complaint = why;
            }
            Err(_) => {}
            Ok(()) => complaint.clear(),
        }
        sleep(HEARTBEAT / 4).await;
    }
}

/// `incoming` and the number of the last letter outlast a connection.
async fn listen(
    remote: &Arc<Remote>,
    ears: &impl Ears,
    (incoming, letter): (&mut Incoming, &mut u64),
) -> Result<(), String> {
    let Some(front) = remote.front() else { return Err("not connected yet".to_owned()) };
    let patience = remote.settings.patience;
    let inbox = Arc::<Inbox>::default();
    let arriving = Arc::clone(&inbox);
    let opened = timeout(patience, open(remote, move |message| arriving.take(message)));
    let (client, socket) = opened.await.map_err(|_elapsed| "no reply in time")??;
    let _closing = Closing::of(socket);
    let seal = in_time(remote, seal(&client)).await.map_err(|Wrong(why)| {
        format!("keyfast.secret cannot be used, by which front-ends know each other: {why}")
    })?;
    let served = serve(remote, ears, (front, &seal), &client, (&inbox, incoming, letter)).await;
    // Those that keep copies of keys hear at once that there are no more news.
    all_may_have_changed(remote, ears);
    served.map_err(|wrong| wrong.0)
}

/// The seal of the store's front-ends. The first one makes the secret.
async fn seal(client: &Client) -> Result<Seal, Error> {
    if let Some(row) = client.query_opt(SECRET, &[]).await? {
        return Ok(Seal::new(row.get(0)));
    }
    let mut secret = [0; SECRET_BYTES];
    // Without random numbers from the system, another front-end may make it; until then there is no news.
    if getrandom::fill(&mut secret).is_ok() {
        client.execute(MAKE_SECRET, &[&secret.as_slice()]).await?;
    }
    Ok(Seal::new(client.query_one(SECRET, &[]).await?.get(0)))
}

impl Inbox {
    /// Takes what has arrived; `None` if the connection has ended.
    fn take(&self, message: Option<AsyncMessage>) {
        match message {
            Some(AsyncMessage::Notification(notification)) => {
                let mut pieces = self.pieces.lock();
                match pieces.len() < PIECES_MAX {
                    true => pieces.push_back(notification.payload().to_owned()),
                    false => self.has_lost.store(true, Ordering::Relaxed),
                }
            }
            Some(_) => return,
            None => self.is_over.store(true, Ordering::Relaxed),
        }
        self.woken.notify_one();
    }
}

/// News may have been lost.
fn all_may_have_changed(remote: &Remote, ears: &impl Ears) {
    remote.look_again();
    ears.hear(News::Flushed(None));
}

/// Warns if PostgreSQL keeps what it usually removes at once: each batch reads all of it.
fn mind_dead_rows(remote: &Remote, dead_rows: u64) {
    let before = remote.health.dead_rows.swap(dead_rows, Ordering::Relaxed);
    if dead_rows >= DEAD_ROWS_MAX && before < DEAD_ROWS_MAX {
        tracing::warn!(
            "PostgreSQL keeps {dead_rows} old versions of the rows of keyfast.fronts, so batches become \
             slower: a transaction in its database has been open for long, or a backup is being made"
        );
    }
}

/// Those of these keys that are not as they were seen.
async fn changed_of<'k>(
    client: &Client,
    remote: &Remote,
    look: &Statement,
    seen: &'k [(Key, i64)],
) -> Result<Vec<&'k Key>, Wrong> {
    let named: Vec<i32> = seen.iter().map(|(key, _)| key.database as i32).collect();
    let slots: Vec<i64> = seen.iter().map(|(key, _)| key.slot()).collect();
    let names: Vec<&[u8]> = seen.iter().map(|(key, _)| &*key.name).collect();
    let versions: Vec<i64> = seen.iter().map(|(_, version)| *version).collect();
    let Window { estimate_us, latest_us } = remote.clock.window();
    let arguments: [&(dyn ToSql + Sync); 6] = [&named, &slots, &names, &versions, &estimate_us, &latest_us];
    let rows = in_time(remote, client.query(look, &arguments)).await?;
    Ok(rows.iter().filter_map(|row| Some(&seen.get(row.get::<_, i64>(0) as usize)?.0)).collect())
}

async fn serve(
    remote: &Arc<Remote>,
    ears: &impl Ears,
    (front, seal): (i64, &Seal),
    client: &Client,
    (inbox, incoming, letter): (&Inbox, &mut Incoming, &mut u64),
) -> Result<(), Wrong> {
    in_time(remote, client.batch_execute("LISTEN keyfast")).await?;
    // Changes before this were not received, and those that this front-end has made may not have been sent.
    all_may_have_changed(remote, ears);
    remote.outgoing.tell(&News::Flushed(None));
    let notify = in_time(remote, client.prepare(NOTIFY)).await?;
    let note_seen = in_time(remote, client.prepare(&timed_statement(SEEN, 2))).await?;
    let look = in_time(remote, client.prepare(&timed_statement(CHANGED, 5))).await?;
    let (mut beats, mut incarnation) = (0, None);
    let mut beaten: Option<Instant> = None;
    let (mut frees, mut wanted) = (false, Wants::default());
    // How many batches had noted the time, and since when news of this front-end have not come back to it.
    let (mut noted, mut unheard): (_, Option<Instant>) = (0, None);
    let (mut looked, mut glanced) = (Instant::now(), Instant::now());
    let (mut flushed, mut freed): (Option<Flushed>, _) = (None, Instant::now());
    loop {
        let wants_keys = remote.has_listeners() || ears.wants_keys();
        let wants = Wants { keys: wants_keys, expired: ears.wants_keys() || ears.wants_expired() };
        if beaten.is_none_or(|beaten| beaten.elapsed() >= HEARTBEAT) || wants.more_than(wanted) {
            wanted = wants;
            beaten = Some(Instant::now());
            remote.outgoing.tell(&News::Here(wants));
            remote.tidy_fronts();
            beats += 1;
            if beats % FREE_EVERY == 0 {
                frees = may_free(client, remote, front).await?;
                match frees {
                    true => sweeping::free(client, remote).await?,
                    false => flushed = None,
                }
                if frees && flushed.is_none() {
                    flushed = Flushed::find(client, remote).await?;
                }
                mind_dead_rows(remote, sweeping::dead_rows(client, remote).await?);
            }
            let batches = remote.health.batches.load(Ordering::Relaxed);
            if std::mem::replace(&mut noted, batches) == batches {
                let Window { estimate_us, latest_us } = remote.clock.window();
                in_time(remote, client.execute(&note_seen, &[&front, &estimate_us, &latest_us])).await?;
            }
        }
        let looks_for_expired = frees && (wants.expired || remote.outgoing.wanted().expired);
        if looks_for_expired && looked.elapsed() >= EXPIRED_EVERY {
            looked = Instant::now();
            for key in sweeping::bury_expired(client, remote).await? {
                remote.changed_elsewhere(&key);
                let news = News::Expired(key);
                remote.outgoing.tell(&news);
                ears.hear(news);
            }
        }
        if glanced.elapsed() >= GLANCE {
            glanced = Instant::now();
            for seen in remote.seen().chunks(GLANCE_KEYS_MAX) {
                let changed = changed_of(client, remote, &look, seen).await?;
                changed.into_iter().for_each(|key| remote.changed_elsewhere(key));
            }
        }
        if let Some(rows) = flushed
            && freed.elapsed() >= FLUSHED_EVERY
        {
            flushed = match rows.free_some(client, remote).await? {
                None => Flushed::find(client, remote).await?,
                rows => rows,
            };
            freed = Instant::now();
        }
        let bytes = remote.outgoing.take();
        if !bytes.is_empty() {
            *letter = next_letter(*letter, remote.clock.now_ms());
            let (pieces, sent_us) = (cut(front, *letter, &bytes, seal), own_us());
            let sent = in_time(remote, client.query(&notify, &[&pieces])).await?;
            unheard = unheard.or_else(|| Some(Instant::now()));
            if let Some(row) = sent.first() {
                // The numbers of letters are times of the store, also of a front-end that asks it nothing.
                remote.clock.learn(row.get(1), sent_us, own_us());
                remote.health.clock_ahead_ms.store(row.get(2), Ordering::Relaxed);
                let table: u32 = row.get(3);
                if *incarnation.get_or_insert(table) != table {
                    return Ok(());
                }
            }
            if remote.clock.is_in_doubt() {
                let kept = timeout(statement_patience(remote), timekeeping::keep(remote, client)).await;
                kept.map_err(|_elapsed| Wrong("no reply in time".to_owned()))??;
            }
        }
        if unheard.is_some_and(|since| since.elapsed() > statement_patience(remote)) {
            return Err(Wrong("what this front-end sends does not come back to it".to_owned()));
        }
        if inbox.has_lost.swap(false, Ordering::Relaxed) {
            all_may_have_changed(remote, ears);
        }
        let arrived: Vec<String> = inbox.pieces.lock().drain(..).collect();
        for piece in arrived {
            let Some((other, all)) = incoming.add(&piece, seal, remote.clock.now_ms()) else { continue };
            if other == front {
                unheard = None;
                continue;
            }
            for news in all {
                match &news {
                    News::Here(wants) => {
                        let heard = remote.outgoing.hear(other, *wants);
                        if heard.is_new {
                            // It does not know of this one yet.
                            beaten = None;
                        }
                        if heard.wants_more {
                            remote.outgoing.tell(&News::Tells(other));
                        }
                    }
                    News::Tells(told) => {
                        if *told == front {
                            ears.hear(News::Flushed(None));
                        }
                    }
                    _ => remote.hear(ears, other, news),
                }
            }
        }
        if inbox.is_over.load(Ordering::Relaxed) || remote.front() != Some(front) {
            return Ok(());
        }
        if beaten.is_none() {
            continue;
        }
        let left = HEARTBEAT.saturating_sub(beaten.map_or(HEARTBEAT, |beaten| beaten.elapsed()));
        let left = match looks_for_expired {
            true => left.min(EXPIRED_EVERY.saturating_sub(looked.elapsed())),
            false => left,
        };
        let left = match wants_keys {
            true => left.min(GLANCE.saturating_sub(glanced.elapsed())),
            false => left,
        };
        let left = match flushed {
            Some(_) => left.min(FLUSHED_EVERY.saturating_sub(freed.elapsed())),
            None => left,
        };
        tokio::select! {
            () = inbox.woken.notified() => {}
            () = remote.outgoing.work.notified() => {}
            () = sleep(left) => {}
        }
    }
}
