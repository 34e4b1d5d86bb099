//! The client's command line: each option is one row of a table, which the help is made from.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use super::quoting::unquote;

/// How the help of an option begins that is refused.
pub(super) const NOT_HERE: &str = "Not here: ";
/// The longest time to wait for a connection that is counted.
const TIMEOUT_SECONDS_MAX: f64 = 1e9;
/// How long `--pipe` waits for the last replies by default.
const PIPE_TIMEOUT: Duration = Duration::from_secs(30);
/// How many keys `--keystats` lists by default.
const TOP: usize = 10;
/// The column at which the help explains an option.
const HELP_COLUMN: usize = 22;

/// What the client must do, and how.
pub(super) struct Options {
    /// The server's name or address.
    pub(super) host: String,
    pub(super) port: u16,
    /// A Unix socket, instead of host and port.
    pub(super) socket: Option<PathBuf>,
    pub(super) tls: Option<TlsOptions>,
    /// How long to wait for a connection; `None` leaves it to the system.
    pub(super) timeout: Option<Duration>,
    /// Which addresses of a host are tried first.
    pub(super) addresses: Addresses,
    pub(super) user: Option<Vec<u8>>,
    pub(super) password: Option<Vec<u8>>,
    /// The name under which the server lists the client.
    pub(super) name: Option<Vec<u8>>,
    pub(super) database: i64,
    pub(super) protocol: Wanted,
    pub(super) output: Output,
    /// Whether pushes are printed: messages that the client did not ask for.
    pub(super) shows_pushes: bool,
    /// The delimiter between members of a raw reply.
    pub(super) member_delimiter: Vec<u8>,
    /// The delimiter after a raw reply.
    pub(super) reply_delimiter: Vec<u8>,
    /// Whether an error ends the program.
    pub(super) fails_on_error: bool,
    /// How often the command in the arguments is sent; for ever if negative.
    pub(super) repeat: i64,
    /// The pause between two of these commands.
    pub(super) interval: Duration,
    pub(super) last_argument: LastArgument,
    pub(super) is_input_quoted: bool,
    pub(super) mode: Mode,
    pub(super) pattern: Option<Vec<u8>>,
    pub(super) count: Option<u64>,
    /// `None` waits for ever.
    pub(super) pipe_timeout: Option<Duration>,
    /// Where a scan begins.
    pub(super) cursor: u64,
    /// How many keys `--keystats` lists.
    pub(super) top: usize,
    /// The remaining arguments: a command.
    pub(super) command: Vec<Vec<u8>>,
    /// Whose client the program is called as.
    pub(super) family: Family,
    is_warning_of_password: bool,
    /// Whether the password is asked for.
    pub(super) asks_password: bool,
}

/// Whose client the program is called as: the variables of the environment, the files of the user and the
/// schemes of URIs have its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Family {
    #[default]
    Redis,
    Valkey,
}

impl Family {
    /// The value of a variable of the environment, of which the name ends in this way. Valkey's client takes
    /// those of Redis, too.
    pub(super) fn variable(self, end: &str) -> Option<OsString> {
        let own = match self {
            Family::Redis => None,
            Family::Valkey => env::var_os(format!("VALKEYCLI_{end}")),
        };
        own.or_else(|| env::var_os(format!("REDISCLI_{end}")))
    }

    /// The name in the prompt of a Unix socket and in the names of the user's files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Family::Redis => "redis",
            Family::Valkey => "valkey",
        }
    }
}

/// Which addresses of a host are tried first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Addresses {
    #[default]
    Any,
    Ipv4,
    Ipv6,
}

/// The protocol that the client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The protocol that the server starts with.
    #[default]
    Any,
    /// RESP2, and nothing else.
    Resp2,
    Resp3,
    /// RESP3, because it has maps for JSON. If the server refuses, the client continues with RESP2.
    Resp3IfPossible,
}

/// Where one of the command's arguments comes from.
pub(super) enum LastArgument {
    /// From the command line, like all others.
    Given,
    /// From standard input, as the last argument.
    FromInput,
    /// From standard input, in place of this argument.
    FromInputFor(Vec<u8>),
}

