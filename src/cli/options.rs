//! The client's command line: each option is one row of a table, which the help is made from.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use super::quoting::unquote;

/// The environment variable with the password.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";
/// How long `--pipe` waits for the last replies by default.
const PIPE_TIMEOUT: Duration = Duration::from_secs(30);
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
    pub(super) user: Option<Vec<u8>>,
    pub(super) password: Option<Vec<u8>>,
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
    /// The remaining arguments: a command.
    pub(super) command: Vec<Vec<u8>>,
    is_warning_of_password: bool,
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
    Hot,
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
    /// A value; the first string is its name in the help. An empty error stands for the usual message.
    Value(&'static str, fn(&mut Options, &[u8]) -> Checked<()>),
}

use Takes::{Nothing, Value};

const OPTIONS: &[CliOption] = &[
    CliOption {
        names: &["-h"],
        help: "Server hostname (default: 127.0.0.1).",
        takes: Value("<hostname>", |options, value| {
            options.host = String::from_utf8_lossy(value).into_owned();
            Ok(())
        }),
    },
    CliOption {
        names: &["-p"],
        help: "Server port (default: 6379).",
        takes: Value("<port>", |options, value| {
            options.port = port(value)?;
            Ok(())
        }),
    },
    CliOption {
        names: &["-s"],
        help: "Server socket (overrides hostname and port).",
        takes: Value("<socket>", |options, value| {
            options.socket = Some(path(value));
            Ok(())
        }),
    },
    CliOption {
        names: &["-a", "--pass"],
        help: "Password to use when connecting to the server; the variable REDISCLI_AUTH is a safer place.",
        takes: Value("<password>", |options, value| {
            options.password = Some(value.to_vec());
            Ok(())
        }),
    },
    CliOption {
        names: &["--user"],
        help: "User name for the password.",
        takes: Value("<username>", |options, value| {
            options.user = Some(value.to_vec());
            Ok(())
        }),
    },
    CliOption {
        names: &["-u"],
        help: "All of these: redis://user:password@host:port/database, or rediss:// for TLS.",
        takes: Value("<uri>", parse_uri),
    },
    CliOption {
        names: &["-n"],
        help: "Database number.",
        takes: Value("<db>", |options, value| {
            options.database = number(value)?;
            Ok(())
        }),
    },
    CliOption {
        names: &["-r"],
        help: "Send the command N times, for ever if N is negative.",
        takes: Value("<repeat>", |options, value| {
            options.repeat = number(value)?;
            Ok(())
        }),
    },
    CliOption {
        names: &["-i"],
        help: "Seconds to wait between commands, such as 0.1; also for --scan, --stat and --latency.",
        takes: Value("<interval>", |options, value| {
            let seconds = number::<f64>(value)?;
            options.interval = Duration::try_from_secs_f64(seconds).map_err(|_| String::new())?;
            Ok(())
        }),
    },
    CliOption {
        names: &["-2"],
        help: "Speak RESP2.",
        takes: Nothing(|options| {
            options.protocol = if options.protocol == Wanted::Resp3 { Wanted::Resp3 } else { Wanted::Resp2 };
        }),
    },
    CliOption {
        names: &["-3"],
        help: "Speak RESP3.",
        takes: Nothing(|options| options.protocol = Wanted::Resp3),
    },
    CliOption {
        names: &["-x"],
        help: "Take the last argument from standard input.",
        takes: Nothing(|options| options.last_argument = LastArgument::FromInput),
    },
    CliOption {
        names: &["-X"],
        help: "Replace the argument <tag> by standard input.",
        takes: Value("<tag>", |options, value| {
            options.last_argument = LastArgument::FromInputFor(value.to_vec());
            Ok(())
        }),
    },
    CliOption {
        names: &["-d"],
        help: "Delimiter between the members of raw replies (default: \\n).",
        takes: Value("<delimiter>", |options, value| {
            options.member_delimiter = value.to_vec();
            Ok(())
        }),
    },
    CliOption {
        names: &["-D"],
        help: "Delimiter after raw replies (default: \\n).",
        takes: Value("<delimiter>", |options, value| {
            options.reply_delimiter = value.to_vec();
            Ok(())
        }),
    },
    CliOption {
        names: &["-c"],
        help: "Accepted; redirections of a cluster are printed, not followed.",
        takes: Nothing(|_| {}),
    },
    CliOption {
        names: &["-e"],
        help: "Exit with an error code if the reply is an error.",
        takes: Nothing(|options| options.fails_on_error = true),
    },
    CliOption { names: &["--tls"], help: "Use TLS.", takes: Nothing(tls) },
    CliOption {
        names: &["--sni"],
        help: "Server name for TLS (SNI).",
        takes: Value("<host>", |options, value| {
            tls_detail(options).server_name = Some(String::from_utf8_lossy(value).into_owned());
            Ok(())
        }),
    },
    CliOption {
        names: &["--cacert"],
        help: "File with trusted CA certificates (default: those of the system).",
        takes: Value("<file>", |options, value| {
            tls_detail(options).authorities_file = Some(path(value));
            Ok(())
        }),
    },
    CliOption {
        names: &["--cacertdir"],
        help: "Directory with files of trusted CA certificates.",
        takes: Value("<dir>", |options, value| {
            tls_detail(options).authorities_folder = Some(path(value));
            Ok(())
        }),
    },
    CliOption {
        names: &["--insecure"],
        help: "Trust any server: do not verify its certificate.",
        takes: Nothing(|options| tls_detail(options).is_insecure = true),
    },
    CliOption {
        names: &["--cert"],
        help: "Certificate of the client.",
        takes: Value("<file>", |options, value| {
            tls_detail(options).certificate_file = Some(path(value));
            Ok(())
        }),
    },
    CliOption {
        names: &["--key"],
        help: "Private key of the client.",
        takes: Value("<file>", |options, value| {
            tls_detail(options).key_file = Some(path(value));
            Ok(())
        }),
    },
    CliOption {
        names: &["--raw"],
        help: "Print replies as they are (default when standard output is no terminal).",
        takes: Nothing(|options| options.output = Output::Raw),
    },
    CliOption {
        names: &["--no-raw"],
        help: "Print replies for people, also when standard output is no terminal.",
        takes: Nothing(|options| options.output = Output::Standard),
    },
    CliOption {
        names: &["--quoted-input"],
        help: "Read the arguments as quoted strings.",
        takes: Nothing(|options| options.is_input_quoted = true),
    },
    CliOption {
        names: &["--csv"],
        help: "Print replies as CSV.",
        takes: Nothing(|options| options.output = Output::Csv),
    },
    CliOption {
        names: &["--json"],
        help: "Print replies as JSON, in RESP3 unless -2 is given.",
        takes: Nothing(|options| print_json(options, Output::Json)),
    },
    CliOption {
        names: &["--quoted-json"],
        help: "Print replies as JSON in ASCII.",
        takes: Nothing(|options| print_json(options, Output::QuotedJson)),
    },
    CliOption {
        names: &["--show-pushes"],
        help: "Whether to print push messages (default: yes on a terminal).",
        takes: Value("<yn>", |options, value| {
            match value.first().map(u8::to_ascii_lowercase) {
                Some(b'y') => options.shows_pushes = true,
                Some(b'n') => options.shows_pushes = false,
                _ => {
                    let value = String::from_utf8_lossy(value);
                    eprintln!("Unknown --show-pushes value '{value}' (valid: '[y]es', '[n]o')");
                }
            }
            Ok(())
        }),
    },
    CliOption {
        names: &["--stat"],
        help: "Print a line of figures about the server every second.",
        takes: Nothing(|options| options.mode = Mode::Stat),
    },
    CliOption {
        names: &["--latency"],
        help: "Measure how long the server takes to answer: for ever on a terminal, else for a second.",
        takes: Nothing(|options| options.mode = Mode::Latency),
    },
    CliOption {
        names: &["--latency-history"],
        help: "Measure for ever, with a new line every 15 seconds, or -i.",
        takes: Nothing(|options| options.mode = Mode::LatencyHistory),
    },
    CliOption {
        names: &["--latency-dist"],
        help: "Show the times as a line of colours every second, or -i; needs a terminal with 256 colours.",
        takes: Nothing(|options| options.mode = Mode::LatencySpectrum),
    },
    CliOption {
        names: &["--intrinsic-latency"],
        help: "Measure for this many seconds how long this machine delays a program, without a server.",
        takes: Value("<sec>", |options, value| {
            options.mode = Mode::IntrinsicLatency(number(value)?);
            Ok(())
        }),
    },
    CliOption {
        names: &["--rdb"],
        help: "Fetch a snapshot (RDB) from the server into a file; - is standard output.",
        takes: Value("<filename>", |options, value| snapshot(options, value, false)),
    },
    CliOption {
        names: &["--functions-rdb"],
        help: "Like --rdb, with the functions alone, without keys.",
        takes: Value("<filename>", |options, value| snapshot(options, value, true)),
    },
    CliOption {
        names: &["--pipe"],
        help: "Send standard input as it is, and count the replies.",
        takes: Nothing(|options| options.mode = Mode::Pipe),
    },
    CliOption {
        names: &["--pipe-timeout"],
        help: "Seconds to wait for each of the last replies to --pipe (default: 30; 0 waits for ever).",
        takes: Value("<n>", |options, value| {
            let seconds = number(value)?;
            options.pipe_timeout = (seconds > 0).then_some(Duration::from_secs(seconds));
            Ok(())
        }),
    },
    CliOption {
        names: &["--bigkeys"],
        help: "Find the keys with the most elements.",
        takes: Nothing(|options| options.mode = Mode::Biggest(Measure::Elements)),
    },
    CliOption {
        names: &["--memkeys"],
        help: "Find the keys that take the most memory.",
        takes: Nothing(|options| options.mode = Mode::Biggest(Measure::Memory(None))),
    },
    CliOption {
        names: &["--memkeys-samples"],
        help: "Like --memkeys, from this many samples of each key's elements.",
        takes: Value("<n>", |options, value| {
            options.mode = Mode::Biggest(Measure::Memory(Some(number(value)?)));
            Ok(())
        }),
    },
    CliOption {
        names: &["--hotkeys"],
        help: "Find the keys that are used most (needs an LFU maxmemory-policy).",
        takes: Nothing(|options| options.mode = Mode::Hot),
    },
    CliOption {
        names: &["--scan"],
        help: "Print all keys.",
        takes: Nothing(|options| options.mode = Mode::Scan),
    },
    CliOption {
        names: &["--pattern"],
        help: "Pattern of keys for --scan, --bigkeys, --memkeys and --hotkeys (default: *).",
        takes: Value("<pat>", |options, value| {
            options.pattern = Some(value.to_vec());
            Ok(())
        }),
    },
    CliOption {
        names: &["--quoted-pattern"],
        help: "Like --pattern, as a quoted string.",
        takes: Value("<pat>", |options, value| {
            let pattern = unquote(value);
            options.pattern =
                Some(pattern.ok_or("Invalid quoted string specified for --quoted-pattern.".to_owned())?);
            Ok(())
        }),
    },
    CliOption {
        names: &["--count"],
        help: "Keys per SCAN in these modes.",
        takes: Value("<count>", |options, value| {
            options.count = Some(number(value)?);
            Ok(())
        }),
    },
    CliOption {
        names: &["--eval"],
        help: "Run a script from a file; the arguments are keys, a comma, arguments.",
        takes: Value("<file>", |options, value| {
            options.mode = Mode::Eval(path(value));
            Ok(())
        }),
    },
    CliOption {
        names: &["--no-auth-warning"],
        help: "Do not warn about a password on the command line.",
        takes: Nothing(|options| options.is_warning_of_password = false),
    },
];

