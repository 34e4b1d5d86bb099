//! Keeps fencing numbers ahead of what other stores and servers have given.
//!
//! They are drawn from a sequence, which only grows, but for one that was restored from a backup. So each
//! front-end that connects sees to it that it is not behind the clock, in microseconds: numbers are drawn
//! more slowly than that. A lock that comes from another server brings its number, and goes beyond that.
//!
//! One front-end at a time does so. What it cannot keep out is that others draw numbers meanwhile: a sequence
//! that is set could go back behind these. So it is set only if it is behind by more numbers than can be
//! drawn while one statement runs. Otherwise the numbers in between are drawn.

use tokio_postgres::{Client, Error};

use super::LOCK_KEY;

/// More numbers than are drawn in the store while one statement runs. To draw them takes some 20 ms.
const DRAWN_MAX: i64 = 50_000;

const GO_BEYOND: &str = "
    WITH drawn AS MATERIALIZED (
        SELECT nextval('keyfast.fence') AS number FROM (SELECT pg_advisory_xact_lock({lock}) OFFSET 0) locked
    )
    SELECT CASE WHEN $1::bigint - number > {drawn_max}::bigint THEN setval('keyfast.fence', $1::bigint)
        ELSE (SELECT max(nextval('keyfast.fence')) FROM generate_series(1, $1::bigint - number)) END
    FROM drawn";

/// Lets the numbers that are drawn from now on be larger than this one.
pub(super) async fn go_beyond(client: &Client, number: i64) -> Result<(), Error> {
    let statement = GO_BEYOND.replace("{lock}", &LOCK_KEY.to_string());
    client.query_one(&statement.replace("{drawn_max}", &DRAWN_MAX.to_string()), &[&number]).await?;
    Ok(())
}
