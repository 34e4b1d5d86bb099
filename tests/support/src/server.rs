//! Starts the real program on a port of its own, and ends it.
//!
//! With `KEYFAST_TEST_SERVER=/path/to/redis-server` the same conversations are held with a real Redis, which
//! tells whether a test asks for the right thing. With `KEYFAST_TEST_STORE=postgres://user@host:port` each
//! server keeps its keys in a database of its own there, and with `etcd://host:port` below a prefix of its
//! own.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::client::Client;
use crate::folder::Folder;
use crate::marks::{self, Mark};
use crate::open_files;
use crate::tools::installed;

/// How long anything may take that should be done at once, on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until it is so, for as long as patience lasts. The pauses are short: some of it is soon over.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// A running server; it ends with this value.
pub struct Server {
    child: Child,
    port: u16,
    output: Arc<Output>,
    /// The folder that it was started in, if it has one of its own: gone with it.
    folder: Option<Folder>,
}

/// How many servers were started in folders of their own.
static SERVERS: AtomicUsize = AtomicUsize::new(0);

/// What a server has printed so far.
#[derive(Default)]
struct Output {
    printed: Mutex<Printed>,
    /// There is more text, or one pipe less.
    has_changed: Condvar,
}

#[derive(Default)]
struct Printed {
    text: String,
    /// Pipes from which more may come.
    open_pipes: usize,
}

/// The program under test.
#[track_caller]
pub fn program() -> String {
    if tests_redis() {
        marks::require(Mark::AlsoRedis);
    }
    std::env::var("KEYFAST_TEST_SERVER").unwrap_or_else(|_| built())
}

/// The program that was built with this test: cargo puts it beside the folder of the tests.
pub fn built() -> String {
    let test = std::env::current_exe().expect("this test");
    let folder = test.ancestors().nth(2).expect("a folder above that of the tests");
    folder.join("keyfast").into_os_string().into_string().expect("a path in UTF-8")
}

/// Whether it is a real Redis. Only a test with the mark `also_redis` may ask that, on its own thread.
#[track_caller]
pub fn is_redis() -> bool {
    marks::require(Mark::AlsoRedis);
    tests_redis()
}

fn tests_redis() -> bool {
    std::env::var_os("KEYFAST_TEST_SERVER").is_some()
}

/// The store in which servers keep their keys, if they do.
pub fn store() -> Option<String> {
    std::env::var("KEYFAST_TEST_STORE").ok().filter(|_| !tests_redis())
}

impl Server {
    /// A server with nothing in it, on a free port of the loopback address.
    pub fn start() -> Server {
        Server::start_with(&[])
    }

    /// The same with more options.
    pub fn start_with(options: &[&str]) -> Server {
        Server::start_on(if tests_redis() { free_port() } else { 0 }, options)
    }

    /// The same on a port that is known already.
    pub fn start_on(port: u16, options: &[&str]) -> Server {
        Server::start_program(&program(), port, options)
    }

    /// A real Redis on a free port, where one is installed.
    pub fn start_redis(options: &[&str]) -> Option<Server> {
        installed("redis-server").map(|_| Server::start_program("redis-server", free_port(), options))
    }

