//! Finds the rows of keys that have expired or were deleted. One front-end does it at a time: it takes the
//! right to, for some seconds by the store's clock, and renews it before they are over. So another one does
//! it soon if it hangs, though its connection lives.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::{SCHEMA, at_store_time, describe};
use crate::remote::row::Key;

/// Rows that are freed in one statement: of keys that were deleted, and of keys that have expired. They are
/// kept for longer than any statement may take, so that a fencing number that was drawn before is never given
/// later, and EXEC finds that a watched, absent key was there meanwhile.
const FREE: [&str; 2] = [
    "DELETE FROM keyfast.keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM keyfast.keys
        WHERE expires = '-infinity' AND since < {now} - interval '10 minutes'
        LIMIT 500 FOR UPDATE SKIP LOCKED))",
    "DELETE FROM keyfast.keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM keyfast.keys
        WHERE expires > '-infinity' AND expires < {now} - interval '10 minutes'
            AND expires < 'infinity'
        LIMIT 500 FOR UPDATE SKIP LOCKED))",
];
/// Rows that one of these statements frees, as long as there are so many, and how many statements run in a
/// row: news of other front-ends wait for them.
const FREE_ROWS: u64 = 500;
const FREE_STATEMENTS: usize = 100;
/// Front-ends that have gone.
const FREE_FRONTS: &str = "
    WITH gone AS (
        DELETE FROM keyfast.fronts WHERE seen < {now} - interval '1 day' RETURNING front
    )
    DELETE FROM keyfast.undone u USING gone WHERE u.front = gone.front";
/// Takes or renews the right, if it is free. While another front-end has it, nothing is written. A right
/// that ends later than any front-end asks for was taken before the store's clock was turned back.
const MAY_FREE: &str = "
    INSERT INTO keyfast.sweeper AS s (only_row, front, until)
    SELECT true, $1::bigint, {now} + interval '5 seconds'
    WHERE {now} <= timestamptz 'epoch' + $2::bigint * interval '1 us'
        AND NOT EXISTS (SELECT FROM keyfast.sweeper WHERE front <> $1::bigint
        AND until BETWEEN {now} AND {now} + interval '5 seconds')
    ON CONFLICT (only_row) DO UPDATE SET front = excluded.front, until = excluded.until
    WHERE s.front = excluded.front
        OR s.until NOT BETWEEN {now} AND {now} + interval '5 seconds'
    RETURNING front";
/// The rows of keys that have expired become those of deleted keys, so that no key gets a longer life after
/// the news that it has expired. A row that another front-end is about to change stays as it is.
const BURY: &str = "UPDATE keyfast.keys SET kind = 'none', value = '', expires = '-infinity',
        since = {now}, holder = '', is_lock = false
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM keyfast.keys
        WHERE expires > '-infinity' AND expires <= {now} AND expires < 'infinity'
            AND {now} <= timestamptz 'epoch' + $1::bigint * interval '1 us'
        LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING database, key";

/// Old versions of the front-ends' own rows, of which each batch adds one.
const DEAD_ROWS: &str = "SELECT pg_stat_get_dead_tuples('keyfast.fronts'::regclass)";

/// The right without that table, while a connection lives.
const MAY_FREE_WHILE_CONNECTED: &str = "SELECT pg_try_advisory_lock(7521094)";

/// How front-ends agree on which one does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// For some seconds.
    ByTime,
    /// For as long as a connection lives: the schema was made by an earlier version, and the user may not add
    /// a table to it.
    ByConnection,
}

impl Right {
    /// Adds the table to a schema that an earlier version has made.
    pub(super) async fn of(client: &Client) -> Result<Right, Error> {
        const IS_THERE: &str = "SELECT to_regclass('keyfast.sweeper') IS NOT NULL";
        const LOCK: &str = "SELECT pg_advisory_xact_lock(7521093)";
        if client.query_one(IS_THERE, &[]).await?.get(0) {
            return Ok(Right::ByTime);
        }
        // It is the last of the schema. One front-end at a time makes it.
        let table = SCHEMA.find("CREATE TABLE IF NOT EXISTS keyfast.sweeper").map_or("", |at| &SCHEMA[at..]);
        match client.batch_execute(&format!("{LOCK}; {table}")).await {
            Ok(()) => Ok(Right::ByTime),
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                tracing::warn!(
                    "The table keyfast.sweeper is missing and cannot be made: {}. Without it, a front-end \
                     that hangs may keep the others from finding expired keys",
                    describe(&error)
                );
                Ok(Right::ByConnection)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether this front-end is the one that does it, for the next seconds. It is not while the store's
    /// clock is later than `latest_us`.
    pub(super) async fn may_free(self, client: &Client, front: i64, latest_us: i64) -> Result<bool, Error> {
        match self {
            Right::ByTime => {
                Ok(client.query_opt(&at_store_time(MAY_FREE), &[&front, &latest_us]).await?.is_some())
            }
            Right::ByConnection => Ok(client.query_one(MAY_FREE_WHILE_CONNECTED, &[]).await?.get(0)),
        }
    }
}

/// How many old versions of the front-ends' own rows PostgreSQL has not removed.
pub(super) async fn dead_rows(client: &Client) -> Result<u64, Error> {
    Ok(u64::try_from(client.query_one(DEAD_ROWS, &[]).await?.get::<_, i64>(0)).unwrap_or(0))
}

/// Frees rows that are no longer needed.
pub(super) async fn free(client: &Client) -> Result<(), Error> {
    for free in FREE {
        for _ in 0..FREE_STATEMENTS {
            if client.execute(&at_store_time(free), &[]).await? < FREE_ROWS {
                break;
            }
        }
    }
    client.batch_execute(&at_store_time(FREE_FRONTS)).await
}

/// Deletes some keys that have expired, and returns them. If the store's clock is later than `latest_us`, it
/// was set, and none are.
pub(super) async fn bury_expired(client: &Client, latest_us: i64) -> Result<Vec<Key>, Error> {
    let rows = client.query(&at_store_time(BURY), &[&latest_us]).await?;
    Ok(rows.iter().map(|row| Key::new(row.get::<_, i32>(0) as usize, row.get(1))).collect())
}
