//! Opens the ports and the Unix socket, and accepts clients.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::select;
use tokio::task::JoinSet;

use crate::certificates::why_not_greeted;
use crate::clients::{Address, Client, Leaving, Registration};
use crate::config::{Config, Text};
use crate::instance::Instance;
use crate::platform::sockets;
use crate::statistics::Count;

use super::carrier::Carrier;
use super::runner::Runner;
use super::tls::{self, Tls};
use super::unix::SocketFile;
use super::wire::Wire;
use crate::host::rota::{Clientele, LaneTicket};

/// The error for a client beyond `maxclients`.
const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

/// The error for a client from another machine while nothing protects the data (`protected-mode`).
const PROTECTED: &[u8] =
    b"-DENIED Redis is running in protected mode because protected mode is enabled and no \
    password is set for the default user. In this mode connections are only accepted from the loopback \
    interface. If you want to connect from external computers to Redis you may adopt one of the following \
    solutions: 1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the \
    loopback interface by connecting to Redis from the same host the server is running, however MAKE SURE \
    Redis is not publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change \
    permanent. 2) Alternatively you can just disable the protected mode by editing the Redis configuration \
    file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started \
    the server manually just for testing, restart it with the '--protected-mode no' option. 4) Setup a an \
    authentication password for the default user. NOTE: You only need to do one of the above things in order \
    for the server to start accepting connections from the outside.\r\n";

/// Bytes that a client takes beside the future that serves it, while it sends nothing and gets nothing: what
/// others see of it, and its places in lists, among them the system's.
const BASE_BYTES: usize = size_of::<Client>() + 400;
/// What TLS takes beside that, about.
const SECURE_BYTES: usize = 3800;

/// How long accepting pauses when the system has no more sockets.
const PAUSE_WITHOUT_SOCKETS: Duration = Duration::from_millis(100);

/// How many ports to try until one is free on all addresses.
const FREE_PORT_ATTEMPTS: usize = 16;

/// An address of a parameter like `bind`.
struct BindAddress {
    ip: IpAddr,
    /// Whether the server starts without it if the machine has no such address.
    is_optional: bool,
}

/// The sockets that the server listens on.
#[derive(Debug)]
pub(super) struct Listeners {
    tcp: Vec<TcpListener>,
    tls: Vec<TcpListener>,
    /// The TLS handshake, for clients that use TLS.
    greeter: Option<Tls>,
    unix: Option<(UnixListener, SocketFile)>,
}

/// Opens the ports and the socket of the parameters.
pub(super) fn open(instance: &Instance) -> Result<Listeners, String> {
    let config = &instance.config;
    let (port, tls_port) = (config.port.get() as u16, config.tls_port.get() as u16);
    let greeter = if tls_port == 0 { None } else { Some(Tls::of(config)?) };
    if let Some(greeter) = greeter.clone() {
        // It is set here only.
        let _ = instance.renew_tls.set(Box::new(move |config| greeter.renew(config)));
    }
    let has_other_ways = greeter.is_some() || !config.unixsocket.get().is_empty();
    let tcp = if port == 0 && has_other_ways { Vec::new() } else { open_port(config, &config.bind, port)? };
    let tls = if tls_port == 0 { Vec::new() } else { open_port(config, &config.bind, tls_port)? };
    // Last, as in Redis: if a port is taken, the socket may belong to the server that has taken it.
    let unix = SocketFile::open(config)?;
    for listener in tcp.iter().chain(&tls) {
        tracing::info!("Listening on {}", listener.local_addr().map_err(|error| error.to_string())?);
    }
    // Redis: the port for TLS counts where there is no other.
    let chosen = tcp.iter().chain(&tls).find_map(|listener| listener.local_addr().ok());
    instance.listening_port.store(chosen.map_or(0, |address| address.port()), Ordering::Relaxed);
    Ok(Listeners { tcp, tls, greeter, unix })
}

impl Listeners {
    /// Logs how clients can connect, in the words that tools wait for.
    pub(super) fn announce(&self) {
        if !self.tcp.is_empty() {
            tracing::info!("Ready to accept connections tcp");
        }
        if self.unix.is_some() {
            tracing::info!("Ready to accept connections unix");
        }
        if !self.tls.is_empty() {
            tracing::info!("Ready to accept connections tls");
        }
    }
}