/// The mode of the client.
pub(super) enum Mode {
    Commands,
    Eval(PathBuf),
    Pipe,
    /// Fetches a snapshot into a file; `-` is standard output.
    Snapshot {
        file: PathBuf,
        is_of_functions: bool,
    },
    Scan,
    Biggest(Measure),
    /// Measures keys by their elements and their memory, from this many samples of their elements.
    Statistics(Option<u64>),
    Hot,
    /// Reads and writes keys of which there are so many, a few of them most often.
    LruTest(u64),
    /// Prints the commands that the server sends to its replicas.
    Replica,
    Stat,
    Latency,
    LatencyHistory,
    LatencySpectrum,
    /// Measures for this many seconds.
    IntrinsicLatency(u64),
}

/// How the size of a key is measured.
#[derive(Clone, Copy)]
pub(super) enum Measure {
    /// By its elements, or the bytes of a string.
    Elements,
    /// By its memory, from this many samples of its elements; `None` lets the server choose.
    Memory(Option<u64>),
}

/// How replies are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// For people: types are named, strings quoted, members numbered.
    Standard,
    /// The bytes as they came.
    Raw,
    Csv,
    Json,
    /// JSON in ASCII.
    QuotedJson,
}

/// The options of TLS.
#[derive(Default)]
pub(super) struct TlsOptions {
    pub(super) server_name: Option<String>,
    pub(super) authorities_file: Option<PathBuf>,
    pub(super) authorities_folder: Option<PathBuf>,
    pub(super) is_insecure: bool,
    pub(super) certificate_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    /// Whether TLS was asked for. The other options alone do not enable it.
    is_wanted: bool,
}

/// The result of parsing a command line.
pub(super) enum Parsed {
    Run(Box<Options>),
    /// A text to print: the help, or the version.
    Print(String),
}

type Checked<T> = Result<T, String>;

struct CliOption {
    names: &'static [&'static str],
    help: &'static str,
    takes: Takes,
}

