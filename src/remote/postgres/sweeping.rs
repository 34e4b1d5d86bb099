//! Finds the rows of keys that have expired or were deleted. One front-end does it at a time.

use tokio_postgres::{Client, Error};

use crate::remote::row::Key;

/// Rows that are freed in one statement: of keys that were deleted, and of keys that have expired. They are
/// kept for longer than any statement may take, so that a fencing number that was drawn before is never given
/// later, and EXEC finds that a watched, absent key was there meanwhile.
const FREE: [&str; 2] = [
    "DELETE FROM keyfast.keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM keyfast.keys
        WHERE expires = '-infinity' AND since < clock_timestamp() - interval '10 minutes'
        LIMIT 500 FOR UPDATE SKIP LOCKED))",
    "DELETE FROM keyfast.keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM keyfast.keys
        WHERE expires > '-infinity' AND expires < clock_timestamp() - interval '10 minutes'
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
        DELETE FROM keyfast.fronts WHERE seen < clock_timestamp() - interval '1 day' RETURNING front
    )
    DELETE FROM keyfast.undone u USING gone WHERE u.front = gone.front";
/// Held by the front-end that frees rows, while it is connected.
const MAY_FREE: &str = "SELECT pg_try_advisory_lock(7521094)";
/// The rows of keys that have expired become those of deleted keys, so that no key gets a longer life after
/// the news that it has expired. A row that another front-end is about to change stays as it is.
const BURY: &str = "UPDATE keyfast.keys SET kind = 'none', value = '', expires = '-infinity',
        since = clock_timestamp(), holder = '', is_lock = false
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM keyfast.keys
        WHERE expires > '-infinity' AND expires <= clock_timestamp() AND expires < 'infinity'
        LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING database, key";

/// Whether this front-end is the one that does it.
pub(super) async fn may_free(client: &Client) -> Result<bool, Error> {
    Ok(client.query_one(MAY_FREE, &[]).await?.get(0))
}

/// Frees rows that are no longer needed.
pub(super) async fn free(client: &Client) -> Result<(), Error> {
    for free in FREE {
        for _ in 0..FREE_STATEMENTS {
            if client.execute(free, &[]).await? < FREE_ROWS {
                break;
            }
        }
    }
    client.batch_execute(FREE_FRONTS).await
}

/// Deletes some keys that have expired, and returns them.
pub(super) async fn bury_expired(client: &Client) -> Result<Vec<Key>, Error> {
    let rows = client.query(BURY, &[]).await?;
    Ok(rows.iter().map(|row| Key::new(row.get::<_, i32>(0) as usize, row.get(1))).collect())
}
