//! Log lines in Redis's form, which tools that wait for a server to be ready know: `12345:M 21 Nov 2026
//! 01:41:03.123 * Ready to accept connections tcp`.
//!
//! The sign before the message is the level: `.` debug, `-` verbose, `*` notice, `#` warning. On a terminal
//! the lines are shorter and have the level's name. With `log-format json` each line is a JSON object.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{ChronoLocal, FormatTime};
use tracing_subscriber::fmt::writer::{BoxMakeWriter, OptionalWriter};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt as log_format, reload};

use crate::config::{Config, LOG_FORMATS, LOG_LEVELS};
use crate::progress;

/// The filter for each of [`LOG_LEVELS`].
const FILTERS: [LevelFilter; LOG_LEVELS.len()] =
    [LevelFilter::TRACE, LevelFilter::DEBUG, LevelFilter::INFO, LevelFilter::WARN, LevelFilter::OFF];

/// Whether each line of the log is a JSON object.
pub(super) fn is_json(config: &Config) -> bool {
    LOG_FORMATS[config.log_format.get()] == "json"
}

/// The line, without its end, that tells in JSON why the server does not start.
pub(super) fn json_line(why: &str) -> String {
    let mut line = String::new();
    // A text takes whatever is written.
    let _ = Lines::new(Form::Json).write(&mut Writer::new(&mut line), Level::ERROR, why);
    line.truncate(line.trim_end().len());
    line
}

/// Starts logging as the parameters say. Returns a function that changes the level.
pub(super) fn start(config: &Config) -> impl Fn(usize) + Send + Sync + use<> {
    let (filter, handle) = reload::Layer::new(own(config.loglevel.get()));
    let file = config.logfile.get();
    let is_terminal = file.is_empty() && io::stdout().is_terminal();
    if is_terminal {
        // Elsewhere lines of the log say how far long work is.
        progress::allow_bars();
    }
    let form = match LOG_FORMATS[config.log_format.get()] {
        "json" => Form::Json,
        "pretty" => Form::Pretty { is_coloured: is_terminal },
        "auto" if is_terminal => Form::Pretty { is_coloured: true },
        _ => Form::Redis,
    };
    let destination = match file.is_empty() {
        true if is_terminal => BoxMakeWriter::new(|| BesideBar),
        true => BoxMakeWriter::new(io::stdout),
        // The file is opened for every line, as in Redis: a tool that rotates it need not notify the server.
        false => BoxMakeWriter::new(move || {
            let opened =
                OpenOptions::new().append(true).create(true).open(Path::new(OsStr::from_bytes(&file)));
            opened.map_or_else(|_| OptionalWriter::none(), OptionalWriter::some)
        }),
    };
    let lines = log_format::layer().event_format(Lines::new(form)).with_writer(destination);
    // If the process already has a server, this one uses the log of the first.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    move |level| {
        let _ = handle.reload(own(level));
    }
}

/// Only lets through lines of this program. Libraries log every byte that they send to a store, and there may
/// be passwords among them.
fn own(level: usize) -> Targets {
    Targets::new().with_target(env!("CARGO_CRATE_NAME"), FILTERS[level])
}

/// Standard output on a terminal: lines are printed above the bar, if there is one.
struct BesideBar;