enum Takes {
    Nothing(fn(&mut Options)),
    /// Any value; the string is its name in the help.
    Value(&'static str, fn(&mut Options, &[u8])),
    /// Only some values. An empty error stands for the usual message.
    CheckedValue(&'static str, fn(&mut Options, &[u8]) -> Checked<()>),
    /// An option of redis-cli that is refused; the help says why.
    Refused,
}

use Takes::{CheckedValue, Nothing, Refused, Value};

const OPTIONS: &[CliOption] = &[
    value(&["-h"], "<hostname>", "Server hostname (default: 127.0.0.1).", |options, value| {
        options.host = String::from_utf8_lossy(value).into_owned()
    }),
    checked(&["-p"], "<port>", "Server port (default: 6379).", |options, value| {
        options.port = port(value)?;
        Ok(())
    }),
    checked(
        &["-t"],
        "<timeout>",
        "Seconds to wait for a connection, such as 0.5 (default: 0, which leaves it to the system).",
        |options, value| {
            let seconds = number(value).ok().filter(|seconds: &f64| *seconds >= 0.0);
            let seconds = seconds.ok_or("Invalid connection timeout for -t.".to_owned())?;
            options.timeout =
                (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(TIMEOUT_SECONDS_MAX)));
            Ok(())
        },
    ),
    flag(&["-4"], "Try the IPv4 addresses of the host first.", |options| options.addresses = Addresses::Ipv4),
    flag(&["-6"], "Try the IPv6 addresses of the host first.", |options| options.addresses = Addresses::Ipv6),
    value(&["-s"], "<socket>", "Server socket (overrides hostname and port).", |options, value| {
        options.socket = Some(path(value))
    }),
    value(
        &["-a", "--pass"],
        "<password>",
        "Password to use when connecting to the server; the variable REDISCLI_AUTH is a safer place.",
        |options, value| options.password = Some(value.to_vec()),
    ),
    value(&["--user"], "<username>", "User name for the password.", |options, value| {
        options.user = Some(value.to_vec())
    }),
    flag(
        &["--askpass"],
        "Ask for the password, without showing it; -a and the variable are ignored.",
        |options| options.asks_password = true,
    ),
    checked(
        &["-u"],
        "<uri>",
        "All of these: redis://user:password@host:port/database, or rediss:// for TLS.",
        parse_uri,
    ),
    value(&["-n"], "<db>", "Database number.", |options, value| {
        options.database = leading_integer(value).into()
    }),
    value(&["--name"], "<name>", "Name under which the server lists the client.", |options, value| {
        options.name = Some(value.to_vec())
    }),
    value(&["-r"], "<repeat>", "Send the command N times, for ever if N is negative.", |options, value| {
        options.repeat = leading_number(value)
    }),
    value(
        &["-i"],
        "<interval>",
        "Seconds to wait between commands, such as 0.1; also for --scan, --stat and --latency.",
        |options, value| {
            options.interval = Duration::try_from_secs_f64(leading_fraction(value)).unwrap_or_default()
        },
    ),
    flag(&["-2"], "Speak RESP2.", |options| {
        options.protocol = if options.protocol == Wanted::Resp3 { Wanted::Resp3 } else { Wanted::Resp2 };
    }),
    flag(&["-3"], "Speak RESP3.", |options| options.protocol = Wanted::Resp3),
    flag(&["-x"], "Take the last argument from standard input.", |options| {
        options.last_argument = LastArgument::FromInput
    }),
    value(&["-X"], "<tag>", "Replace the argument <tag> by standard input.", |options, value| {
        options.last_argument = LastArgument::FromInputFor(value.to_vec())
    }),
    value(
        &["-d"],
        "<delimiter>",
        "Delimiter between the members of raw replies (default: \\n).",
        |options, value| options.member_delimiter = value.to_vec(),
    ),
    value(&["-D"], "<delimiter>", "Delimiter after raw replies (default: \\n).", |options, value| {
        options.reply_delimiter = value.to_vec()
    }),
    flag(&["-c"], "Accepted; redirections of a cluster are printed, not followed.", |_| {}),
    flag(&["-e"], "Exit with an error code if the reply is an error.", |options| {
        options.fails_on_error = true
    }),
    flag(&["--tls"], "Use TLS.", tls),
    value(&["--sni"], "<host>", "Server name for TLS (SNI).", |options, value| {
        tls_detail(options).server_name = Some(String::from_utf8_lossy(value).into_owned())
    }),
    value(
        &["--cacert"],
        "<file>",
        "File with trusted CA certificates (default: those of the system).",
        |options, value| tls_detail(options).authorities_file = Some(path(value)),
    ),
    value(&["--cacertdir"], "<dir>", "Directory with files of trusted CA certificates.", |options, value| {
        tls_detail(options).authorities_folder = Some(path(value))
    }),
    flag(&["--insecure"], "Trust any server: do not verify its certificate.", |options| {
        tls_detail(options).is_insecure = true
    }),
    value(&["--cert"], "<file>", "Certificate of the client.", |options, value| {
        tls_detail(options).certificate_file = Some(path(value))
    }),
    value(&["--key"], "<file>", "Private key of the client.", |options, value| {
        tls_detail(options).key_file = Some(path(value))
    }),
    flag(&["--raw"], "Print replies as they are (default when standard output is no terminal).", |options| {
        options.output = Output::Raw
    }),
    flag(&["--no-raw"], "Print replies for people, also when standard output is no terminal.", |options| {
        options.output = Output::Standard
    }),
    flag(&["--quoted-input"], "Read the arguments as quoted strings.", |options| {
        options.is_input_quoted = true
    }),
    flag(&["--csv"], "Print replies as CSV.", |options| options.output = Output::Csv),
    flag(&["--json"], "Print replies as JSON, in RESP3 unless -2 is given.", |options| {
        print_json(options, Output::Json)
    }),
    flag(&["--quoted-json"], "Print replies as JSON in ASCII.", |options| {
        print_json(options, Output::QuotedJson)
    }),
    value(
        &["--show-pushes"],
        "<yn>",
        "Whether to print push messages (default: yes on a terminal).",
        |options, value| match value.first().map(u8::to_ascii_lowercase) {
            Some(b'y') => options.shows_pushes = true,
            Some(b'n') => options.shows_pushes = false,
            _ => {
                let value = String::from_utf8_lossy(value);
                eprintln!("Unknown --show-pushes value '{value}' (valid: '[y]es', '[n]o')");
            }
        },
    ),
    flag(&["--stat"], "Print a line of figures about the server every second.", |options| {
        options.mode = Mode::Stat
    }),
    flag(
        &["--latency"],
        "Measure how long the server takes to answer: for ever on a terminal, else for a second.",
        |options| options.mode = Mode::Latency,
    ),
    flag(&["--latency-history"], "Measure for ever, with a new line every 15 seconds, or -i.", |options| {
        options.mode = Mode::LatencyHistory
    }),
    flag(
        &["--latency-dist"],
        "Show the times as a line of colours every second, or -i; needs a terminal with 256 colours.",
        |options| options.mode = Mode::LatencySpectrum,
    ),
    value(
        &["--intrinsic-latency"],
        "<sec>",
        "Measure for this many seconds how long this machine delays a program, without a server.",
        |options, value| options.mode = Mode::IntrinsicLatency(not_negative(leading_integer(value))),
    ),
    checked(
        &["--rdb"],
        "<filename>",
        "Fetch a snapshot (RDB) from the server into a file; - is standard output.",
        |options, value| snapshot(options, value, false),
    ),
    checked(
        &["--functions-rdb"],
        "<filename>",
        "Like --rdb, with the functions alone, without keys.",
        |options, value| snapshot(options, value, true),
    ),
    flag(&["--pipe"], "Send standard input as it is, and count the replies.", |options| {
        options.mode = Mode::Pipe
    }),
    value(
        &["--pipe-timeout"],
        "<n>",
        "Seconds to wait for each of the last replies to --pipe (default: 30; 0 waits for ever).",
        |options, value| {
            let seconds = not_negative(leading_integer(value));
            options.pipe_timeout = (seconds > 0).then_some(Duration::from_secs(seconds));
        },
    ),
    flag(&["--bigkeys"], "Find the keys with the most elements.", |options| {
        options.mode = Mode::Biggest(Measure::Elements)
    }),
    flag(&["--memkeys"], "Find the keys that take the most memory.", |options| {
        options.mode = Mode::Biggest(Measure::Memory(None))
    }),
    checked(
        &["--memkeys-samples"],
        "<n>",
        "Like --memkeys, from this many samples of each key's elements.",
        |options, value| {
            options.mode = Mode::Biggest(Measure::Memory(Some(samples(value, "--memkeys-samples")?)));
            Ok(())
        },
    ),
    flag(
        &["--keystats"],
        "Find the keys with the most elements and the most memory, and how their sizes are spread.",
        |options| options.mode = Mode::Statistics(None),
    ),
    checked(
        &["--keystats-samples"],
        "<n>",
        "Like --keystats, from this many samples of each key's elements.",
        |options, value| {
            options.mode = Mode::Statistics(Some(samples(value, "--keystats-samples")?));
            Ok(())
        },
    ),
    checked(
        &["--cursor"],
        "<n>",
        "Cursor at which --keystats begins, as an earlier one has printed it.",
        |options, value| {
            options.cursor = count(value, "--cursor")?;
            Ok(())
        },
    ),
    checked(&["--top"], "<n>", "Keys that --keystats lists (default: 10).", |options, value| {
        options.top = usize::try_from(count(value, "--top")?).unwrap_or(usize::MAX);
        Ok(())
    }),
    value(
        &["--lru-test"],
        "<keys>",
        "Simulate a cache of this many keys, of which a fifth gets four fifths of the requests.",
        |options, value| options.mode = Mode::LruTest(not_negative(leading_number(value))),
    ),
    flag(
        &["--replica", "--slave"],
        "Print the commands that the server sends to its replicas. A Keyfast server has none.",
        |options| options.mode = Mode::Replica,
    ),
    flag(&["--hotkeys"], "Find the keys that are used most (needs an LFU maxmemory-policy).", |options| {
        options.mode = Mode::Hot
    }),
    flag(&["--scan"], "Print all keys.", |options| options.mode = Mode::Scan),
    value(
        &["--pattern"],
        "<pat>",
        "Pattern of keys for --scan, --bigkeys, --memkeys, --keystats and --hotkeys (default: *).",
        |options, value| options.pattern = Some(value.to_vec()),
    ),
    checked(&["--quoted-pattern"], "<pat>", "Like --pattern, as a quoted string.", |options, value| {
        let pattern = unquote(value);
        options.pattern =
            Some(pattern.ok_or("Invalid quoted string specified for --quoted-pattern.".to_owned())?);
        Ok(())
    }),
    value(&["--count"], "<count>", "Keys per SCAN in these modes.", |options, value| {
        options.count = Some(not_negative(leading_integer(value))).filter(|count| *count > 0)
    }),
    value(
        &["--eval"],
        "<file>",
        "Run a script from a file; the arguments are keys, a comma, arguments.",
        |options, value| options.mode = Mode::Eval(path(value)),
    ),
    flag(&["--verbose"], "Accepted: nothing more is known to be said.", |_| {}),
    refused(&["--ldb", "--ldb-sync-mode"], "Not here: there is no debugger of Lua."),
    refused(&["--cluster"], "Not here: this client does not manage clusters."),
    refused(
        &["--vset-recall", "--vset-recall-count", "--vset-recall-ef", "--vset-recall-ele"],
        "Not here: there are no vector sets.",
    ),
    refused(
        &["--tls-ciphers", "--tls-ciphersuites"],
        "Not here: the client offers all ciphers that it has, none of which is known to be weak.",
    ),
    flag(&["--no-auth-warning"], "Do not warn about a password on the command line.", |options| {
        options.is_warning_of_password = false
    }),
];

/// An option without a value.
const fn flag(names: &'static [&'static str], help: &'static str, set: fn(&mut Options)) -> CliOption {
    CliOption { names, help, takes: Nothing(set) }
}