impl Options {
    /// Parses a command line without the program's name, and the environment.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub(super) fn parse(arguments: Vec<Vec<u8>>) -> Checked<Parsed> {
        let mut options = Options::new();
        let mut arguments = arguments.into_iter().peekable();
        while let Some(argument) = arguments.next_if(|argument| argument.starts_with(b"-")) {
            let is_last = arguments.peek().is_none();
            match &argument[..] {
                b"--help" => return Ok(Parsed::Print(usage())),
                b"-h" if is_last => return Ok(Parsed::Print(usage())),
                b"-v" | b"--version" => return Ok(Parsed::Print(format!("{}\n", version()))),
                _ => {}
            }
            options.take(&argument, &mut arguments)?;
        }
        options.command = arguments.collect();
        options.tls = options.tls.filter(|tls| tls.is_wanted);
        if options.password.is_none() {
            options.is_warning_of_password = false;
            options.password = env::var_os(PASSWORD_VARIABLE).map(OsStringExt::into_vec);
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
            user: None,
            password: None,
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
            command: Vec::new(),
            is_warning_of_password: true,
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
            Some(Nothing(set)) => set(self),
            Some(Value(_, set)) => {
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

fn port(value: &[u8]) -> Checked<u16> {
    number(value).map_err(|_| "Invalid server port.".to_owned())
}

/// Parses a server's address in the form `redis[s]://[[user:]password@][host[:port]][/database]`.
fn parse_uri(options: &mut Options, uri: &[u8]) -> Checked<()> {
    let uri = std::str::from_utf8(uri).map_err(|_| "Invalid URI scheme".to_owned())?;
    let rest = match uri.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("redis") => rest,
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("rediss") => {
            tls(options);
            rest
        }
        _ => return Err("Invalid URI scheme".to_owned()),
    };
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
        options.database = number(database.as_bytes())?;
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
pub(super) fn version() -> String {
    format!("redis-cli {} (keyfast {})", crate::REDIS_VERSION, env!("CARGO_PKG_VERSION"))
}

fn usage() -> String {
    let mut text = format!("{}\n\nUsage: redis-cli [OPTIONS] [cmd [arg [arg ...]]]\n", version());
    let own = [("--help", "Print this and exit."), ("--version", "Print the version and exit.")];
    let options = OPTIONS.iter().map(|option| {
        let value = match option.takes {
            Nothing(_) => String::new(),
            Value(value, _) => format!(" {value}"),
        };
        (format!("{}{value}", option.names.join(", ")), option.help)
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
        match Options::parse(words.collect())? {
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
    fn a_mistake_is_one_line() {
        for (line, expected) in [
            ("--nosuch", "Unrecognized option or bad number of args for: '--nosuch'"),
            ("-p", "Unrecognized option or bad number of args for: '-p'"),
            ("-n x", "Unrecognized option or bad number of args for: '-n'"),
            ("-i -1", "Unrecognized option or bad number of args for: '-i'"),
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
        let text = usage();
        for name in OPTIONS.iter().flat_map(|option| option.names) {
            assert!(text.contains(name), "{name}");
        }
    }
}