/// Opens a port on every address of a parameter like `bind`.
pub(super) fn open_port(config: &Config, bind: &Text, port: u16) -> Result<Vec<TcpListener>, String> {
    let addresses = addresses(&bind.get())?;
    let backlog = config.tcp_backlog.get() as i32;
    let attempts = if port == 0 { FREE_PORT_ATTEMPTS } else { 1 };
    let mut failure = String::from("no address to listen on");
    for _ in 0..attempts {
        match open_all(&addresses, port, backlog) {
            Ok(listeners) if !listeners.is_empty() => return Ok(listeners),
            Ok(_) => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Opens one port on all addresses: `port`, or for 0 the free port that the first address gets.
fn open_all(addresses: &[BindAddress], mut port: u16, backlog: i32) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    for address in addresses {
        let target = SocketAddr::new(address.ip, port);
        let opened =
            open_one(target, backlog).and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        match opened {
            Ok((chosen, listener)) => {
                port = chosen;
                listeners.push(listener);
            }
            Err(error) if address.is_optional && is_missing_address(&error) => {
                tracing::debug!("Not listening on {target}: {error}");
            }
            Err(error) => return Err(format!("could not listen on {target}: {error}")),
        }
    }
    Ok(listeners)
}

fn open_one(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // IPv4 has a socket of its own.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(StdListener::from(socket))
}

/// Whether the machine lacks the address, or its whole family.
fn is_missing_address(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || sockets::is_missing_family(error)
}

fn addresses(bind: &[u8]) -> Result<Vec<BindAddress>, String> {
    let bind = String::from_utf8_lossy(bind);
    let mut addresses = Vec::new();
    for word in bind.split_whitespace() {
        let (name, is_optional) = word.strip_prefix('-').map_or((word, false), |name| (name, true));
        let ip = match name {
            "*" => Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            "::*" => Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            name => resolve(name),
        };
        match ip {
            Ok(ip) => addresses.push(BindAddress { ip, is_optional }),
            Err(_) if is_optional => {}
            Err(error) => return Err(format!("could not listen on '{name}': {error}")),
        }
    }
    Ok(addresses)
}

fn resolve(name: &str) -> io::Result<IpAddr> {
    let found = (name, 0).to_socket_addrs()?.next();
    found.map(|address| address.ip()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// Accepts clients of an instance until the returned value is dropped.
pub(super) fn accept_all(
    instance: &Arc<Instance>,
    clientele: &Arc<Clientele>,
    listeners: Listeners,
) -> JoinSet<()> {
    let reception = || Reception { instance: Arc::clone(instance), clientele: Arc::clone(clientele) };
    let mut accepting = JoinSet::new();
    for listener in listeners.tcp {
        accepting.spawn(accept_tcp(reception(), listener, None));
    }
    for listener in listeners.tls {
        accepting.spawn(accept_tcp(reception(), listener, listeners.greeter.clone()));
    }
    if let Some((listener, file)) = listeners.unix {
        accepting.spawn(accept_unix(reception(), listener, file));
    }
    accepting
}

/// Where clients come in.
struct Reception {
    instance: Arc<Instance>,
    clientele: Arc<Clientele>,
}

async fn accept_tcp(reception: Reception, listener: TcpListener, greeter: Option<Tls>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let instance = &reception.instance;
                instance.charged(|| admit_tcp(&reception, stream, address, greeter.clone()));
            }
            Err(error) => pause_accepting(&error).await,
        }
    }
}

async fn accept_unix(reception: Reception, listener: UnixListener, file: SocketFile) {
    let address = Address::Unix(file.name().into());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => reception.instance.charged(|| admit_unix(&reception, stream, &address)),
            Err(error) => pause_accepting(&error).await,
        }
    }
}

/// Waits until there may be sockets again, if the error is that there are none. Every other error concerns
/// a single connection, such as one that was reset before it was accepted.
pub(super) async fn pause_accepting(error: &io::Error) {
    tracing::warn!("Error accepting a client connection: {error}");
    if sockets::is_shortage(error) {
        tokio::time::sleep(PAUSE_WITHOUT_SOCKETS).await;
    } else {
        tokio::task::yield_now().await;
    }
}

/// Serves a client that has connected to the Unix socket.
fn admit_unix(reception: &Reception, stream: UnixStream, address: &Address) {
    if let Some(registration) = admit(&reception.instance, &stream, address.clone(), address.clone()) {
        serve(reception, stream, registration);
    }
}

