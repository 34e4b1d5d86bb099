//! A session with a server: the state that redis-cli keeps between commands.
//!
//! A lost connection is opened again, with the same password, database and protocol. Changes by commands
//! (SELECT, MULTI, RESET …) are noted, for the prompt and for a new connection.

use std::env;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::rc::Rc;
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::connection::{Connection, Failure};
use super::format::{write_invalidated, write_raw, write_reply};
use super::help::{self, Help};
use super::options::{Options, Output, Wanted};
use super::replies::{Aggregate, Message};
use super::terminal::{Shown, complain, is_terminal};
use super::{Result, Stop, say};

/// The connection to a server and the state around it.
pub(super) struct Session {
    pub(super) options: Options,
    /// The documentation of commands, once it was fetched.
    help: Option<Rc<Help>>,
    runtime: Rc<Runtime>,
    connection: Option<Connection>,
    /// Ctrl-C, if it does not end the program.
    interrupt: Option<Signal>,
    /// Whether a lost connection is opened again.
    is_interactive: bool,
    /// Whether the user has sent SHUTDOWN.
    is_shutting_down: bool,
    /// Whether replies come without end (MONITOR, SUBSCRIBE).
    is_streaming: bool,
    /// Whether an interactive session listens to channels: messages may come at any time.
    is_subscribed: bool,
    /// The database of the connection; `options` has the one that is wanted.
    database: i64,
    transaction: Option<Transaction>,
}

/// A transaction that is being queued.
struct Transaction {
    /// The database before MULTI, which DISCARD restores.
    database: i64,
}

/// What to do with push messages.
#[derive(Clone, Copy)]
enum Pushes<'a> {
    /// Print them if the options say so, and continue to wait for the reply.
    Aside,
    /// Treat them as replies.
    AsReplies,
    /// Treat a push as the reply if it confirms this command.
    Confirming(&'a [u8]),
}