    fn start_program(program: &str, port: u16, options: &[&str]) -> Server {
        let port_option = port.to_string();
        let mut arguments = vec!["--port", &port_option, "--save", ""];
        if !options.contains(&"--bind") {
            arguments.extend(["--bind", "127.0.0.1"]);
        }
        // Two servers without `dir` share no snapshot.
        let folder = Folder::new(&format!("server-{}", SERVERS.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new(program);
        command.current_dir(folder.path()).args(arguments).args(options).stdin(Stdio::null());
        if let Some(store) = store().filter(|_| !options.contains(&"--store")) {
            command.args(["--store", &new_place(&store)]);
        }
        let mut server = Server::run(&mut command, port);
        server.folder = Some(folder);
        server
    }

    /// What a command runs, on this port, or for 0 on the one that it announces.
    pub fn run(command: &mut Command, port: u16) -> Server {
        open_files::raise_limit();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server's program starts");
        let output = Arc::new(Output::default());
        output.collect(child.stdout.take().expect("a pipe"));
        output.collect(child.stderr.take().expect("a pipe"));
        let mut server = Server { child, port, output, folder: None };
        server.wait_for_output("Ready to accept connections");
        if port == 0 {
            server.port = server.announced_port();
        }
        server
    }

    fn announced_port(&self) -> u16 {
        let output = self.output();
        let line = output.lines().find(|line| line.contains("Listening on")).expect("the port is logged");
        let port = line.rsplit(':').next().unwrap();
        port.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().expect("a port")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// A connection that keeps this server to itself, and running.
    pub fn into_client(self) -> Client {
        self.client().keeping(self)
    }

    /// A new connection that speaks RESP3.
    pub fn client3(&self) -> Client {
        let mut client = self.client();
        client.cmd(["HELLO", "3"]).ignored();
        client
    }

    /// Has a client send a line that makes it wait. Returns when the server knows of it.
    #[track_caller]
    pub fn have_wait(&self, client: &mut Client, line: &str) {
        client.send_and_wait(&mut self.client(), line);
    }

    /// Everything printed so far.
    pub fn output(&self) -> String {
        self.output.printed.lock().unwrap().text.clone()
    }

    /// Waits until something has been printed.
    #[track_caller]
    pub fn wait_for_output(&self, part: &str) {
        if let Err(text) = self.output.wait_while(|printed| !printed.text.contains(part)) {
            panic!("the server never printed {part:?}, but:\n{text}");
        }
    }

    /// Its number in the system.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Memory that the system holds for it, in bytes. The pages of the program itself do not count: the
    /// system loads each when it is first used.
    pub fn resident_bytes(&self) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process_id())).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("anonymous memory");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        signal(self.process_id(), name);
    }

    /// Waits until it has ended and all that it printed has come.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        if let Err(text) = self.output.wait_while(|printed| printed.open_pipes > 0) {
            panic!("the server does not end:\n{text}");
        }
        self.child.wait().expect("a child")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Output {
    /// Collects what a pipe gives, in a thread of its own, so that it never fills.
    fn collect(self: &Arc<Self>, pipe: impl Read + Send + 'static) {
        let output = Arc::clone(self);
        output.printed.lock().unwrap().open_pipes += 1;
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let text = &mut output.printed.lock().unwrap().text;
                text.push_str(&line);
                text.push('\n');
                output.has_changed.notify_all();
            }
            output.printed.lock().unwrap().open_pipes -= 1;
            output.has_changed.notify_all();
        });
    }

    /// Waits as long as the function is true. Fails with the text so far if that takes too long.
    fn wait_while(&self, is_missing: impl Fn(&Printed) -> bool) -> Result<(), String> {
        let printed = self.printed.lock().unwrap();
        let (printed, waited) =
            self.has_changed.wait_timeout_while(printed, PATIENCE, |printed| is_missing(printed)).unwrap();
        if waited.timed_out() { Err(printed.text.clone()) } else { Ok(()) }
    }
}

/// Sends a process a signal, by its name without `SIG`. One that is stopped has stopped when this returns.
#[track_caller]
pub fn signal(process_id: u32, name: &str) {
    assert!(try_signal(process_id, name), "no process of this user");
}

/// The same for a process that may have ended; returns whether it was there.
#[track_caller]
pub fn try_signal(process_id: u32, name: &str) -> bool {
    let signal: Signal = format!("SIG{name}").parse().expect("a signal");
    let process = Pid::from_raw(process_id.try_into().expect("the number of a process"));
    let is_there = nix::sys::signal::kill(process, signal).is_ok();
    if signal == Signal::SIGSTOP {
        // The system stops its threads once one of them has run again. On a busy machine, others go on for
        // long.
        wait_until("the process has stopped", || !is_running(process_id));
    }
    is_there
}

/// Whether a thread of a process runs, or may run.
fn is_running(process_id: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process_id}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state is behind the name, which may have any characters.
        stat.rsplit(')')
            .next()
            .and_then(|rest| rest.trim().chars().next())
            .is_some_and(|state| !"TtZX".contains(state))
    })
}

/// The URL of a new database in a store.
fn new_place(store: &str) -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    if store.starts_with("etcd:") {
        return format!("{store}/{name}");
    }
    let statement = format!("CREATE DATABASE {name}");
    let made = Command::new("psql").args(["-qc", &statement, &format!("{store}/postgres")]).status();
    assert!(made.expect("psql runs").success());
    format!("{store}/{name}?sslmode=disable")
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Ends threads that run until this is set, also if the test fails: a scope waits for its threads.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
