//! Rows in PostgreSQL, or in what speaks its protocol and its SQL.
//!
//! A batch is one statement, in READ COMMITTED: `batch.sql`, or `alone.sql` where no two keys are in one
//! group. It locks the rows that are there in the order of their slots and names, and inserts those that are
//! not there afterwards, in the same order. So front-ends wait for each other, but not in a circle. (One is
//! left: a row that a third batch has inserted since the statement began. PostgreSQL ends it after a second,
//! and the batch runs again.) It checks the rows, writes, and counts the batch in the front-end's own row.
//! This write makes the commit wait for the synchronous replicas, also that of a batch that only reads. So no
//! batch succeeds on a primary that was deposed.
//!
//! Groups of several keys need a lock on keys that are absent, too. A statement before the batch makes rows
//! for these, which count as deleted.
//!
//! A batch that writes one key tries `lone.sql` first, which has fewer parts and takes less time. It does
//! nothing unless the row is as it was guessed.

mod all_keys;
mod columns;
mod confirmations;
mod notifications;
mod numbering;
mod opening;
mod sweeping;
mod timekeeping;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
pub(super) use opening::Rooms;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Error, Statement};

use super::Remote;
use super::all_keys::{NotTold, Question, Told};
use super::batch::{Answer, Batch, Part};
use super::clock::{StoreClock, Window, system_us};
use super::news::Ears;
use super::row::{Key, Live, Row, Tenure};
use super::store::{Failure, Front, Store, Timed};
use super::tls;
use crate::keyspace::fencing::number_of_clock;
use crate::types;
use crate::values::STRING_KIND;
use all_keys::Asking;
use columns::{Columns, Missing};
use confirmations::{DURABILITY, Warnings, expect_no_less};
use opening::{Closing, Socket, open};
use timekeeping::{IS_IN_TIME, MOMENT, NOW, WRITES_AT};

const SCHEMA: &str = include_str!("schema.sql");
const BATCH: &str = include_str!("batch.sql");
const ALONE: &str = include_str!("alone.sql");
const LONE: &str = include_str!("lone.sql");
/// The parts of them, by the names that stand for them.
const SHARED: [(&str, &str); 10] = [
    ("{lane}", include_str!("lane.sql")),
    ("{insert}", include_str!("insert.sql")),
    ("{update}", include_str!("update.sql")),
    ("{written}", include_str!("written.sql")),
    ("{bury}", include_str!("bury.sql")),
    ("{numbers}", "(SELECT numbers FROM keyfast.databases)"),
    ("{now}", NOW),
    ("{moment}", MOMENT),
    ("{writes_at}", WRITES_AT),
    ("{is_in_time}", IS_IN_TIME),
];
/// What `update.sql` asks of a row that is not locked. One that is locked was checked under the lock.
const IS_UNCHANGED: &str = "o.version = p.version AND o.expires > p.moment";
const SCHEMA_VERSION: i32 = 2;
/// The lock of PostgreSQL that a front-end has while it makes tables, or sets the sequence of numbers.
const LOCK_KEY: i64 = 7_521_093;

/// Makes rows for absent keys.
const MAKE_ROWS: &str = "
    INSERT INTO keyfast.keys
        (database, key, slot, kind, value, expires, version, fence, since, holder, is_lock)
    SELECT {numbers}[named], key, slot, 'none', '', '-infinity', 0, 0, {now}, '', false
    FROM unnest($1::int[], $2::bytea[], $3::bigint[]) u(named, key, slot)
    ON CONFLICT DO NOTHING";

/// Asks what became of a batch. If it was not done, it never will be: its number is taken. Group -1 stands
/// for that, so that the answer is the same if it has to be asked again. A row with the number of any other
/// batch is that of another front-end, in a schema that was made anew.
const SETTLE: &str = "
    WITH old AS MATERIALIZED (
        SELECT front, last FROM keyfast.fronts
        WHERE front = $1::bigint AND last BETWEEN $2::bigint - 1 AND $2::bigint FOR UPDATE
    ), counted AS (
        UPDATE keyfast.fronts SET last = $2::bigint, seen = {now}
        FROM old WHERE fronts.front = old.front
    ), noted AS (
        INSERT INTO keyfast.undone AS u (front, number, groups)
        SELECT front, $2::bigint, '{-1}' FROM old WHERE last <> $2::bigint
        ON CONFLICT (front) DO UPDATE SET number = excluded.number, groups = excluded.groups
    )
    SELECT old.last = $2::bigint, COALESCE((
        SELECT groups FROM keyfast.undone u WHERE u.front = $1::bigint AND u.number = $2::bigint), '{}'),
        {durability}
    FROM old";