/// An option that takes any value; `name` stands for it in the help.
const fn value(
    names: &'static [&'static str],
    name: &'static str,
    help: &'static str,
    set: fn(&mut Options, &[u8]),
) -> CliOption {
    CliOption { names, help, takes: Value(name, set) }
}

/// An option that does not take every value.
const fn checked(
    names: &'static [&'static str],
    name: &'static str,
    help: &'static str,
    set: fn(&mut Options, &[u8]) -> Checked<()>,
) -> CliOption {
    CliOption { names, help, takes: CheckedValue(name, set) }
}

const fn refused(names: &'static [&'static str], help: &'static str) -> CliOption {
    CliOption { names, help, takes: Refused }
}

impl Options {
    /// Parses a command line without the program's name, and the environment.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub(super) fn parse(arguments: Vec<Vec<u8>>, family: Family) -> Checked<Parsed> {
        let mut options = Options { family, ..Options::new() };
        let mut arguments = arguments.into_iter().peekable();
        while let Some(argument) = arguments.next_if(|argument| argument.starts_with(b"-")) {
            let is_last = arguments.peek().is_none();
            match &argument[..] {
                b"--help" => return Ok(Parsed::Print(usage(family))),
                b"-h" if is_last => return Ok(Parsed::Print(usage(family))),
                b"-v" | b"--version" => return Ok(Parsed::Print(format!("{}\n", version(family)))),
                _ => {}
            }
            options.take(&argument, &mut arguments)?;
        }
        options.command = arguments.collect();
        options.tls = options.tls.filter(|tls| tls.is_wanted);
        if options.asks_password {
            options.password = None;
        }
        if options.password.is_none() {
            options.is_warning_of_password = false;
            let variable = if options.asks_password { None } else { family.variable("AUTH") };
            options.password = variable.map(OsStringExt::into_vec);
        }
        Ok(Parsed::Run(Box::new(options)))
    }

    fn new() -> Options {
        let is_terminal = super::terminal::is_terminal();
        Options {
            host: "127.0.0.1".to_owned(),
            port: 6379,
            socket: None,
            tls: None,
            timeout: None,
            addresses: Addresses::Any,
            user: None,
            password: None,
            name: None,
            database: 0,
            protocol: Wanted::Any,
            output: if is_terminal { Output::Standard } else { Output::Raw },
            shows_pushes: is_terminal,
            member_delimiter: b"\n".to_vec(),
            reply_delimiter: b"\n".to_vec(),
            fails_on_error: false,
            repeat: 1,
            interval: Duration::ZERO,
            last_argument: LastArgument::Given,
            is_input_quoted: false,
            mode: Mode::Commands,
            pattern: None,
            count: None,
            pipe_timeout: Some(PIPE_TIMEOUT),
            cursor: 0,
            top: TOP,
            command: Vec::new(),
            family: Family::Redis,
            is_warning_of_password: true,
            asks_password: false,
        }
    }

    /// Whether the command line has a password, which other users of the machine may see.
    pub(super) fn warns_of_password(&self) -> bool {
        self.is_warning_of_password
    }

    fn take(&mut self, name: &[u8], values: &mut impl Iterator<Item = Vec<u8>>) -> Checked<()> {
        let unrecognized = || {
            let name = String::from_utf8_lossy(name);
            format!("Unrecognized option or bad number of args for: '{name}'")
        };
        let known = OPTIONS.iter().find(|option| option.names.iter().any(|known| known.as_bytes() == name));
        // These two options exclude each other, whatever their values.
        let had_input = !matches!(self.last_argument, LastArgument::Given);
        let had = (self.protocol, had_input);
        match known.map(|option| &option.takes) {
            None => return Err(unrecognized()),
            Some(Refused) => {
                let help = known.map_or("", |option| option.help);
                return Err(format!(
                    "{}: {}",
                    String::from_utf8_lossy(name),
                    help.trim_start_matches(NOT_HERE)
                ));
            }
            Some(Nothing(set)) => set(self),
            Some(Value(_, set)) => set(self, &values.next().ok_or_else(unrecognized)?),
            Some(CheckedValue(_, set)) => {
                let value = values.next().ok_or_else(unrecognized)?;
                set(self, &value).map_err(|why| if why.is_empty() { unrecognized() } else { why })?;
            }
        }
        match (name, had) {
            (b"-2", (Wanted::Resp3, _)) | (b"-3", (Wanted::Resp2, _)) => {
                Err("Options -2 and -3 are mutually exclusive.".to_owned())
            }
            (b"-x" | b"-X", (_, true)) => Err("Options -x and -X are mutually exclusive.".to_owned()),
            _ => Ok(()),
        }
    }
}