impl io::Write for BesideBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        progress::beside_bar(|| io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// The form of lines.
#[derive(Clone, Copy, Debug)]
enum Form {
    Redis,
    Json,
    Pretty { is_coloured: bool },
}

/// Prints an event as a line.
struct Lines {
    form: Form,
    time: ChronoLocal,
}

impl Lines {
    fn new(form: Form) -> Lines {
        let time = match form {
            Form::Redis => "%d %b %Y %H:%M:%S%.3f",
            Form::Json => "%Y-%m-%dT%H:%M:%S%.3f%:z",
            Form::Pretty { .. } => "%H:%M:%S%.3f",
        };
        Lines { form, time: ChronoLocal::new(time.to_owned()) }
    }

    fn write(&self, line: &mut Writer<'_>, level: Level, message: &str) -> fmt::Result {
        let process = std::process::id();
        let in_one_line = OneLine(message);
        match self.form {
            Form::Redis => {
                write!(line, "{process}:M ")?;
                self.time.format_time(line)?;
                writeln!(line, " {} {in_one_line}", sign(level))
            }
            Form::Json => {
                line.write_str("{\"time\":\"")?;
                self.time.format_time(line)?;
                let name = name(level);
                let message = serde_json::Value::from(message);
                writeln!(line, "\",\"level\":\"{name}\",\"pid\":{process},\"message\":{message}}}")
            }
            Form::Pretty { is_coloured } => {
                let (start, end) = if is_coloured { (colour(level), "\x1b[0m") } else { ("", "") };
                self.time.format_time(line)?;
                writeln!(line, " {start}{:7}{end} {in_one_line}", name(level))
            }
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = String::new();
        context.field_format().format_fields(Writer::new(&mut message), event)?;
        self.write(&mut line, *event.metadata().level(), &message)
    }
}

/// A message on one line, without control characters for a terminal: it may quote a client.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\n' => f.write_str("\\n"),
            '\r' => f.write_str("\\r"),
            '\t' => f.write_char(character),
            character if character.is_control() => write!(f, "\\x{:02x}", u32::from(character)),
            character => f.write_char(character),
        })
    }
}

/// The level's sign in Redis's form.
fn sign(level: Level) -> char {
    match level {
        Level::TRACE => '.',
        Level::DEBUG => '-',
        Level::INFO => '*',
        Level::WARN | Level::ERROR => '#',
    }
}

/// The level's name in `loglevel`.
fn name(level: Level) -> &'static str {
    let level = LevelFilter::from_level(level);
    FILTERS.iter().position(|filter| *filter == level).map_or("warning", |place| LOG_LEVELS[place])
}

/// The level's colour on a terminal: details are faint, warnings yellow.
fn colour(level: Level) -> &'static str {
    match level {
        Level::TRACE | Level::DEBUG => "\x1b[2m",
        Level::INFO => "\x1b[32m",
        Level::WARN | Level::ERROR => "\x1b[33m",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(form: Form, level: Level, message: &str) -> String {
        let mut text = String::new();
        Lines::new(form).write(&mut Writer::new(&mut text), level, message).unwrap();
        text
    }

    #[test]
    fn a_line_is_an_object_that_can_be_read_back() {
        let text = line(Form::Json, Level::WARN, "a \"b\"\n\u{1}é");
        let object: serde_json::Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
        assert_eq!(object["level"], "warning");
        assert_eq!(object["message"], "a \"b\"\n\u{1}é");
        assert_eq!(object["pid"], std::process::id());
        assert_eq!(object["time"].as_str().unwrap().len(), "2026-11-21T01:41:03.123+00:00".len());
    }

    #[test]
    fn a_message_is_one_line_whatever_it_quotes() {
        let text = line(Form::Redis, Level::INFO, "x\r\n1:M 01 Jan 2026 * FAKE\x1b[31m\u{9b}é\t\u{7f}");
        assert!(text.ends_with(" * x\\r\\n1:M 01 Jan 2026 * FAKE\\x1b[31m\\x9bé\t\\x7f\n"), "{text:?}");
    }

    #[test]
    fn colours_are_for_terminals() {
        let plain = line(Form::Pretty { is_coloured: false }, Level::INFO, "Ready");
        assert!(plain.ends_with(" notice  Ready\n") && !plain.contains('\x1b'), "{plain}");
        let coloured = line(Form::Pretty { is_coloured: true }, Level::INFO, "Ready");
        assert!(coloured.ends_with(" \x1b[32mnotice \x1b[0m Ready\n"), "{coloured:?}");
    }

    #[test]
    fn the_sign_is_the_level() {
        for (level, sign) in
            [(Level::TRACE, '.'), (Level::DEBUG, '-'), (Level::INFO, '*'), (Level::WARN, '#')]
        {
            assert!(line(Form::Redis, level, "x").ends_with(&format!(" {sign} x\n")));
        }
    }
}