/// A connection to PostgreSQL for batches.
pub(super) struct Postgres {
    client: Client,
    socket: Socket,
    warnings: Arc<Warnings>,
    /// The most confirmations that a commit has had to wait for.
    confirmations: Arc<AtomicU64>,
    clock: Arc<StoreClock>,
    front: i64,
    statements: Statements,
}

/// The prepared statements of a connection.
struct Statements {
    /// The sequence of numbers for which they were prepared.
    sequence: i64,
    batch: Statement,
    alone: Statement,
    lone_insert: Statement,
    lone_update: Statement,
    make_rows: Statement,
    resolve: Statement,
}

/// Why a connection is of no use, in one line.
struct Wrong(String);

impl From<Error> for Wrong {
    fn from(error: Error) -> Wrong {
        Wrong(describe(&error))
    }
}

/// The least time that a statement gets beside batches.
const STATEMENT_PATIENCE_MIN: Duration = Duration::from_secs(1);

fn statement_patience(remote: &Remote) -> Duration {
    remote.settings.patience.max(STATEMENT_PATIENCE_MIN)
}

/// What a statement beside batches returns. A store that does not reply in time is taken for lost.
async fn in_time<T>(remote: &Remote, statement: impl Future<Output = Result<T, Error>>) -> Result<T, Wrong> {
    let replied = timeout(statement_patience(remote), statement).await;
    Ok(replied.map_err(|_elapsed| Wrong("no reply in time".to_owned()))??)
}

/// A statement with its shared parts, which needs no time.
fn whole_statement(statement: &str) -> String {
    let whole = SHARED.iter().fold(statement.to_owned(), |sql, (name, part)| sql.replace(name, part));
    whole.replace("{durability}", DURABILITY)
}

/// Which sequence gives numbers. It is another one if the schema was restored from a backup meanwhile.
const SEQUENCE: &str = "'keyfast.fence'::regclass::oid::bigint";

/// The same for a statement that needs the time of the store. Its last two arguments, of which this is the
/// number of the first, are the window for that.
fn timed_statement(statement: &str, first: usize) -> String {
    let moment = |number: usize| format!("(timestamptz 'epoch' + ${number}::bigint * interval '1 us')");
    let whole = whole_statement(statement);
    whole.replace("{estimate}", &moment(first)).replace("{latest}", &moment(first + 1))
}

/// The same for a statement that writes rows which are as this says, and begins only while this is the
/// sequence.
fn writing_statement(statement: &str, (is_unchanged, sequence): (&str, i64), first: usize) -> String {
    let whole = timed_statement(statement, first).replace("{is_unchanged}", is_unchanged);
    whole.replace("{is_same_store}", &format!("{SEQUENCE} = {sequence}"))
}

/// The statement for a batch of one key. `part` writes the row, and `written` is its name.
fn lone_statement(part: &str, written: &str, sequence: i64) -> String {
    let lone = LONE.replace("{part}", part).replace("{written}", written);
    writing_statement(&lone, (IS_UNCHANGED, sequence), 15)
}

