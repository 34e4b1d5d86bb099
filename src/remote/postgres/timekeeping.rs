//! Keeps the store's time, whatever the clock of the server that keeps its rows.
//!
//! Locks expire by the store's time. After a failover that would be the clock of another machine: if it is
//! ahead, locks go early and have two holders; if it is behind, they last for too long. So the store's time
//! is the server's clock and `ahead`, of the one row of `keyfast.clock`. It is set such that time goes on as
//! it was:
//!
//! - Time never goes back. Each batch notes its time in the front-end's own row, so the store itself knows
//!   the latest time that any front-end has seen.
//! - A front-end that knew the time before, and has counted on by its own clock, sees whether the server is
//!   further ahead than it may be, or behind. It finds that out when it connects, by the answer to each batch
//!   and each second; and each batch names the latest time at which the server may begin it.
//! - One that has just been started cannot know. If the server is another one than the time was set for, or
//!   was started again, and locks have expiries, it waits for some seconds for a front-end that does.

use std::time::Duration;

use tokio_postgres::Client;

use super::Wrong;
use crate::remote::Remote;
use crate::remote::clock::{BACK_MAX_US, OnJump, own_us};

/// Whether a statement begins in time. A batch names the latest time as its last argument.
pub(super) const IS_IN_TIME: &str =
    "statement_timestamp() + c.ahead <= timestamptz 'epoch' + {latest}::bigint * interval '1 us'";

/// The server's clock; how far the store's time is ahead of it; whether it was set for another server; how
/// often it was set; the latest time that a front-end has seen; and whether a key expires later.
const READ: &str = "
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
        (extract(epoch FROM ahead) * 1000000)::bigint, server <> pg_postmaster_start_time(), changes,
        (extract(epoch FROM seen) * 1000000)::bigint,
        EXISTS (SELECT FROM keyfast.keys k WHERE k.expires > c.seen AND k.expires < 'infinity')
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
        expect_known(remote, found)?;
        return Ok(now_us.max(seen_us));
    }
    let jump_max_us = remote.settings.clock_jump_max.as_micros() as i64;
    let latest_us = clock.latest_us();
    if now_us > latest_us {
        // Without what it may jump, it is the time that would be now.
        let time_us = (latest_us - jump_max_us).max(seen_us);
        if now_us - time_us <= jump_max_us {
            // Others have seen about this time. So it is this front-end that has counted wrong.
            return Ok(now_us);
        }
        if remote.settings.on_clock_jump == OnJump::Refuse {
            return Err(Wrong(format!(
                "its clock is {:.1} s ahead of what it was, and store-clock-jump says that such a store is \
                 not used: set the clock of the server right",
                (now_us - time_us) as f64 / 1e6
            )));
        }
        return Ok(time_us);
    }
    let least_us = clock.at_us(sent_us);
    let is_behind = found.is_other_server || now_us < least_us - BACK_MAX_US;
    Ok(now_us.max(seen_us).max(if is_behind { least_us } else { i64::MIN }))
}

/// A front-end that has just been started asks others about the time of a server that has just become the
/// store.
fn expect_known(remote: &Remote, found: &Found) -> Result<(), Wrong> {
    let jump_max_us = remote.settings.clock_jump_max.as_micros() as i64;
    let Some(seen_us) = found.seen_us else { return Ok(()) };
    let away_us = found.now_us() - seen_us;
    if !found.is_other_server || !found.has_expiries || away_us <= jump_max_us {
        return Ok(());
    }
    if remote.clock.doubted_for() < WAIT {
        return Err(Wrong(
            "it was started since front-ends have used it, and its time is in doubt".to_owned(),
        ));
    }
    tracing::warn!(
        "The store was started since front-ends have used it, {} s ago by its clock, and there is none left \
         that knows whether this clock is right: Keyfast believes it",
        away_us / 1_000_000
    );
    Ok(())
}