/// Serves a client that has connected to a port.
fn admit_tcp(reception: &Reception, stream: TcpStream, address: SocketAddr, greeter: Option<Tls>) {
    let instance = &reception.instance;
    let local_address = match prepare(instance, &stream) {
        Ok(local_address) => Address::Tcp(local_address),
        Err(error) => return tracing::debug!("Client {address} left at once: {error}"),
    };
    let address = Address::Tcp(address);
    match greeter {
        None => {
            if let Some(registration) = admit(instance, &stream, address, local_address) {
                serve(reception, stream, registration);
            }
        }
        // Before the handshake it would not understand an error. As in Redis, it gets none.
        Some(_) if is_full(instance) => instance.statistics.add(Count::ConnectionsRejected, 1),
        Some(greeter) => {
            let registration = register(instance, &stream, address, local_address);
            let instance = Arc::clone(instance);
            // The next client need not wait for the handshake of this one.
            reception.clientele.add(|ticket| {
                let client = Arc::clone(&registration.client);
                let serving = serve_tls(instance, stream, registration, greeter, ticket);
                client.footprint.set_base(BASE_BYTES + SECURE_BYTES + size_of_val(&serving));
                serving
            });
        }
    }
}

/// Registers a client, or sends it the reason why it is not served.
fn admit(
    instance: &Instance,
    stream: &(impl AsFd + AsRawFd),
    address: Address,
    local_address: Address,
) -> Option<Registration> {
    let refusal = if is_full(instance) {
        TOO_MANY_CLIENTS
    } else if is_barred(instance, &address) {
        PROTECTED
    } else {
        instance.statistics.add(Count::ConnectionsReceived, 1);
        return Some(register(instance, stream, address, local_address));
    };
    instance.statistics.add(Count::ConnectionsRejected, 1);
    // The client may have left already.
    let _ = SockRef::from(stream).send(refusal);
    None
}

/// Whether there is no place for another client.
fn is_full(instance: &Instance) -> bool {
    instance.clients.count_everywhere() >= instance.config.maxclients.size()
}

/// Whether the client is on another machine and nothing protects the data from it. As in Redis 7, the
/// addresses that the server listens on do not matter.
fn is_barred(instance: &Instance, address: &Address) -> bool {
    let is_open = instance.users.default_user().grants().needs_no_password;
    instance.config.protected_mode.get() && is_open && !address.is_local()
}

fn register(
    instance: &Instance,
    stream: &impl AsRawFd,
    address: Address,
    local_address: Address,
) -> Registration {
    tracing::debug!("Accepted {address}");
    instance.stir();
    instance.clients.register(address, local_address, stream.as_raw_fd())
}

/// Serves a client in a task of its own.
fn serve<Stream>(reception: &Reception, stream: Stream, registration: Registration)
where
    Stream: Wire + Send + 'static,
{
    let instance = Arc::clone(&reception.instance);
    reception.clientele.add(|ticket| {
        let client = Arc::clone(&registration.client);
        let mut runner = Runner::new(instance, Carrier::new(stream, ticket), registration);
        let serving = async move { runner.serve().await };
        client.footprint.set_base(BASE_BYTES + size_of_val(&serving));
        serving
    });
}

/// Makes the handshake with a client and serves it. The client counts for `maxclients` from the beginning,
/// and can be disconnected.
async fn serve_tls(
    instance: Arc<Instance>,
    stream: TcpStream,
    registration: Registration,
    greeter: Tls,
    ticket: LaneTicket,
) {
    let client = Arc::clone(&registration.client);
    let greeted = select! {
        greeted = greeter.greet(stream) => greeted,
        () = client.asked_to_leave(Leaving::WhenAnswered) => return,
    };
    match greeted {
        Err(error) => {
            let why = why_not_greeted(&error).unwrap_or_else(|| error.to_string());
            tracing::debug!("Error accepting a TLS client {}: {why}", client.address);
        }
        Ok(mut stream) if is_barred(&instance, &client.address) => {
            instance.statistics.add(Count::ConnectionsRejected, 1);
            tls::end(&mut stream, PROTECTED).await;
        }
        Ok(stream) => {
            instance.statistics.add(Count::ConnectionsReceived, 1);
            let mut runner = Runner::new(instance, Carrier::new(stream, ticket), registration);
            runner.serve().await;
            tls::end(&mut runner.carrier.stream, &[]).await;
        }
    }
}

fn prepare(instance: &Instance, stream: &TcpStream) -> io::Result<SocketAddr> {
    // Replies are written whole: waiting to fill a packet would only delay them.
    stream.set_nodelay(true)?;
    if let Some(interval) = instance.keepalive() {
        sockets::keep_alive(SockRef::from(stream), Some(interval))?;
    }
    stream.local_addr()
}