impl Store for Postgres {
    async fn connect(remote: &Remote, front: &mut Option<Front>) -> Result<Postgres, String> {
        let (warnings, notified) = (Arc::<Warnings>::default(), Arc::<Notify>::default());
        let (heard, woken) = (Arc::clone(&warnings), Arc::clone(&notified));
        let hear = move |message: Option<AsyncMessage>| match message {
            Some(AsyncMessage::Notice(notice)) => heard.hear(&notice),
            Some(AsyncMessage::Notification(_)) => woken.notify_one(),
            _ => {}
        };
        let (mut client, mut socket) = open(remote, hear).await?;
        let prepared = async {
            expect_own_session(remote, &client, &notified).await?;
            check_schema(&mut client, remote.settings.databases).await?;
            timekeeping::keep(remote, &client).await?;
            let front = match front {
                Some(front) => front,
                None => front.insert(Front { id: register(&client, remote).await?, last: 0 }),
            };
            let sequence: i64 = client.query_one(&format!("SELECT {SEQUENCE}"), &[]).await?.get(0);
            let prepare = async |sql: &str| client.prepare(sql).await;
            let statements = Statements {
                sequence,
                batch: prepare(&writing_statement(BATCH, ("true", sequence), 21)).await?,
                alone: prepare(&writing_statement(ALONE, (IS_UNCHANGED, sequence), 17)).await?,
                lone_insert: prepare(&lone_statement("{insert}", "inserted", sequence)).await?,
                lone_update: prepare(&lone_statement("{update}", "updated", sequence)).await?,
                make_rows: prepare(&timed_statement(MAKE_ROWS, 4)).await?,
                resolve: prepare(&timed_statement(SETTLE, 3)).await?,
            };
            // The clock of this machine, too: its numbers may have been given by this server's memory before.
            let now_us = remote.clock.window().estimate_us;
            let least = number_of_clock(now_us).max(number_of_clock(system_us()));
            numbering::go_beyond(&client, least).await.map_err(|error| {
                Wrong(format!("fencing numbers cannot be kept ahead of the clock: {}", describe(&error)))
            })?;
            Ok((front.id, statements))
        };
        let (front, statements) = socket.serve(prepared).await.map_err(|wrong: Wrong| wrong.0)?;
        warnings.forget();
        let confirmations = Arc::clone(&remote.health.confirmations);
        let clock = Arc::clone(&remote.clock);
        Ok(Postgres { client, socket, warnings, confirmations, clock, front, statements })
    }

    async fn exchange(
        &mut self,
        batch: &Batch,
        number: i64,
        window: Window,
    ) -> Result<Timed<Answer>, Failure> {
        if let Ok(beyond @ 1..) = i64::try_from(batch.draws_beyond) {
            let raised = self.socket.serve(numbering::go_beyond(&self.client, beyond)).await;
            raised.map_err(|error| failure(&error))?;
        }
        let columns = Columns::of(batch);
        if columns.is_lone_write()
            && let Some(answer) = self.write_one(batch, &columns, number, window).await?
        {
            return Ok(answer);
        }
        let missing = Missing::of(batch, &columns);
        let statement = if columns.is_all_alone { &self.statements.alone } else { &self.statements.batch };
        let client = &self.client;
        let query =
            async { client.query(statement, &columns.arguments(&self.front, &number, &window)).await };
        let rows = match missing.is_empty() {
            true => self.socket.serve(query).await,
            false => {
                let make_rows = &self.statements.make_rows;
                // All of it is sent at once, in the order in which they are polled first.
                let all = async {
                    tokio::join!(
                        biased;
                        client.batch_execute("BEGIN"),
                        async { client.execute(make_rows, &missing.arguments(&window)).await },
                        query,
                        client.batch_execute("COMMIT"),
                    )
                };
                let (begun, made, rows, ended) = self.socket.serve(all).await;
                begun.and(made.map(drop)).and(rows).and_then(|rows| ended.map(|()| rows))
            }
        };
        let rows = rows.map_err(|error| failure(&error))?;
        let mut answer = self.all_done(batch, number);
        let (mut store_us, mut durability) = (None, "");
        for row in &rows {
            let (what, place): (i16, i64) = (row.get(0), row.get(1));
            match (what, usize::try_from(place)) {
                (0, Ok(place)) => {
                    let Some(part) = place.checked_sub(1).and_then(|index| batch.parts.get(index)) else {
                        continue;
                    };
                    answer.done[part.group] = false;
                    answer.rows.insert(place - 1, read(row));
                }
                (3, Ok(place @ 1..)) => {
                    answer.expiries.insert(place - 1, u64::try_from(row.get::<_, i64>(6)).unwrap_or(0));
                }
                (4, _) => answer.fences.extend(u64::try_from(row.get::<_, i64>(2))),
                (1, Ok(group)) if group < answer.done.len() => answer.done[group] = false,
                _ => (store_us, durability) = (Some(row.get(6)), row.get(4)),
            }
        }
        answer.fences.sort_unstable();
        if store_us.is_some() {
            self.expect_durable(durability)?;
        }
        match store_us {
            Some(store_us) => Ok((answer, store_us)),
            None => Err(self.why_not_begun(number).await),
        }
    }