fn snapshot(options: &mut Options, file: &[u8], is_of_functions: bool) -> Checked<()> {
    if matches!(&options.mode, Mode::Snapshot { is_of_functions: other, .. } if *other != is_of_functions) {
        return Err("Option --functions-rdb and --rdb are mutually exclusive.".to_owned());
    }
    options.mode = Mode::Snapshot { file: path(file), is_of_functions };
    Ok(())
}

fn print_json(options: &mut Options, output: Output) {
    options.output = output;
    if options.protocol == Wanted::Any {
        options.protocol = Wanted::Resp3IfPossible;
    }
}

fn tls(options: &mut Options) {
    tls_detail(options).is_wanted = true;
}

fn tls_detail(options: &mut Options) -> &mut TlsOptions {
    options.tls.get_or_insert_default()
}

fn path(value: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(value))
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Checked<T> {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or_else(String::new)
}

/// The integer at the front of a text, or 0: `strtoll` of C, with which redis-cli reads its numbers.
fn leading_number(value: &[u8]) -> i64 {
    let value = value.trim_ascii_start();
    let signs = value.iter().take(1).filter(|byte| b"+-".contains(byte)).count();
    let digits = value[signs..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = String::from_utf8_lossy(&value[..signs + digits]);
    match text.parse() {
        Ok(number) => number,
        Err(_) if digits == 0 => 0,
        Err(_) if text.starts_with('-') => i64::MIN,
        Err(_) => i64::MAX,
    }
}

/// The same for a number of 32 bits: `atoi`, which takes the lower half of a longer one.
fn leading_integer(value: &[u8]) -> i32 {
    leading_number(value) as i32
}

/// A number without a sign: 0 in place of a negative one.
fn not_negative(number: impl Into<i64>) -> u64 {
    u64::try_from(number.into()).unwrap_or(0)
}

/// The number at the front of a text, or 0: `atof`.
fn leading_fraction(value: &[u8]) -> f64 {
    let text = String::from_utf8_lossy(value.trim_ascii_start());
    let ends = (1..=text.len()).rev().filter(|end| text.is_char_boundary(*end));
    ends.filter_map(|end| text[..end].parse::<f64>().ok()).find(|number| number.is_finite()).unwrap_or(0.0)
}

/// A number of samples, of an option.
fn samples(value: &[u8], option: &str) -> Checked<u64> {
    let number: i64 = number(value).map_err(|_| format!("{option} conversion error."))?;
    u64::try_from(number).map_err(|_| format!("{option} value should be positive."))
}

/// A number that is not negative, of an option.
fn count(value: &[u8], option: &str) -> Checked<u64> {
    let is_negative = value.starts_with(b"-") && number::<i64>(value).is_ok_and(|number| number != 0);
    match number(value) {
        Ok(count) => Ok(count),
        Err(_) if is_negative => Err(format!("{option} should be followed by a positive integer.")),
        Err(_) => Err(format!("{option} conversion error.")),
    }
}

fn port(value: &[u8]) -> Checked<u16> {
    u16::try_from(leading_integer(value)).map_err(|_| "Invalid server port.".to_owned())
}

/// Parses a server's address in the form `redis[s]://[[user:]password@][host[:port]][/database]`.
fn parse_uri(options: &mut Options, uri: &[u8]) -> Checked<()> {
    let uri = std::str::from_utf8(uri).map_err(|_| "Invalid URI scheme".to_owned())?;
    let schemes: &[&str] = match options.family {
        Family::Redis => &["redis", "rediss"],
        Family::Valkey => &["redis", "rediss", "valkey", "valkeys"],
    };
    let known = |scheme: &str| schemes.iter().position(|known| scheme.eq_ignore_ascii_case(known));
    let (scheme, rest) = uri.split_once("://").ok_or("Invalid URI scheme".to_owned())?;
    match known(scheme).ok_or("Invalid URI scheme".to_owned())? {
        place if place % 2 == 1 => tls(options),
        _ => {}
    }
    let (login, rest) = rest.split_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
    if let Some(login) = login {
        let (user, password) =
            login.split_once(':').map_or((None, login), |(user, password)| (Some(user), password));
        // Without a user name, the password is that of the default user.
        if let Some(user) = user.filter(|user| !user.is_empty()) {
            options.user = Some(percent_decoded(user)?);
        }
        options.password = Some(percent_decoded(password)?);
    }
    let (address, database) = rest.split_once('/').unwrap_or((rest, ""));
    // What applications add for themselves stands behind the address where there is no number.
    let address = address.split_once('?').map_or(address, |(address, _)| address);
    let (host, port_text) = match address.strip_prefix('[').and_then(|address| address.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    if !host.is_empty() {
        options.host = host.to_owned();
    }
    if let Some(text) = port_text {
        options.port = port(text.as_bytes())?;
    }
    if !database.is_empty() {
        options.database = leading_integer(database.as_bytes()).into();
    }
    Ok(())
}

fn percent_decoded(text: &str) -> Checked<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        if rest.is_empty() {
            return Err("Incomplete URI encoding".to_owned());
        }
        let digit = |position: usize| rest.get(position).and_then(|digit| char::from(*digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err("Illegal character in URI encoding".to_owned());
        };
        decoded.push((high << 4 | low) as u8);
        rest = &rest[2..];
    }
    Ok(decoded)
}

/// The program's name and version, like redis-cli's. The version of Redis comes first, because scripts parse
/// it.
pub(super) fn version(family: Family) -> String {
    let name = family.name();
    format!("{name}-cli {} (keyfast {})", crate::REDIS_VERSION, env!("CARGO_PKG_VERSION"))
}

/// The options with their values, and what they do, for the help, completions and the manual.
pub(super) fn all() -> impl Iterator<Item = (&'static [&'static str], Option<&'static str>, &'static str)> {
    let value = |takes: &Takes| match takes {
        Value(value, _) | CheckedValue(value, _) => Some(*value),
        Nothing(_) | Refused => None,
    };
    OPTIONS.iter().map(move |option| (option.names, value(&option.takes), option.help))
}

