//! Finds the rows of keys that have expired or were deleted, and those of databases before they were flushed.
//! One front-end does it at a time: it takes the right to, for some seconds by the store's clock, and renews
//! it before they are over. So another one does it soon if it hangs, though its connection lives.

use tokio_postgres::{Client, Row};

use super::timekeeping::{execute, query};
use super::{Wrong, in_time, whole_statement};
use crate::remote::Remote;
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
/// Flushes that are long ago: EXEC no longer looks at what was there before.
const FORGET_FLUSHES: &str = "DELETE FROM keyfast.flushed WHERE since < {now} - interval '1 minute'";
/// A number under which there are rows, and which no database has or had until a moment ago. The numbers of
/// all rows are found one after the other, by the index.
const FIND_FLUSHED: &str = "
    WITH RECURSIVE found(number) AS (
        (SELECT database FROM keyfast.keys ORDER BY database LIMIT 1)
        UNION ALL
        SELECT (SELECT database FROM keyfast.keys WHERE database > number ORDER BY database LIMIT 1)
        FROM found WHERE number IS NOT NULL
    )
    SELECT number FROM found WHERE number <> ALL ({numbers}::int[])
        AND number <> ALL (ARRAY(SELECT number FROM keyfast.flushed)) LIMIT 1";
/// Deletes some rows of such a number, from a slot on. (In a schema that was made anew, a database may have
/// the number again.)
const FREE_FLUSHED: &str = "
    DELETE FROM keyfast.keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM keyfast.keys WHERE database = $1 AND slot >= $2 ORDER BY slot
        LIMIT 500 FOR UPDATE SKIP LOCKED))
        AND $1 <> ALL ({numbers}::int[])
    RETURNING slot";
/// Takes or renews the right, if it is free. While another front-end has it, nothing is written. A right
/// that ends later than any front-end asks for was taken before the store's clock was turned back.
const MAY_FREE: &str = "
    INSERT INTO keyfast.sweeper AS s (only_row, front, until)
    SELECT true, $1::bigint, {now} + interval '5 seconds'
    WHERE NOT EXISTS (SELECT FROM keyfast.sweeper WHERE front <> $1::bigint
        AND until BETWEEN {now} AND {now} + interval '5 seconds')
    ON CONFLICT (only_row) DO UPDATE SET front = excluded.front, until = excluded.until
    WHERE s.front = excluded.front
        OR s.until NOT BETWEEN {now} AND {now} + interval '5 seconds'
    RETURNING front";
/// The row of an expired key becomes that of a deleted key. So no key gets a longer life after the news that
/// it has expired. A row that another front-end is about to change stays as it is.
const BURY: &str = "UPDATE keyfast.keys SET kind = 'none', value = '', expires = '-infinity',
        since = {now}, holder = '', is_lock = false
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM keyfast.keys
        WHERE expires > '-infinity' AND expires <= {now} AND expires < 'infinity'
        LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING array_position({numbers}, database), key";
/// Rows that one of them finds, as long as there are so many, and how many run in a row if none of the rows
/// is that of a key that clients see.
const BURY_ROWS: usize = 500;
const BURY_STATEMENTS: usize = 10;

/// Old versions of the front-ends' own rows, of which each batch adds one.
const DEAD_ROWS: &str = "SELECT pg_stat_get_dead_tuples('keyfast.fronts'::regclass)";

/// Whether this front-end is the one that does it, for the next seconds.
pub(super) async fn may_free(client: &Client, remote: &Remote, front: i64) -> Result<bool, Wrong> {
    let rows = in_time(remote, query(client, &remote.clock, MAY_FREE, &[&front])).await?;
    Ok(!rows.is_empty())
}

/// How many old versions of the front-ends' own rows PostgreSQL has not removed.
pub(super) async fn dead_rows(client: &Client, remote: &Remote) -> Result<u64, Wrong> {
    let row = in_time(remote, client.query_one(DEAD_ROWS, &[])).await?;
    Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
}

/// Frees rows that are no longer needed.
pub(super) async fn free(client: &Client, remote: &Remote) -> Result<(), Wrong> {
    for free in FREE {
        for _ in 0..FREE_STATEMENTS {
            if in_time(remote, execute(client, &remote.clock, free, &[])).await? < FREE_ROWS {
                break;
            }
        }
    }
    in_time(remote, execute(client, &remote.clock, FREE_FRONTS, &[])).await.map(drop)
}

/// Deletes some keys that have expired, and returns those that clients may have seen: a key that was flushed
/// does not expire for them.
pub(super) async fn bury_expired(client: &Client, remote: &Remote) -> Result<Vec<Key>, Wrong> {
    for _ in 0..BURY_STATEMENTS {
        let rows = in_time(remote, query(client, &remote.clock, BURY, &[])).await?;
        let key = |row: &Row| Some(Key::new(row.get::<_, Option<i32>>(0)? as usize, row.get(1)));
        let keys: Vec<Key> = rows.iter().filter_map(key).collect();
        if !keys.is_empty() || rows.len() < BURY_ROWS {
            return Ok(keys);
        }
    }
    Ok(Vec::new())
}

/// The rows of a database before it was flushed, as far as they are not deleted yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushed {
    number: i32,
    /// The rows of lower slots are deleted. To look at them again would take ever more time.
    from: i64,
}

impl Flushed {
    /// Looks for such rows.
    pub(super) async fn find(client: &Client, remote: &Remote) -> Result<Option<Flushed>, Wrong> {
        in_time(remote, execute(client, &remote.clock, FORGET_FLUSHES, &[])).await?;
        let found = in_time(remote, client.query_opt(&whole_statement(FIND_FLUSHED), &[])).await?;
        Ok(found.map(|row| Flushed { number: row.get(0), from: 0 }))
    }

    /// Deletes some of them. Returns those that are left; `None` if there are no more.
    pub(super) async fn free_some(self, client: &Client, remote: &Remote) -> Result<Option<Flushed>, Wrong> {
        let statement = whole_statement(FREE_FLUSHED);
        let rows = in_time(remote, client.query(&statement, &[&self.number, &self.from])).await?;
        let last = rows.iter().map(|row| row.get(0)).max();
        Ok(last.filter(|_| rows.len() as u64 >= FREE_ROWS).map(|from| Flushed { from, ..self }))
    }
}