    async fn resolve(&mut self, batch: &Batch, number: i64) -> Result<Option<Answer>, Failure> {
        let (client, resolve) = (&self.client, &self.statements.resolve);
        let Window { estimate_us, latest_us } = self.clock.window();
        let query =
            async { client.query_opt(resolve, &[&self.front, &number, &estimate_us, &latest_us]).await };
        let row = self.socket.serve(query).await.map_err(|error| failure(&error))?;
        let Some(row) = row else {
            return Err(Failure::Refused("the store has forgotten this front-end".to_owned()));
        };
        self.expect_durable(row.get(2))?;
        let undone: Vec<i32> = row.get(1);
        if !row.get::<_, bool>(0) || undone.contains(&-1) {
            return Ok(None);
        }
        let mut answer = self.all_done(batch, number);
        for group in undone {
            if let Some(done) = answer.done.get_mut(group as usize) {
                *done = false;
            }
        }
        Ok(Some(answer))
    }

    async fn try_out(&mut self, number: i64) -> Result<(), Failure> {
        let batch = trial();
        let (columns, window) = (Columns::of(&batch), self.clock.window());
        let (client, alone) = (&self.client, &self.statements.alone);
        let all = async {
            tokio::join!(
                biased;
                client.batch_execute("BEGIN"),
                async { client.query(alone, &columns.arguments(&self.front, &number, &window)).await },
                client.batch_execute("ROLLBACK"),
            )
        };
        let (begun, tried, ended) = self.socket.serve(all).await;
        begun.and(tried).and(ended).map_err(|error| failure(&error))
    }

    type Asking = Asking;

    async fn connect_to_ask(remote: &Remote, last: Option<Asking>) -> Result<Asking, String> {
        all_keys::connect(remote, last).await
    }

    async fn ask(
        remote: &Remote,
        asking: Asking,
        question: Question,
    ) -> (Result<Told, NotTold>, Option<Asking>) {
        all_keys::ask(remote, asking, question).await
    }

    async fn exchange_news(remote: &Arc<Remote>, ears: &impl Ears) {
        notifications::exchange(remote, ears).await;
    }
}

/// Bytes of the value that is written on trial: longer than what has room in a page with other rows.
const TRIAL_BYTES: usize = 16 << 10;

/// A batch that is taken back: it writes a key.
fn trial() -> Batch {
    let mut value = vec![0; TRIAL_BYTES];
    // What is all the same would be compressed. Zeros only make the trial easier.
    let _ = getrandom::fill(&mut value);
    let live = Live { kind: STRING_KIND, value: value.into(), expires_at_ms: None, is_lock: false };
    let part = Part {
        key: Key::new(0, b"keyfast:trial"),
        group: 0,
        seen: Row::absent(),
        is_strict: false,
        written: Some(Arc::new(Row { live: Some(live), ..Row::default() })),
        is_renewed: false,
        lifetime_ms: None,
        holder: None,
    };
    Batch { parts: vec![part], groups: 1, ..Batch::default() }
}

/// Looks whether the session is this connection's own. A pooler that gives each transaction another one
/// passes no notifications on, and what a session has set would hold for others.
async fn expect_own_session(remote: &Remote, client: &Client, notified: &Notify) -> Result<(), Wrong> {
    let mut name = [0; 8];
    let _ = getrandom::fill(&mut name);
    let channel = format!("keyfast_{:016x}", u64::from_le_bytes(name));
    client.batch_execute(&format!("LISTEN {channel}")).await?;
    // By another connection: this one may get the same session again for each of its statements.
    // Where there may be no other, it cannot be known.
    if let Ok((other, socket)) = open(remote, |_message| ()).await {
        let _closing = Closing::of(socket);
        other.batch_execute(&format!("NOTIFY {channel}")).await?;
        let patience = (remote.settings.patience / 2).max(STATEMENT_PATIENCE_MIN);
        let heard = timeout(patience, notified.notified()).await;
        heard.map_err(|_elapsed| Wrong(POOLED.to_owned()))?;
    }
    Ok(client.batch_execute(&format!("UNLISTEN {channel}")).await?)
}