fn usage(family: Family) -> String {
    let name = family.name();
    let mut text = format!("{}\n\nUsage: {name}-cli [OPTIONS] [cmd [arg [arg ...]]]\n", version(family));
    let own = [("--help", "Print this and exit."), ("--version", "Print the version and exit.")];
    let options = all().map(|(names, value, help)| {
        let value = value.map_or_else(String::new, |value| format!(" {value}"));
        (format!("{}{value}", names.join(", ")), help)
    });
    for (name, help) in options.chain(own.map(|(name, help)| (name.to_owned(), help))) {
        text.push_str(&format!("  {name:<width$} {help}\n", width = HELP_COLUMN));
    }
    text.push_str(
        "\nWithout a command it is interactive: type \"help\" there. Standard input that is no terminal is \
         read as\ncommands, one a line.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Checked<Box<Options>> {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(|word| word.as_bytes().to_vec());
        match Options::parse(words.collect(), Family::Redis)? {
            Parsed::Run(options) => Ok(options),
            Parsed::Print(text) => Err(text),
        }
    }

    #[test]
    fn options_come_before_the_command() {
        let options = parsed("-h host -p 7000 -n 3 -r -1 -i 0.5 --pass p --csv get -h x").unwrap();
        assert_eq!((options.host.as_str(), options.port, options.database), ("host", 7000, 3));
        assert_eq!((options.repeat, options.interval), (-1, Duration::from_millis(500)));
        assert_eq!(options.password.as_deref(), Some(&b"p"[..]));
        assert!(options.warns_of_password());
        assert!(options.output == Output::Csv);
        assert_eq!(options.command, [b"get".to_vec(), b"-h".to_vec(), b"x".to_vec()]);
        assert!(!parsed("-a p --no-auth-warning").unwrap().warns_of_password());
        assert!(!parsed("").unwrap().warns_of_password());
    }

    #[test]
    fn json_wants_maps_unless_told_otherwise() {
        for (line, expected) in [
            ("--json", Wanted::Resp3IfPossible),
            ("-2 --json", Wanted::Resp2),
            ("--json -2", Wanted::Resp2),
            ("-3 --json", Wanted::Resp3),
            ("--json -3", Wanted::Resp3),
        ] {
            assert_eq!(parsed(line).unwrap().protocol, expected, "{line}");
        }
    }

    #[test]
    fn a_uri_says_it_all() {
        let options = parsed("-u rediss://al%20ice:p%3Aw@[::1]:7000/3").unwrap();
        assert_eq!(options.user.as_deref(), Some(&b"al ice"[..]));
        assert_eq!(options.password.as_deref(), Some(&b"p:w"[..]));
        assert_eq!((options.host.as_str(), options.port, options.database), ("::1", 7000, 3));
        assert!(options.tls.is_some());
        let options = parsed("-u redis://secret@host/").unwrap();
        assert_eq!((options.user, options.password.as_deref()), (None, Some(&b"secret"[..])));
        assert_eq!((options.host.as_str(), options.port, options.database), ("host", 6379, 0));
        assert!(options.tls.is_none());
        assert_eq!(parsed("-u redis://").unwrap().host, "127.0.0.1");
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let options = parsed("-n 3x -r 2y -i 0.5z -p 7000abc --count x").unwrap();
        assert_eq!((options.database, options.repeat, options.port), (3, 2, 7000));
        assert_eq!((options.interval, options.count), (Duration::from_millis(500), None));
        let options = parsed("-n x -i -1 -r -99999999999999999999").unwrap();
        assert_eq!((options.database, options.repeat, options.interval), (0, i64::MIN, Duration::ZERO));
        assert_eq!(parsed("-u redis://host?family=0").unwrap().host, "host");
    }

    #[test]
    fn a_mistake_is_one_line() {
        for (line, expected) in [
            ("--nosuch", "Unrecognized option or bad number of args for: '--nosuch'"),
            ("-p", "Unrecognized option or bad number of args for: '-p'"),
            ("-t x", "Invalid connection timeout for -t."),
            ("-t -1", "Invalid connection timeout for -t."),
            ("--top x", "--top conversion error."),
            ("--cursor -1", "--cursor should be followed by a positive integer."),
            ("--keystats-samples 1x", "--keystats-samples conversion error."),
            ("--memkeys-samples -1", "--memkeys-samples value should be positive."),
            ("--ldb", "--ldb: there is no debugger of Lua."),
            ("-u valkey://h", "Invalid URI scheme"),
            ("-p 70000", "Invalid server port."),
            ("-2 -3", "Options -2 and -3 are mutually exclusive."),
            ("-3 -2", "Options -2 and -3 are mutually exclusive."),
            ("--rdb a --functions-rdb b", "Option --functions-rdb and --rdb are mutually exclusive."),
            ("-X a -x", "Options -x and -X are mutually exclusive."),
            ("-u http://h", "Invalid URI scheme"),
            ("-u redis://a%@h", "Incomplete URI encoding"),
            ("-u redis://a%4@h", "Illegal character in URI encoding"),
            ("-u redis://%zz@h", "Illegal character in URI encoding"),
            ("--quoted-pattern \"x", "Invalid quoted string specified for --quoted-pattern."),
        ] {
            assert_eq!(parsed(line).err().as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn details_of_tls_do_not_ask_for_it() {
        assert!(parsed("--cacert ca.pem").unwrap().tls.is_none());
        assert!(parsed("--cacert ca.pem --tls").unwrap().tls.unwrap().authorities_file.is_some());
    }

    #[test]
    fn the_help_names_every_option() {
        let text = usage(Family::Redis);
        for name in OPTIONS.iter().flat_map(|option| option.names) {
            assert!(text.contains(name), "{name}");
        }
    }
}
