//! Keeps the store's time, whatever the clock of the server that keeps its rows.
//!
//! Locks expire by the store's time. After a failover that would be the clock of another machine: if it is
//! ahead, locks go early and have two holders; if it is behind, they last for too long. So the store's time
//! is the server's clock and `ahead`, of the one row of `keyfast.clock`. It is set such that time goes on as
//! it was:
//!
//! - Time never goes back. Each batch notes its time in the front-end's own row, and each second without one
//!   does, too. So the store itself knows the latest time that any front-end has seen.
//! - A front-end that knew the time before, and has counted on by its own clock, sees whether the server is
//!   further ahead than it may be, or behind. It finds that out when it connects, by the answer to each batch
//!   and each second.
//! - One that has just been started cannot know. If the server's clock is further ahead of what others have
//!   noted than it may jump, and locks have expiries, it waits for some seconds for a front-end that knows.
//!   If there is none, it takes the earlier of the server's clock and its own machine's.
//!
//! **Why a lock has one holder whatever the server's clock does meanwhile.** A statement may wait for a row,
//! or for the replicas, while the clock is set. So no statement judges by the clock as it is when it goes on:
//!
//! - It has one [`MOMENT`]: when it began, which PostgreSQL notes before it waits for anything. It judges all
//!   keys by that, and notes it as seen.
//! - The front-end says when it may begin at the latest, and its estimate of the time ([`Window`]), which is
//!   never ahead of the time as it was. A batch that begins later does nothing. Other statements take the
//!   estimate instead. So do all that begin before it by more than a clock may be corrected (`BACK_MAX_US`).
//! - So the moment is neither before the request was sent nor further ahead than the clock may jump, whatever
//!   the clock shows. A key that is dead at such a moment is dead by the time as it was. One that is alive
//!   may have died since, while the statement waited. That is no harm: it is as if the request came before
//!   that, and where it was too late, the row says so, under its lock. For who learns that a key has expired
//!   has written its row first (`bury.sql`), or has taken it.
//! - A lifetime begins when the row is written ([`WRITES_AT`]), but not before the moment, nor later than the
//!   window says. So a lock lives from the moment on for as long as it should, also if the clock is set back
//!   while the statement waits, and for about a second longer at most.
//! - `ahead` is read in the snapshot of the statement, so it belongs to the clock by which it began. If
//!   both are set in between, the moment is outside of the window, and the same holds.
//! - What is noted as seen is such a moment, so it is a floor that no clock has raised.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, GenericClient, Row};

use super::{Wrong, timed_statement};
use crate::remote::Remote;
use crate::remote::clock::{BACK_MAX_US, OnJump, StoreClock, Window, own_us, system_us};

/// Whether a statement begins in time. `c` is the row of `keyfast.clock`.
pub(super) const IS_IN_TIME: &str = "statement_timestamp() + c.ahead <= {latest}";
/// The time of the store at which a statement began: `{moment}` in statements.
pub(super) const MOMENT: &str = "
    CASE WHEN {is_in_time} AND statement_timestamp() + c.ahead >= {estimate} - interval '100 ms'
        THEN statement_timestamp() + c.ahead ELSE {estimate} END";
/// The same where there is no such row: `{now}`.
pub(super) const NOW: &str = "(SELECT {moment} FROM keyfast.clock c)";
/// When a lifetime begins: `{writes_at}`. `p` is what is written.
pub(super) const WRITES_AT: &str = "greatest(p.moment, least(clock_timestamp() + p.ahead, {latest}))";

/// The server's clock; how far the store's time is ahead of it; whether it was set for another server; how
/// often it was set; the latest time that a front-end has seen; whether a key expires later; and whether
/// another front-end is connected.
const READ: &str = "
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
        (extract(epoch FROM ahead) * 1000000)::bigint, server <> pg_postmaster_start_time(), changes,
        (extract(epoch FROM seen) * 1000000)::bigint,
        EXISTS (SELECT FROM keyfast.keys k WHERE k.expires > c.seen AND k.expires < 'infinity'),
        EXISTS (SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid()
            AND datname = current_database() AND application_name LIKE 'keyfast %')
    FROM (SELECT *, (SELECT max(seen) FROM keyfast.fronts) AS seen FROM keyfast.clock) c";
/// Sets it, unless another front-end has done so since it was read.
const SET: &str = "
    UPDATE keyfast.clock SET ahead = $1::bigint * interval '1 us', server = pg_postmaster_start_time(),
        changes = changes + 1
    WHERE changes = $2::bigint";
/// How often a front-end that another one was faster than reads it again.
const TRIES: u32 = 10;
/// How long a front-end that cannot know the time waits for one that does.
const WAIT: Duration = Duration::from_secs(4);

/// What the store has about its time, in microseconds since 1970.
struct Found {
    server_us: i64,
    ahead_us: i64,
    is_other_server: bool,
    changes: i64,
    seen_us: Option<i64>,
    has_expiries: bool,
    has_others: bool,
}