impl Postgres {
    /// Has the only key of a batch written, if its row is as it was guessed. Otherwise the store has done
    /// nothing and has not counted the batch.
    async fn write_one(
        &mut self,
        batch: &Batch,
        columns: &Columns<'_>,
        number: i64,
        window: Window,
    ) -> Result<Option<Timed<Answer>>, Failure> {
        let Statements { lone_insert, lone_update, .. } = &self.statements;
        let statement = if columns.is_insert(0) { lone_insert } else { lone_update };
        let (client, front) = (&self.client, &self.front);
        let query =
            async { client.query_opt(statement, &columns.lone_arguments(front, &number, &window)).await };
        let row = self.socket.serve(query).await.map_err(|error| failure(&error))?;
        let Some(row) = row else { return Ok(None) };
        self.expect_durable(row.get(2))?;
        let mut answer = self.all_done(batch, number);
        answer
            .expiries
            .extend(u64::try_from(row.get::<_, i64>(0)).ok().map(|expires_at_ms| (0, expires_at_ms)));
        Ok(Some((answer, row.get(1))))
    }

    /// Why a batch was not begun.
    async fn why_not_begun(&mut self, number: i64) -> Failure {
        let is_next = format!(
            "SELECT FROM keyfast.fronts WHERE front = $1 AND last = $2::bigint - 1 AND {SEQUENCE} = $3"
        );
        let (client, front, sequence) = (&self.client, &self.front, &self.statements.sequence);
        let query = async { client.query_opt(&is_next, &[front, &number, sequence]).await };
        match self.socket.serve(query).await {
            Ok(Some(_)) => Failure::Late,
            Ok(None) => Failure::Forgotten("its row in keyfast.fronts is gone".to_owned()),
            Err(error) => failure(&error),
        }
    }

    /// The answer to a batch of which all groups are done.
    fn all_done(&self, batch: &Batch, number: i64) -> Answer {
        let version = (self.front << 40) + number;
        Answer { version, done: vec![true; batch.groups], ..Answer::default() }
    }

    /// A commit whose wait for the replicas was cancelled, by an administrator, succeeds with a warning. It
    /// may still be lost, so it does not count: a connection that asks again waits for the replicas, too. So
    /// it is with a commit that fewer replicas have confirmed than earlier ones: the next connection is made
    /// when as many confirm again.
    fn expect_durable(&self, durability: &str) -> Result<(), Failure> {
        if self.warnings.may_be_lost() {
            return Err(Failure::Lost("it has warned that a commit may be lost".to_owned()));
        }
        expect_no_less(&self.confirmations, durability).map_err(Failure::Lost)
    }
}

/// The row of a key, as the statement returns it. A value of an unknown type has a kind that no type has: the
/// batch is done already, and other requests in it concern other keys.
fn read(row: &tokio_postgres::Row) -> Row {
    let version: i64 = row.get(2);
    if !row.get::<_, bool>(3) {
        return Row { version, ..Row::default() };
    }
    let kind: &str = row.get(4);
    let expires_at_ms: i64 = row.get(6);
    let live = Live {
        kind: types::ALL.iter().find(|facts| facts.name == kind).map_or(u8::MAX, |facts| facts.kind),
        value: Bytes::copy_from_slice(row.get(5)),
        expires_at_ms: u64::try_from(expires_at_ms).ok(),
        is_lock: row.get(7),
    };
    let since_ms = u64::try_from(row.get::<_, i64>(10)).unwrap_or(0);
    let tenure = Tenure { holder: row.get(8), fence: row.get(9), since_ms };
    Row { version, live: Some(live), tenure: Some(Arc::new(tenure)), ..Row::default() }
}

/// The version of the tables.
const VERSION: &str = "SELECT version FROM keyfast.schema_version";

