//! Opens connections to the host that can be used.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::confirmations::{DURABILITY, expect_no_less};
use super::describe;
use crate::remote::Remote;
use crate::remote::hosts::first_opened;
use crate::remote::target::Target;

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
pub(super) const BARRIER: &str = "SELECT pg_logical_emit_message(true, 'keyfast', '')";
/// The port of a host for which the URL has none.
const PORT: u16 = 5432;

/// For how long a connection may be silent before the system asks whether the other machine is still there.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Reads and writes a socket until the connection ends.
type Driving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A socket that is read and written by the task that waits for an answer. A task of its own would have to be
/// woken for each batch, and would have to wake the other one for each answer.
pub(super) struct Socket(Option<Driving>);

impl Socket {
    pub(super) async fn serve<T>(&mut self, answers: impl Future<Output = T>) -> T {
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
pub(super) struct Closing(JoinHandle<()>);

impl Closing {
    pub(super) fn of(socket: Socket) -> Closing {
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

/// Opens a connection to the first host that commits something, which takes its replicas: a primary that was
/// deposed, hangs or is cut off is of no use. All hosts are tried at once.
///
/// The first commit may have to wait for replicas that are away. PostgreSQL goes on waiting for them when the
/// connection is closed, and the session counts as one of those that it allows. So such a connection is kept,
/// one for each host, and the next attempt waits for the same one.
pub(super) async fn open(
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
        let (room, tls, settings) = (remote.rooms.of(number), tls.clone(), settings(remote));
        let most = Arc::clone(&remote.health.confirmations);
        tries.spawn(async move {
            let host = config.clone();
            let begin = move || Opening(tokio::spawn(open_host(host, tls, (settings, most), patience)));
            let opened = room.wait_for(begin, patience / 2).await;
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

/// The connections of a front-end that are being opened, by the numbers of the hosts.
#[derive(Debug, Default)]
pub(in crate::remote) struct Rooms(Mutex<Vec<Room>>);

/// The connection to a host that is being opened, if one is.
#[derive(Clone, Debug, Default)]
struct Room(Arc<tokio::sync::Mutex<Option<Opening>>>);

/// A connection on its way to its first commit.
#[derive(Debug)]
struct Opening(JoinHandle<Result<Opened, String>>);

impl Rooms {
    fn of(&self, number: usize) -> Room {
        let mut rooms = self.0.lock();
        if rooms.len() <= number {
            rooms.resize_with(number + 1, Room::default);
        }
        rooms[number].clone()
    }
}

impl Room {
    /// Waits for the connection that is being opened, or for one that begins now.
    async fn wait_for(&self, begin: impl FnOnce() -> Opening, patience: Duration) -> Result<Opened, String> {
        let mut room = self.0.lock().await;
        // One that has been ready for a while may be that of a primary that was replaced since.
        room.take_if(|opening| opening.0.is_finished());
        let opening = room.get_or_insert_with(begin);
        match timeout(patience, &mut opening.0).await {
            Ok(opened) => {
                *room = None;
                opened.unwrap_or_else(|_ended| Err("the attempt has ended".to_owned()))
            }
            Err(_elapsed) => Err("it commits nothing: it hangs, or its replicas do not confirm".to_owned()),
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection to one host.
struct Opened {
    client: Client,
    socket: Socket,
    /// Set when the connection was chosen.
    hearing: Arc<OnceLock<Hearing>>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

async fn open_host(
    config: Config,
    tls: Option<MakeRustlsConnect>,
    (settings, most): (String, Arc<AtomicU64>),
    patience: Duration,
) -> Result<Opened, String> {
    let hearing = Arc::<OnceLock<Hearing>>::default();
    let heard = Arc::clone(&hearing);
    let hear = move |message| {
        if let Some(hear) = heard.get() {
            hear(message);
        }
    };
    let connecting = async {
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
        socket.serve(prepare(&client, &settings, &most)).await?;
        Ok::<_, String>((client, socket))
    };
    let (client, mut socket) = timeout(patience, connecting).await.map_err(|_elapsed| "it hangs")??;
    // However long that takes.
    match socket.serve(client.batch_execute(BARRIER)).await {
        Err(error) if error.code() != Some(&SqlState::UNDEFINED_FUNCTION) => Err(describe(&error)),
        _ => Ok(Opened { client, socket, hearing }),
    }
}

/// Sets what each session needs, and looks at how many replicas confirm a commit.
async fn prepare(client: &Client, settings: &str, most: &AtomicU64) -> Result<(), String> {
    client.batch_execute(settings).await.map_err(|error| describe(&error))?;
    let found = client.simple_query(&format!("SELECT {DURABILITY}")).await;
    for message in found.map_err(|error| describe(&error))? {
        if let SimpleQueryMessage::Row(row) = message {
            expect_no_less(most, row.get(0).unwrap_or_default())?;
        }
    }
    Ok(())
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
        .keepalives_idle(all.get_keepalives_idle().min(KEEPALIVE))
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
    config.keepalives_interval(all.get_keepalives_interval().unwrap_or(KEEPALIVE).min(KEEPALIVE));
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