impl Found {
    async fn read(client: &Client) -> Result<Found, Wrong> {
        let row = client.query_one(READ, &[]).await?;
        Ok(Found {
            server_us: row.get(0),
            ahead_us: row.get(1),
            is_other_server: row.get(2),
            changes: row.get(3),
            seen_us: row.get(4),
            has_expiries: row.get(5),
            has_others: row.get(6),
        })
    }

    /// The store's time, if nothing is set.
    fn now_us(&self) -> i64 {
        self.server_us + self.ahead_us
    }
}

/// Reads the store's time, and sets it if it has not gone on as it was.
pub(super) async fn keep(remote: &Remote, client: &Client) -> Result<(), Wrong> {
    for _ in 0..TRIES {
        let sent_us = own_us();
        let found = Found::read(client).await?;
        let received_us = own_us();
        let time_us = judge(remote, &found, sent_us)?;
        let ahead_us = time_us - found.server_us;
        if ahead_us != found.ahead_us || found.is_other_server {
            if client.execute(SET, &[&ahead_us, &found.changes]).await? == 0 {
                continue;
            }
            if ahead_us != found.ahead_us {
                let set_ms = (found.now_us() - time_us) / 1_000;
                tracing::warn!(
                    "The store's clock is {} ms {} what it was: Keyfast keeps the time as it was",
                    set_ms.abs(),
                    if set_ms > 0 { "ahead of" } else { "behind" }
                );
            }
        }
        remote.clock.set(time_us, received_us);
        return Ok(());
    }
    Err(Wrong("other front-ends keep setting its time".to_owned()))
}

/// The time that the store has, in microseconds since 1970.
fn judge(remote: &Remote, found: &Found, sent_us: i64) -> Result<i64, Wrong> {
    let (clock, now_us) = (&remote.clock, found.now_us());
    let seen_us = found.seen_us.unwrap_or(i64::MIN);
    if !clock.is_known() {
        return first_time(remote, found);
    }
    let jump_max_us = remote.settings.clock_jump_max.as_micros() as i64;
    if now_us > clock.window().latest_us {
        // The time when the clock was read, or somewhat before.
        let time_us = clock.unpaused_us(sent_us).max(seen_us);
        if now_us - time_us <= jump_max_us {
            // Others have seen about this time. So it is this front-end that has counted wrong.
            return Ok(now_us);
        }
        if remote.settings.on_clock_jump == OnJump::Refuse {
            return Err(ahead_of(now_us - time_us, "what it was"));
        }
        return Ok(time_us);
    }
    let least_us = clock.at_us(sent_us);
    let is_behind = found.is_other_server || now_us < least_us - BACK_MAX_US;
    Ok(now_us.max(seen_us).max(if is_behind { least_us } else { i64::MIN }))
}

/// The time for a front-end that has just been started. If it is in doubt, others may know it.
fn first_time(remote: &Remote, found: &Found) -> Result<i64, Wrong> {
    let jump_max_us = remote.settings.clock_jump_max.as_micros() as i64;
    let now_us = found.now_us();
    let Some(seen_us) = found.seen_us else { return Ok(now_us) };
    let away_us = now_us - seen_us;
    if away_us <= jump_max_us || !found.has_expiries {
        return Ok(now_us.max(seen_us));
    }
    if (found.is_other_server || found.has_others) && remote.clock.doubted_for() < WAIT {
        return Err(Wrong(format!(
            "its time is in doubt: it is {:.1} s ahead of what other front-ends have seen",
            away_us as f64 / 1e6
        )));
    }
    let time_us = system_us().max(seen_us);
    if now_us - time_us <= jump_max_us {
        return Ok(now_us);
    }
    if remote.settings.on_clock_jump == OnJump::Refuse {
        return Err(ahead_of(now_us - time_us, "this machine's"));
    }
    tracing::warn!(
        "The store's clock is {} s ahead of this machine's, and there is no front-end left that knows which \
         one is right: Keyfast believes the earlier one, so that no lock goes early",
        (now_us - time_us) / 1_000_000
    );
    Ok(time_us)
}

/// Why a store whose clock is ahead is not used.
fn ahead_of(ahead_us: i64, of: &str) -> Wrong {
    Wrong(format!(
        "its clock is {:.1} s ahead of {of}, and store-clock-jump says that such a store is not used: set \
         the clock of the server right",
        ahead_us as f64 / 1e6
    ))
}

/// Has a statement return rows that needs the time of the store, after these arguments.
pub(super) async fn query(
    client: &impl GenericClient,
    clock: &StoreClock,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let Window { estimate_us, latest_us } = clock.window();
    let all = [arguments, &[&estimate_us, &latest_us]].concat();
    client.query(&timed_statement(statement, arguments.len() + 1), &all).await
}

/// Executes such a statement. Returns how many rows it has written.
pub(super) async fn execute(
    client: &impl GenericClient,
    clock: &StoreClock,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<u64, Error> {
    let Window { estimate_us, latest_us } = clock.window();
    let all = [arguments, &[&estimate_us, &latest_us]].concat();
    client.execute(&timed_statement(statement, arguments.len() + 1), &all).await
}