/// Gives numbers to databases that no front-end had before. So a flush of all databases misses none.
const ADD_DATABASES: &str = "
    UPDATE keyfast.databases
    SET numbers = numbers || ARRAY(SELECT generate_series(array_upper(numbers, 1) + 1, $1::int - 1))
    WHERE array_upper(numbers, 1) < $1::int - 1";

/// Makes the tables if there are none, for this number of databases.
async fn check_schema(client: &mut Client, databases: usize) -> Result<(), Wrong> {
    let version: i32 = match client.query_one(VERSION, &[]).await {
        Err(error) if is_missing(&error) => make_tables(client)
            .await
            .map_err(|error| Wrong(format!("its tables cannot be made: {}", describe(&error))))?,
        found => found?.get(0),
    };
    if version != SCHEMA_VERSION {
        return Err(Wrong(format!(
            "its tables are of version {version}, and this program needs version {SCHEMA_VERSION}"
        )));
    }
    client.execute(ADD_DATABASES, &[&(databases as i32)]).await?;
    Ok(())
}

/// Makes the tables, and returns their version. One front-end at a time does, and another one may have done
/// it meanwhile.
async fn make_tables(client: &mut Client) -> Result<i32, Error> {
    const IS_THERE: &str = "SELECT to_regclass('keyfast.schema_version') IS NOT NULL";
    let tx = client.transaction().await?;
    tx.batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCK_KEY})")).await?;
    if !tx.query_one(IS_THERE, &[]).await?.get::<_, bool>(0) {
        tx.batch_execute(SCHEMA).await?;
    }
    let version = tx.query_one(VERSION, &[]).await?.get(0);
    tx.commit().await?;
    Ok(version)
}

fn is_missing(error: &Error) -> bool {
    let is_meant =
        |code: &SqlState| *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME;
    error.code().is_some_and(is_meant)
}

/// Makes the front-end's own row. Returns its number.
async fn register(client: &Client, remote: &Remote) -> Result<i64, Error> {
    const REGISTER: &str = "
        INSERT INTO keyfast.fronts (front, name, last, seen)
        VALUES (nextval('keyfast.front'), $1, 0, {now}) RETURNING front";
    let rows = timekeeping::query(client, &remote.clock, REGISTER, &[&remote.settings.name]).await?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}

/// Says what to do about a pooler that gives each transaction another session. Nothing that a session has set
/// is sure there, so it must not go on by luck.
const POOLED: &str = "a pooler in front of PostgreSQL gives each transaction another session, and passes no \
                      notifications on: Keyfast needs its session mode (pool_mode = session)";
/// The same, where that shows only later.
const MIXED_UP: &str = "a pooler in front of PostgreSQL mixes up prepared statements: Keyfast needs its \
                        session mode (pool_mode = session)";

/// Whether a statement that was prepared is unknown on the connection, or one that was not is known there.
fn is_mixed_up(error: &Error) -> bool {
    let is_meant = |code: &SqlState| {
        *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
    };
    error.code().is_some_and(is_meant)
}

/// The meaning of a statement's error for the batch.
fn failure(error: &Error) -> Failure {
    match error.code() {
        // Nothing was done, and it may succeed the next time.
        Some(code)
            if *code == SqlState::T_R_DEADLOCK_DETECTED
                || *code == SqlState::T_R_SERIALIZATION_FAILURE
                || *code == SqlState::LOCK_NOT_AVAILABLE =>
        {
            Failure::Again
        }
        _ if is_missing(error) => Failure::Forgotten(describe(error)),
        _ if is_lost(error) => Failure::Lost(describe(error)),
        _ if is_mixed_up(error) => Failure::Unusable(describe(error)),
        _ => Failure::Refused(describe(error)),
    }
}

/// Whether an error leaves open what was done. The server ends the connection: it goes down, or someone has
/// ended it while the commit waited.
fn is_lost(error: &Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P") || code.code().starts_with("08"))
}

/// An error in one line. It names no password: errors of this library do not.
fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(_) if is_mixed_up(error) => MIXED_UP.to_owned(),
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => {
            if let Some(why) = tls::why_refused(error) {
                return why;
            }
            let cause =
                std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{error}{cause}")
        }
    }
}
