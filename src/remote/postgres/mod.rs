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
mod sweeping;
mod timekeeping;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(super) use all_keys::answer_questions;
use bytes::Bytes;
pub(super) use notifications::exchange_news;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, NoTls, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Remote;
use super::batch::{Answer, Batch};
use super::clock::system_us;
use super::hosts::first_opened;
use super::row::{Live, Row, Tenure};
use super::store::{Failure, Front, Store, Timed};
use super::target::Target;
use super::tls;
use crate::keyspace::fencing::number_of_clock;
use crate::types;
use columns::{Columns, Missing};
use confirmations::{DURABILITY, Warnings, expect_no_less};
use timekeeping::IS_IN_TIME;

const SCHEMA: &str = include_str!("schema.sql");
/// What makes each version of the schema out of the one before.
const STEPS: [(i32, &str); 2] = [(1, SCHEMA), (SCHEMA_VERSION, include_str!("databases.sql"))];
const BATCH: &str = include_str!("batch.sql");
const ALONE: &str = include_str!("alone.sql");
const LONE: &str = include_str!("lone.sql");
/// The parts of them, by the names that stand for them.
const SHARED: [(&str, &str); 7] = [
    ("{lane}", include_str!("lane.sql")),
    ("{insert}", include_str!("insert.sql")),
    ("{update}", include_str!("update.sql")),
    ("{written}", include_str!("written.sql")),
    ("{bury}", include_str!("bury.sql")),
    ("{numbers}", "(SELECT numbers FROM keyfast.databases)"),
    ("{now}", NOW),
];
/// What `update.sql` asks of a row that is not locked. One that is locked was checked under the lock.
const IS_UNCHANGED: &str = "o.version = p.version AND o.expires > clock_timestamp() + p.ahead";
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

/// The lock order depends on the plan: one row after the other, by the index.
///
/// `synchronous_commit` is set even if it has its value already: from then on no setting of the server, the
/// database or the role changes it for this session.
const SETTINGS: &str = "
    SET client_min_messages = warning; SET statement_timeout = 0; SET jit = off;
    SET default_transaction_isolation = 'read committed'; SET plan_cache_mode = force_generic_plan;
    SET enable_mergejoin = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
    SELECT set_config('synchronous_commit', CASE
        WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on'
        ELSE current_setting('synchronous_commit') END, false);";

/// Writes a message into the log of PostgreSQL, so that the commit waits for the replicas.
const BARRIER: &str = "SELECT pg_logical_emit_message(true, 'keyfast', '')";
/// The port of a host for which the URL has none.
const PORT: u16 = 5432;

/// The time of the store: `{now}` in statements.
const NOW: &str = "(clock_timestamp() + (SELECT ahead FROM keyfast.clock))";
const NOW_US: &str = "SELECT (extract(epoch FROM {now}) * 1000000)::bigint";

