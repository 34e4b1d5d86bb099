//! Statements about all keys. They run on a connection of their own, so that no batch waits for them.
//!
//! Each one writes a message into the log of PostgreSQL, so that it waits for the replicas: a primary that
//! was deposed answers nothing.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Transaction};

use super::confirmations::{DURABILITY, expect_no_less};
use super::opening::{BARRIER, Closing, open};
use super::timekeeping::{execute, query};
use super::{check_schema, describe, is_lost, is_missing};
use crate::remote::Remote;
use crate::remote::all_keys::{LOCKS_MAX, NAMES_MAX, NotTold, Question, Told, end_of_place, next_place};
use crate::remote::clock::StoreClock;

const COUNT: &str = "
    SELECT count(*) FROM keyfast.keys WHERE database = {numbers}[$1::int] AND expires > {now}";
const NAMES: &str = "
    SELECT key, kind, slot FROM keyfast.keys
    WHERE database = {numbers}[$1::int] AND expires > {now} LIMIT $2";
/// The last one of so many keys, and all keys before it and in its place.
const SOME: &str = "
    SELECT key, kind, slot FROM keyfast.keys
    WHERE database = {numbers}[$1::int] AND slot >= $2 AND expires > {now} AND slot <= (
        SELECT max(slot) | $4::bigint FROM (
            SELECT slot FROM keyfast.keys
            WHERE database = {numbers}[$1::int] AND slot >= $2 AND expires > {now}
            ORDER BY slot LIMIT $3
        ) page
    )";
/// Columns as those of a batch, and the key.
const LOCKS: &str = "
    SELECT 0::smallint, 0::bigint, version, true, kind, value,
        CASE WHEN expires < 'infinity' THEN (extract(epoch FROM expires) * 1000)::bigint ELSE -1 END,
        is_lock, holder, fence, (extract(epoch FROM since) * 1000)::bigint, key
    FROM keyfast.keys WHERE database = {numbers}[$1::int] AND is_lock AND expires > {now}
    ORDER BY since LIMIT $2";
/// One flush at a time. The next statement sees what the one before has written.
const BEFORE_FLUSH: &str = "SELECT FROM keyfast.databases FOR UPDATE";
/// Gives a database, or all, new numbers, under which there are no rows. That is one moment for all clients.
/// A batch that began before it writes under the old number: it comes before the flush, as do all that see
/// what it has written. Each batch that began later sees the new number, and so does every request of a
/// client that knows of such a batch.
const FLUSH: &str = "
    WITH flushed AS (
        INSERT INTO keyfast.flushed (database, number, since)
        SELECT named, numbers[named], {now}
        FROM keyfast.databases, generate_subscripts(numbers, 1) named WHERE $1::int IS NULL OR named = $1
    )
    UPDATE keyfast.databases SET numbers[:] = ARRAY(
        SELECT CASE WHEN $1 IS NULL OR named = $1 THEN nextval('keyfast.number')::int ELSE numbers[named] END
        FROM generate_subscripts(numbers, 1) named ORDER BY named)";

/// How often a question looks whether the time is known.
const PAUSE: Duration = Duration::from_millis(10);

/// A connection for questions.
pub(in crate::remote) struct Asking {
    client: Client,
    _closing: Closing,
}

pub(super) async fn connect(remote: &Remote, last: Option<Asking>) -> Result<Asking, String> {
    // Before the first connection for batches, the time of the store is not known.
    while !remote.clock.is_known() {
        sleep(PAUSE).await;
    }
    if let Some(asking) = last.filter(|asking| !asking.client.is_closed()) {
        return Ok(asking);
    }
    let (mut client, socket) = open(remote, |_message| ()).await?;
    let _closing = Closing::of(socket);
    // A front-end that has just been started may be the first.
    check_schema(&mut client, remote.settings.databases).await.map_err(|wrong| wrong.0)?;
    // Counting may read the whole table.
    client.batch_execute("SET enable_seqscan = on").await.map_err(|error| describe(&error))?;
    Ok(Asking { client, _closing })
}

pub(super) async fn ask(
    remote: &Remote,
    mut asking: Asking,
    question: Question,
) -> (Result<Told, NotTold>, Option<Asking>) {
    match told(remote, &mut asking.client, question).await {
        Ok(told) => (Ok(told), Some(asking)),
        Err(Unanswered::Weak(why)) => (Err(NotTold::NotDone(why.into())), Some(asking)),
        Err(Unanswered::Failed(error)) if is_lost(&error) => (Err(NotTold::Unknown), None),
        Err(Unanswered::Failed(error)) => {
            // If the tables are missing, the next connection makes them.
            let left = Some(asking).filter(|_| !is_missing(&error));
            (Err(NotTold::NotDone(describe(&error).into())), left)
        }
    }
}

/// Why a question has no answer.
enum Unanswered {
    /// The store has said so, or is silent.
    Failed(Error),
    /// Too few replicas would confirm it. It is not committed.
    Weak(String),
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Unanswered {
        Unanswered::Failed(error)
    }
}

async fn told(remote: &Remote, client: &mut Client, question: Question) -> Result<Told, Unanswered> {
    let tx = client.transaction().await?;
    let (mut told, clock) = (Told::default(), &remote.clock);
    match question {
        Question::Count(database) => {
            let rows = query(&tx, clock, COUNT, &[&(database as i32)]).await?;
            told.count = rows.first().map_or(0, |row| usize::try_from(row.get::<_, i64>(0)).unwrap_or(0));
        }
        Question::Names(database) => {
            let limit = NAMES_MAX as i64 + 1;
            read(&mut told, query(&tx, clock, NAMES, &[&(database as i32), &limit]).await?);
        }
        Question::Some { database, from, keys, with_types: _ } => {
            let limit = keys.min(NAMES_MAX) as i64;
            let last = read(&mut told, some(&tx, clock, (database, from, limit)).await?);
            told.next = last.filter(|_| told.keys.len() as i64 >= limit).and_then(next_place);
        }
        Question::Any { database, from } => {
            for from in [from, 0] {
                if told.keys.is_empty() {
                    read(&mut told, some(&tx, clock, (database, from, 1)).await?);
                }
            }
        }
        Question::Locks(database) => {
            for row in query(&tx, clock, LOCKS, &[&(database as i32), &(LOCKS_MAX as i64)]).await? {
                told.locks.push((row.get(11), super::read(&row)));
            }
        }
        Question::Flush(database) => {
            let database = database.map(|database| database as i32);
            tx.batch_execute(BEFORE_FLUSH).await?;
            execute(&tx, clock, FLUSH, &[&database]).await?;
        }
    }
    let durability = tx.query_one(&format!("{BARRIER}, {DURABILITY}"), &[]).await?;
    expect_no_less(&remote.health.confirmations, durability.get(1)).map_err(Unanswered::Weak)?;
    tx.commit().await?;
    Ok(told)
}

/// Some keys from a slot on.
async fn some(
    tx: &Transaction<'_>,
    clock: &StoreClock,
    (database, from, limit): (u32, i64, i64),
) -> Result<Vec<tokio_postgres::Row>, Error> {
    let arguments: [&(dyn ToSql + Sync); 4] = [&(database as i32), &from, &limit, &end_of_place(0)];
    query(tx, clock, SOME, &arguments).await
}

/// Reads keys; returns the greatest of their slots.
fn read(told: &mut Told, rows: Vec<tokio_postgres::Row>) -> Option<i64> {
    told.keys.extend(rows.iter().map(|row| (row.get::<_, Vec<u8>>(0), row.get::<_, String>(1))));
    rows.iter().map(|row| row.get(2)).max()
}