/// A command in RESP.
pub(super) fn request(command: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Compares a word of a command without regard to case, as the server does.
pub(super) fn is_word(argument: Option<&Vec<u8>>, word: &str) -> bool {
    argument.is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
}

impl Session {
    /// A session that is not connected yet.
    pub(super) fn new(options: Options) -> io::Result<Session> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Session {
            options,
            help: None,
            runtime: Rc::new(runtime),
            connection: None,
            interrupt: None,
            is_interactive: false,
            is_shutting_down: false,
            is_streaming: false,
            is_subscribed: false,
            database: 0,
            transaction: None,
        })
    }

    /// From now on a lost connection does not end the program. On a terminal, Ctrl-C ends only the current
    /// wait.
    pub(super) fn become_interactive(&mut self, is_at_terminal: bool) {
        self.is_interactive = true;
        if is_at_terminal {
            let _guard = self.runtime.enter();
            // Without it Ctrl-C ends the program.
            self.interrupt = signal(SignalKind::interrupt()).ok();
        }
    }

    /// The prompt: the server's address, the database, and the transaction.
    pub(super) fn prompt(&self) -> String {
        if self.connection.is_none() {
            return "not connected> ".to_owned();
        }
        let place = match &self.options.socket {
            Some(socket) => format!("{} {}", self.options.family.name(), socket.display()),
            None if self.options.host.contains(':') => {
                format!("[{}]:{}", self.options.host, self.options.port)
            }
            None => format!("{}:{}", self.options.host, self.options.port),
        };
        let database = if self.database == 0 { String::new() } else { format!("[{}]", self.database) };
        let transaction = if self.transaction.is_some() { "(TX)" } else { "" };
        let subscribed = if self.is_subscribed { "(subscribed mode)" } else { "" };
        format!("{place}{database}{transaction}{subscribed}> ")
    }

    /// Whether messages of channels may come at any time.
    pub(super) fn is_subscribed(&self) -> bool {
        self.is_subscribed
    }

    /// Prints messages until the user types something, which `has_input` says is there already, or presses
    /// Ctrl-C. Then the session listens no more.
    pub(super) fn wait_for_messages(&mut self, has_input: bool) -> Result<()> {
        const HINT: &str = "Reading messages... (press Ctrl-C to quit or any key to type command)\r";
        let has_colors = env::var("TERM").is_ok_and(|term| term.contains("xterm"));
        let hint = if has_colors { format!("\x1b[1;90m{HINT}\x1b[0m") } else { HINT.to_owned() };
        let shows_hint = self.options.output != Output::Raw && is_terminal();
        while self.is_subscribed && !has_input {
            if shows_hint {
                show_at_once(&hint)?;
            }
            let connection = self.connection.as_mut().ok_or(Stop::Lost)?;
            let message = connection.receive_unless_input(self.interrupt.as_mut());
            if shows_hint {
                show_at_once("\x1b[K")?;
            }
            match message {
                Ok(Some(message)) => self.print(&message, false)?,
                Ok(None) => return Ok(()),
                Err(Failure::Interrupted) => return self.listen_no_more(),
                Err(failure) => {
                    complain(format_args!("Error: {failure}"));
                    return Err(Stop::Exit(1));
                }
            }
        }
        Ok(())
    }

    /// Ends the subscriptions. Only a new connection does that for all of them.
    pub(super) fn listen_no_more(&mut self) -> Result<()> {
        if self.connect()? { Ok(()) } else { Err(Stop::Exit(1)) }
    }

    /// Whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Connects to another server.
    pub(super) fn move_to(&mut self, host: &[u8], port: &[u8]) -> Result<()> {
        let Ok(port) = String::from_utf8_lossy(port).parse() else {
            return say("Invalid server port.");
        };
        self.options.host = String::from_utf8_lossy(host).into_owned();
        self.options.port = port;
        self.connect()?;
        Ok(())
    }

    /// Connects, and prints an error if that fails. Returns whether everything succeeded. If not, there may
    /// still be a connection, on which the server refused something.
    pub(super) fn connect(&mut self) -> Result<bool> {
        self.open(false)
    }

    /// Connects like [`connect`](Self::connect), but prints no error if no server listens: the first command
    /// will.
    pub(super) fn connect_quietly(&mut self) -> Result<bool> {
        self.open(true)
    }

    /// Connects; ends the program if that fails.
    pub(super) fn must_connect(&mut self) -> Result<()> {
        if self.connect()? { Ok(()) } else { Err(Stop::Exit(1)) }
    }

    fn open(&mut self, is_quiet: bool) -> Result<bool> {
        self.connection = None;
        self.database = 0;
        self.transaction = None;
        self.is_subscribed = false;
        match Connection::open(&self.runtime, &self.options) {
            Ok(connection) => self.connection = Some(connection),
            Err(why) => {
                if !is_quiet {
                    complain(why);
                }
                return Ok(false);
            }
        }
        Ok(self.authenticate()? && self.select()? && self.choose_protocol()? && self.give_name()?)
    }

    fn authenticate(&mut self) -> Result<bool> {
        let Some(password) = self.options.password.clone() else { return Ok(true) };
        let command = [Some(b"AUTH".to_vec()), self.options.user.clone(), Some(password)];
        let command: Vec<Vec<u8>> = command.into_iter().flatten().collect();
        self.is_accepted(&command, "AUTH")
    }

    fn select(&mut self) -> Result<bool> {
        let database = self.options.database;
        if database == self.database {
            return Ok(true);
        }
        let command = format!("SELECT {database}");
        let is_selected = self.is_accepted(&command.split(' ').collect::<Vec<_>>(), &command)?;
        if is_selected {
            self.database = database;
        }
        Ok(is_selected)
    }

    fn choose_protocol(&mut self) -> Result<bool> {
        let must_be = match self.options.protocol {
            Wanted::Any | Wanted::Resp2 => return Ok(true),
            Wanted::Resp3 => true,
            Wanted::Resp3IfPossible => false,
        };
        Ok(self.is_accepted(&["HELLO", "3"], "HELLO 3")? || !must_be)
    }

    fn give_name(&mut self) -> Result<bool> {
        let Some(name) = self.options.name.clone() else { return Ok(true) };
        self.is_accepted(&[&b"CLIENT"[..], b"SETNAME", &name], "CLIENT SETNAME")
    }

    /// Sends a command; prints an error if it fails.
    fn is_accepted(&mut self, command: &[impl AsRef<[u8]>], name: &str) -> Result<bool> {
        match self.ask(command) {
            Ok(Message::Error(why)) => {
                complain(format_args!("{name} failed: {}", String::from_utf8_lossy(&why)));
                Ok(false)
            }
            Ok(_) => Ok(true),
            Err(Failure::Interrupted) => Err(Stop::Exit(1)),
            Err(_) => {
                complain("\nI/O error");
                Ok(false)
            }
        }
    }

    /// Sends a command and returns its reply without printing it.
    pub(super) fn ask(&mut self, command: &[impl AsRef<[u8]>]) -> std::result::Result<Message, Failure> {
        self.send(&request(command))?;
        self.receive(Pushes::Aside)
    }

    /// Sends several commands at once and returns their replies; ends the program if that fails.
    pub(super) fn must_ask_all(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Message>> {
        let requests: Vec<u8> = commands.iter().flat_map(|command| request(command)).collect();
        let asked = self.send(&requests).and_then(|()| {
            commands.iter().map(|_| self.receive(Pushes::Aside)).collect::<std::result::Result<Vec<_>, _>>()
        });
        asked.map_err(|_| lost())
    }

    /// Sends a command and returns its reply. Ends the program if there is none, or an error, which is
    /// printed behind `name`.
    pub(super) fn must_ask(&mut self, command: &[impl AsRef<[u8]>], name: &str) -> Result<Message> {
        match self.ask(command) {
            Ok(Message::Error(why)) => {
                complain(format_args!("{name} error: {}", String::from_utf8_lossy(&why)));
                Err(Stop::Exit(1))
            }
            Ok(reply) => Ok(reply),
            Err(_) => Err(lost()),
        }
    }

    /// Takes the open connection out of the session.
    pub(super) fn take_connection(&mut self) -> Option<Connection> {
        self.connection.take()
    }

    fn send(&mut self, bytes: &[u8]) -> std::result::Result<(), Failure> {
        self.connection.as_mut().ok_or(Failure::Closed)?.send(bytes)
    }

    fn receive(&mut self, pushes: Pushes<'_>) -> std::result::Result<Message, Failure> {
        loop {
            let connection = self.connection.as_mut().ok_or(Failure::Closed)?;
            let reply = connection.receive(self.interrupt.as_mut())?;
            let Message::Many(Aggregate::Push, members) = &reply else { return Ok(reply) };
            match pushes {
                Pushes::AsReplies => return Ok(reply),
                Pushes::Confirming(command) => {
                    let kind = members.first().and_then(Message::text).unwrap_or_default();
                    if kind.eq_ignore_ascii_case(command) {
                        return Ok(reply);
                    }
                }
                Pushes::Aside => {}
            }
            if self.options.shows_pushes {
                self.print_push(&reply)?;
            }
        }
    }

    fn print_push(&self, push: &Message) -> io::Result<()> {
        let mut out = Shown::new(BufWriter::new(io::stdout().lock()), is_terminal());
        match push.members() {
            [Message::Bulk(kind), Message::Many(Aggregate::Array, keys)]
                if kind == b"invalidate" && self.options.output == Output::Standard =>
            {
                write_invalidated(&mut out, keys)?;
            }
            _ => write_reply(&mut out, push, &self.options)?,
        }
        out.flush()
    }

    /// The documentation of commands, fetched once. It is empty if the server does not send it.
    pub(super) fn help(&mut self) -> Rc<Help> {
        if let Some(help) = &self.help {
            return Rc::clone(help);
        }
        let help = match self.ask(&["COMMAND", "DOCS"]) {
            Ok(Message::Error(_)) | Err(_) => Help::default(),
            Ok(reply) => Help::of(&reply),
        };
        Rc::clone(self.help.insert(Rc::new(help)))
    }

    /// Prints help: in general, for `@group`, or for all commands that begin with the given words.
    fn print_help(&mut self, asked: &[Vec<u8>]) -> Result<()> {
        if asked.is_empty() {
            return say(help::general());
        }
        if !self.is_connected() {
            self.connect_quietly()?;
        }
        let help = self.help();
        let asked: Vec<_> = asked.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        Ok(help.write(&mut io::stdout().lock(), &asked)?)
    }

    /// Sends a command `repeat` times, for ever if negative, and prints the replies.
    pub(super) fn issue(&mut self, command: &[Vec<u8>], repeat: i64) -> Result<()> {
        if is_word(command.first(), "help") || is_word(command.first(), "?") {
            return self.print_help(&command[1..]);
        }
        if self.connection.is_none() && !self.connect()? {
            return Err(Stop::Lost);
        }
        let mut left = repeat;
        while left != 0 {
            left -= i64::from(left > 0);
            let conversed = self.converse(command);
            if let Err(Stop::Lost) = conversed {
                self.connection = None;
            }
            conversed?;
            thread::sleep(self.options.interval);
        }
        Ok(())
    }

    /// Sends a command and prints all replies to it.
    fn converse(&mut self, command: &[Vec<u8>]) -> Result<()> {
        let name = command[0].to_ascii_lowercase();
        self.is_shutting_down |= name == b"shutdown";
        if let Err(failure) = self.send(&request(command)) {
            return self.lose(failure);
        }
        match &name[..] {
            b"monitor" => self.stream(Pushes::Aside),
            b"subscribe" | b"psubscribe" | b"ssubscribe" if self.is_interactive => {
                self.confirm(&name, command.len().saturating_sub(1).max(1))
            }
            b"subscribe" | b"psubscribe" | b"ssubscribe" => {
                if self.options.output != Output::Raw && io::stdout().is_terminal() {
                    say("Reading messages... (press Ctrl-C to quit)")?;
                }
                self.stream(Pushes::AsReplies)
            }
            b"unsubscribe" | b"punsubscribe" | b"sunsubscribe" => {
                self.confirm(&name, command.len().saturating_sub(1).max(1))
            }
            _ => {
                let pushes = if self.is_subscribed { Pushes::AsReplies } else { Pushes::Aside };
                let mut reply = self.print_next(is_for_people(command), pushes)?;
                while self.is_subscribed && reply.as_ref().is_some_and(is_of_channel) {
                    reply = self.print_next(is_for_people(command), pushes)?;
                }
                reply.map_or(Ok(()), |reply| self.note(command, &reply))
            }
        }
    }

    /// Prints what comes up to the last confirmation of a command: one per channel; there is no other reply.
    fn confirm(&mut self, name: &[u8], mut confirmations: usize) -> Result<()> {
        while confirmations > 0 {
            let pushes = match self.is_subscribed {
                true => Pushes::AsReplies,
                false => Pushes::Confirming(name),
            };
            let Some(reply) = self.print_next(false, pushes)? else { break };
            let kind = reply.members().first().and_then(Message::text).unwrap_or_default();
            if kind.eq_ignore_ascii_case(name) {
                confirmations -= 1;
                self.is_subscribed |= self.is_interactive && name.ends_with(b"subscribe") && !is_end(name);
            } else if !self.is_subscribed || !is_of_channel(&reply) {
                break;
            }
        }
        Ok(())
    }

    /// Prints messages until Ctrl-C or an error.
    fn stream(&mut self, pushes: Pushes<'_>) -> Result<()> {
        self.is_streaming = true;
        while self.is_streaming {
            if let Some(Message::Error(_)) = self.print_next(false, pushes)? {
                self.is_streaming = false;
            }
        }
        Ok(())
    }

    /// Prints the next reply and returns it. Returns `None` if there will be none and that is expected.
    fn print_next(&mut self, is_verbatim: bool, pushes: Pushes<'_>) -> Result<Option<Message>> {
        let reply = match self.receive(pushes) {
            Ok(reply) => reply,
            Err(failure) => return self.lose(failure).map(|()| None),
        };
        if let (Message::Error(why), false, true) = (&reply, self.is_interactive, self.options.fails_on_error)
        {
            complain(String::from_utf8_lossy(why));
            return Err(Stop::Exit(1));
        }
        self.print(&reply, is_verbatim)?;
        Ok(Some(reply))
    }

    fn print(&self, message: &Message, is_verbatim: bool) -> Result<()> {
        let mut out = Shown::new(BufWriter::new(io::stdout().lock()), is_terminal());
        if is_verbatim {
            write_raw(&mut out, message, &self.options.member_delimiter)?;
        } else {
            write_reply(&mut out, message, &self.options)?;
        }
        Ok(out.flush()?)
    }

    /// Handles a missing reply.
    fn lose(&mut self, failure: Failure) -> Result<()> {
        match failure {
            Failure::Interrupted if self.is_streaming => {
                // Only a new connection ends a stream.
                self.is_streaming = false;
                if self.connect()? { Ok(()) } else { Err(Stop::Exit(1)) }
            }
            Failure::Interrupted => Err(Stop::Exit(1)),
            _ if self.is_shutting_down => {
                self.is_shutting_down = false;
                self.connection = None;
                Ok(())
            }
            failure => {
                complain(format_args!("Error: {failure}"));
                let may_go_on = self.is_interactive && !self.is_streaming && failure.is_loss();
                Err(if may_go_on { Stop::Lost } else { Stop::Exit(1) })
            }
        }
    }

    /// Notes what a command has changed on the connection.
    fn note(&mut self, command: &[Vec<u8>], reply: &Message) -> Result<()> {
        let is_refused = matches!(reply, Message::Error(_));
        match (&command[0].to_ascii_lowercase()[..], command.len()) {
            (b"select", 2) if !is_refused => {
                self.enter(String::from_utf8_lossy(&command[1]).parse().unwrap_or(0));
            }
            (b"auth", 2 | 3) => {
                self.select()?;
            }
            (b"multi", 1) if !is_refused => self.transaction = Some(Transaction { database: self.database }),
            (b"exec", 1) => {
                let ended = self.transaction.take();
                if let (Some(ended), Message::Error(_) | Message::Nil) = (ended, reply) {
                    self.enter(ended.database);
                }
            }
            (b"discard", 1) if !is_refused => {
                if let Some(ended) = self.transaction.take() {
                    self.enter(ended.database);
                }
            }
            (b"reset", 1) if !is_refused => {
                self.transaction = None;
                self.is_subscribed = false;
                self.options.protocol = Wanted::Any;
                self.enter(0);
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, database: i64) {
        self.database = database;
        self.options.database = database;
    }
}

/// Whether a command ends subscriptions.
fn is_end(name: &[u8]) -> bool {
    name.ends_with(b"unsubscribe")
}

/// Whether a message comes from a channel, or confirms a subscription or its end.
fn is_of_channel(message: &Message) -> bool {
    const MEMBERS_MIN: usize = 3;
    let kind = message.members().first().and_then(Message::text).unwrap_or_default();
    let is_long = message.members().len() >= MEMBERS_MIN;
    is_long && (kind.ends_with(b"message") || kind.ends_with(b"subscribe"))
}

fn show_at_once(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn lost() -> Stop {
    complain("\nI/O error");
    Stop::Exit(1)
}

/// Whether the reply to a command is a text for people, which is printed without quotes.
fn is_for_people(command: &[Vec<u8>]) -> bool {
    let is = |position: usize, words: &[&str]| words.iter().any(|word| is_word(command.get(position), word));
    let count = command.len();
    is(0, &["info", "lolwut"])
        || is(0, &["debug"]) && is(1, &["htstats", "htstats-key", "client-eviction"])
        || is(0, &["memory"]) && is(1, &["malloc-stats", "doctor"])
        || count == 2 && is(0, &["cluster"]) && is(1, &["nodes", "info"])
        || is(0, &["client"]) && is(1, &["list", "info"])
        || count == 3 && is(0, &["latency"]) && is(1, &["graph"])
        || count == 2 && is(0, &["latency"]) && is(1, &["doctor"])
        || is(0, &["proxy"]) && is(1, &["info"])
}