/// A connection to PostgreSQL for batches.
pub(super) struct Postgres {
    client: Client,
    socket: Socket,
    warnings: Arc<Warnings>,
    /// The most confirmations that a commit has had to wait for.
    confirmations: Arc<AtomicU64>,
    /// Whether a pooler has mixed up its statements.
    is_mixed_up: bool,
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

/// Reads and writes a socket until the connection ends.
type Driving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A socket that is read and written by the task that waits for an answer. A task of its own would have to be
/// woken for each batch, and would have to wake the other one for each answer.
struct Socket(Option<Driving>);

impl Socket {
    async fn serve<T>(&mut self, answers: impl Future<Output = T>) -> T {
        let mut answers = pin!(answers);
        if let Some(driving) = &mut self.0 {
            tokio::select! {
                biased;
                answer = &mut answers => return answer,
                () = driving => {}
            }
            // The connection has ended: all replies become errors.
            self.0 = None;
        }
        answers.await
    }
}

/// A task that reads and writes a socket. A connection that is no longer wanted is closed. Nothing is
/// cancelled: PostgreSQL would make a commit visible that no replica has.
struct Closing(JoinHandle<()>);

impl Closing {
    fn of(socket: Socket) -> Closing {
        Closing(tokio::spawn(async move {
            if let Some(driving) = socket.0 {
                driving.await;
            }
        }))
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a connection is of no use, in one line.
struct Wrong(String);

impl From<Error> for Wrong {
    fn from(error: Error) -> Wrong {
        Wrong(describe(&error))
    }
}

/// A statement with its shared parts.
fn whole_statement(statement: &str) -> String {
    let whole = SHARED.iter().fold(statement.to_owned(), |sql, (name, part)| sql.replace(name, part));
    whole.replace("{durability}", DURABILITY)
}

/// Which sequence gives numbers. It is another one if the schema was restored from a backup meanwhile.
const SEQUENCE: &str = "'keyfast.fence'::regclass::oid::bigint";

/// The same for a statement that writes rows which are as this says, and begins only while this is the
/// sequence. Its last argument, of which this is the number, is the latest time at which it may begin.
fn writing_statement(statement: &str, (is_unchanged, sequence): (&str, i64), last: usize) -> String {
    let may_begin = format!("{IS_IN_TIME} AND {SEQUENCE} = {sequence}");
    let whole = whole_statement(statement).replace("{is_in_time}", &may_begin);
    whole.replace("{latest}", &format!("${last}")).replace("{is_unchanged}", is_unchanged)
}

/// The statement for a batch of one key. `part` writes the row, and `written` is its name.
fn lone_statement(part: &str, written: &str, sequence: i64) -> String {
    let lone = LONE.replace("{part}", part).replace("{written}", written);
    writing_statement(&lone, (IS_UNCHANGED, sequence), 15)
}

impl Store for Postgres {
    async fn connect(remote: &Remote, front: &mut Option<Front>) -> Result<Timed<Postgres>, String> {
        let warnings = Arc::<Warnings>::default();
        let heard = Arc::clone(&warnings);
        let hear = move |message: Option<AsyncMessage>| {
            if let Some(AsyncMessage::Notice(notice)) = message {
                heard.hear(&notice);
            }
        };
        let (mut client, mut socket) = open(remote, hear).await?;
        let prepared = async {
            check_schema(&mut client, remote.settings.databases).await?;
            timekeeping::keep(remote, &client).await?;
            let front = match front {
                Some(front) => front,
                None => front.insert(Front { id: register(&client, &remote.settings.name).await?, last: 0 }),
            };
            let sequence: i64 = client.query_one(&format!("SELECT {SEQUENCE}"), &[]).await?.get(0);
            let prepare = async |sql: &str| client.prepare(sql).await;
            let statements = Statements {
                sequence,
                batch: prepare(&writing_statement(BATCH, ("true", sequence), 21)).await?,
                alone: prepare(&writing_statement(ALONE, (IS_UNCHANGED, sequence), 17)).await?,
                lone_insert: prepare(&lone_statement("{insert}", "inserted", sequence)).await?,
                lone_update: prepare(&lone_statement("{update}", "updated", sequence)).await?,
                make_rows: prepare(&whole_statement(MAKE_ROWS)).await?,
                resolve: prepare(&whole_statement(SETTLE)).await?,
            };
            let now = client.query_one(&whole_statement(NOW_US), &[]).await?;
            let now_us: i64 = now.get(0);
            // The clock of this machine, too: its numbers may have been given by this server's memory before.
            let least = number_of_clock(now_us).max(number_of_clock(system_us()));
            numbering::go_beyond(&client, least).await.map_err(|error| {
                Wrong(format!("fencing numbers cannot be kept ahead of the clock: {}", describe(&error)))
            })?;
            Ok((front.id, statements, now_us))
        };
        let (front, statements, now_us) = socket.serve(prepared).await.map_err(|wrong: Wrong| wrong.0)?;
        warnings.forget();
        let confirmations = Arc::clone(&remote.health.confirmations);
        let is_mixed_up = false;
        Ok((Postgres { client, socket, warnings, confirmations, is_mixed_up, front, statements }, now_us))
    }

    async fn exchange(
        &mut self,
        batch: &Batch,
        number: i64,
        latest_us: i64,
    ) -> Result<Timed<Answer>, Failure> {
        if self.is_mixed_up {
            return Err(Failure::Refused(MIXED_UP.to_owned()));
        }
        if let Ok(beyond @ 1..) = i64::try_from(batch.draws_beyond) {
            let raised = self.socket.serve(numbering::go_beyond(&self.client, beyond)).await;
            raised.map_err(|error| self.failure(&error))?;
        }
        let columns = Columns::of(batch);
        if columns.is_lone_write()
            && let Some(answer) = self.write_one(batch, &columns, number, latest_us).await?
        {
            return Ok(answer);
        }
        let missing = Missing::of(batch, &columns);
        let statement = if columns.is_all_alone { &self.statements.alone } else { &self.statements.batch };
        let client = &self.client;
        let query =
            async { client.query(statement, &columns.arguments(&self.front, &number, &latest_us)).await };
        let rows = match missing.is_empty() {
            true => self.socket.serve(query).await,
            false => {
                // All of it is sent at once, in the order in which they are polled first.
                let all = async {
                    tokio::join!(
                        biased;
                        client.batch_execute("BEGIN"),
                        async { client.execute(&self.statements.make_rows, &missing.arguments()).await },
                        query,
                        client.batch_execute("COMMIT"),
                    )
                };
                let (begun, made, rows, ended) = self.socket.serve(all).await;
                begun.and(made.map(drop)).and(rows).and_then(|rows| ended.map(|()| rows))
            }
        };
        let rows = rows.map_err(|error| self.failure(&error))?;
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
        let query = async { client.query_opt(resolve, &[&self.front, &number]).await };
        let row = self.socket.serve(query).await.map_err(|error| self.failure(&error))?;
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
}

impl Postgres {
    /// Has the only key of a batch written, if its row is as it was guessed. Otherwise the store has done
    /// nothing and has not counted the batch.
    async fn write_one(
        &mut self,
        batch: &Batch,
        columns: &Columns<'_>,
        number: i64,
        latest_us: i64,
    ) -> Result<Option<Timed<Answer>>, Failure> {
        let Statements { lone_insert, lone_update, .. } = &self.statements;
        let statement = if columns.is_insert(0) { lone_insert } else { lone_update };
        let (client, front) = (&self.client, &self.front);
        let query =
            async { client.query_opt(statement, &columns.lone_arguments(front, &number, &latest_us)).await };
        let row = self.socket.serve(query).await.map_err(|error| self.failure(&error))?;
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
            Err(error) => self.failure(&error),
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

    /// The meaning of a statement's error for the batch.
    fn failure(&mut self, error: &Error) -> Failure {
        self.is_mixed_up |= is_mixed_up(error);
        failure(error)
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

/// The settings for each host in the URL.
fn targets(remote: &Remote) -> Result<Vec<Config>, String> {
    let Target::Postgres(url) = &remote.settings.target else { return Err("not PostgreSQL".to_owned()) };
    let all: Config = url.parse().map_err(|error| describe(&error))?;
    let hosts = all.get_hosts().len().max(all.get_hostaddrs().len());
    if hosts == 0 {
        return Err("the URL names no host".to_owned());
    }
    Ok((0..hosts).map(|number| only(&all, number, remote)).collect())
}

/// The settings for one host in the URL.
fn only(all: &Config, number: usize, remote: &Remote) -> Config {
    let mut config = Config::new();
    config
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .application_name(format!("keyfast {}", remote.settings.name))
        .tcp_user_timeout(remote.settings.patience)
        .connect_timeout(remote.settings.patience);
    match all.get_hosts().get(number) {
        Some(Host::Tcp(name)) => _ = config.host(name),
        Some(Host::Unix(folder)) => _ = config.host_path(folder),
        None => {}
    }
    if let Some(address) = all.get_hostaddrs().get(number) {
        config.hostaddr(*address);
    }
    // A single port is that of all hosts.
    if let Some(port) = all.get_ports().get(number).or(all.get_ports().first()) {
        config.port(*port);
    }
    if let Some(user) = all.get_user() {
        config.user(user);
    }
    if let Some(password) = all.get_password() {
        config.password(password);
    }
    if let Some(name) = all.get_dbname() {
        config.dbname(name);
    }
    if let Some(options) = all.get_options() {
        config.options(options);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        config.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        config.keepalives_retries(retries);
    }
    config
}

/// The session parameters of each connection.
fn settings(remote: &Remote) -> String {
    // A front-end that waits for a row of another one, which waits for its replicas, tries again.
    // If it is cut off in the middle of a transaction, its rows are free soon.
    let (waiting, idle) = (remote.settings.patience / 2, remote.settings.patience);
    let (waiting, idle) = (waiting.as_millis().max(1), idle.as_millis().max(1));
    format!("{SETTINGS} SET lock_timeout = {waiting}; SET idle_in_transaction_session_timeout = {idle}")
}

/// Receives the server's asynchronous messages, and `None` at the end.
type Hearing = Box<dyn Fn(Option<AsyncMessage>) + Send + Sync>;

/// A connection to one host.
struct Opened {
    client: Client,
    socket: Socket,
    /// Set when the connection was chosen.
    hearing: Arc<OnceLock<Hearing>>,
}

/// Opens a connection to the first host that commits something, which takes its replicas: a primary that was
/// deposed, hangs or is cut off is of no use. All hosts are tried at once.
async fn open(
    remote: &Remote,
    hear: impl Fn(Option<AsyncMessage>) + Send + Sync + 'static,
) -> Result<(Client, Socket), String> {
    let (configs, patience) = (targets(remote)?, remote.settings.patience);
    let tls = match configs.iter().all(|config| config.get_ssl_mode() == SslMode::Disable) {
        true => None,
        false => Some(MakeRustlsConnect::new(remote.settings.tls.client_config()?)),
    };
    let is_alone = configs.len() == 1;
    let mut tries = JoinSet::new();
    for (number, config) in configs.into_iter().enumerate() {
        let (tls, settings) = (tls.clone(), settings(remote));
        let most = Arc::clone(&remote.health.confirmations);
        tries.spawn(async move {
            let opened = open_host(&config, tls, (&settings, &most), patience).await;
            opened.map_err(|why| match config.get_hosts() {
                [Host::Tcp(name)] if !is_alone => {
                    let port = config.get_ports().first().copied().unwrap_or(PORT);
                    (number, format!("{name}:{port}: {why}"))
                }
                _ => (number, why),
            })
        });
    }
    let Opened { client, socket, hearing } = first_opened(tries, patience).await?;
    let _ = hearing.set(Box::new(hear));
    Ok((client, socket))
}

async fn open_host(
    config: &Config,
    tls: Option<MakeRustlsConnect>,
    (settings, most): (&str, &AtomicU64),
    patience: Duration,
) -> Result<Opened, String> {
    let hearing = Arc::<OnceLock<Hearing>>::default();
    let heard = Arc::clone(&hearing);
    let hear = move |message| {
        if let Some(hear) = heard.get() {
            hear(message);
        }
    };
    let (client, driving): (_, Driving) = match tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls).await.map_err(|error| describe(&error))?;
            (client, Box::pin(drive(connection, hear)))
        }
        None => {
            let (client, connection) = config.connect(NoTls).await.map_err(|error| describe(&error))?;
            (client, Box::pin(drive(connection, hear)))
        }
    };
    let mut socket = Socket(Some(driving));
    let confirmed = async {
        client.batch_execute(settings).await.map_err(|error| describe(&error))?;
        let found = client.simple_query(&format!("SELECT {DURABILITY}")).await;
        for message in found.map_err(|error| describe(&error))? {
            if let SimpleQueryMessage::Row(row) = message {
                expect_no_less(most, row.get(0).unwrap_or_default())?;
            }
        }
        match client.batch_execute(BARRIER).await {
            Err(error) if error.code() != Some(&SqlState::UNDEFINED_FUNCTION) => Err(describe(&error)),
            _ => Ok(()),
        }
    };
    match timeout(patience / 2, socket.serve(confirmed)).await {
        Ok(confirmed) => confirmed.map(|()| Opened { client, socket, hearing }),
        Err(_elapsed) => Err("it commits nothing: it hangs, or its replicas do not confirm".to_owned()),
    }
}

/// Reads and writes a socket.
async fn drive<S, T>(mut connection: Connection<S, T>, hear: impl Fn(Option<AsyncMessage>))
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        hear(Some(message));
    }
    hear(None);
}

/// The version of the tables.
const VERSION: &str = "SELECT version FROM keyfast.schema_version";

/// Gives numbers to databases that no front-end had before. So a flush of all databases misses none.
const ADD_DATABASES: &str = "
    UPDATE keyfast.databases
    SET numbers = numbers || ARRAY(SELECT generate_series(array_upper(numbers, 1) + 1, $1::int - 1))
    WHERE array_upper(numbers, 1) < $1::int - 1";

/// Makes the tables if there are none, and adds what those of an earlier version lack, for this number of
/// databases.
async fn check_schema(client: &mut Client, databases: usize) -> Result<(), Wrong> {
    let version = match client.query_one(VERSION, &[]).await {
        Ok(row) => row.get(0),
        Err(error) if is_missing(&error) => 0,
        Err(error) => return Err(error.into()),
    };
    if version > SCHEMA_VERSION {
        return Err(Wrong(format!(
            "its tables are of version {version}, and this program needs version {SCHEMA_VERSION}"
        )));
    }
    if version < SCHEMA_VERSION {
        make_tables(client).await.map_err(|error| {
            let why = describe(&error);
            Wrong(match version {
                0 => format!("its tables cannot be made: {why}"),
                _ => format!(
                    "its tables are of version {version}, and what version {SCHEMA_VERSION} needs cannot be \
                     added: {why}. A user who may has to run src/remote/postgres/databases.sql"
                ),
            })
        })?;
    }
    client.execute(ADD_DATABASES, &[&(databases as i32)]).await?;
    Ok(())
}

/// Makes the tables, or what they lack. One front-end at a time does, and another one may have done it
/// meanwhile.
async fn make_tables(client: &mut Client) -> Result<(), Error> {
    const IS_THERE: &str = "SELECT to_regclass('keyfast.schema_version') IS NOT NULL";
    let tx = client.transaction().await?;
    tx.batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCK_KEY})")).await?;
    let version = match tx.query_one(IS_THERE, &[]).await?.get(0) {
        true => tx.query_one(VERSION, &[]).await?.get(0),
        false => 0,
    };
    for (_, step) in STEPS.iter().filter(|(makes, _)| *makes > version) {
        tx.batch_execute(step).await?;
    }
    tx.commit().await
}

fn is_missing(error: &Error) -> bool {
    let is_meant =
        |code: &SqlState| *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME;
    error.code().is_some_and(is_meant)
}

/// Makes the front-end's own row. Returns its number.
async fn register(client: &Client, name: &str) -> Result<i64, Error> {
    const REGISTER: &str = "
        INSERT INTO keyfast.fronts (front, name, last, seen)
        VALUES (nextval('keyfast.front'), $1, 0, {now}) RETURNING front";
    let row = client.query_one(&whole_statement(REGISTER), &[&name]).await?;
    Ok(row.get(0))
}

/// Says what to do about a pooler that gives each transaction another connection of the server. Nothing that
/// a session has set is sure there, so it must not go on by luck.
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
