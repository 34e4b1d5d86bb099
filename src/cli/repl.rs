//! Reads commands line by line: from the line editor on a terminal, otherwise from standard input.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::VecDeque;
use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::help::Help;
use super::options::{Family, Output};
use super::plain_text;
use super::session::{Session, is_word};
use super::{Result, Stop, say};
use crate::files::{Rights, replace};
use crate::platform::terminal::KeyByKey;
use crate::resp::request::words;

/// The most lines in the history.
const HISTORY_LINES_MAX: usize = 1000;
/// Permissions of the history's file.
const HISTORY_MODE: u32 = 0o600;
/// Commands that take longer print their time.
const SLOW: Duration = Duration::from_millis(500);

/// Whether more lines follow.
#[derive(PartialEq)]
enum Flow {
    On,
    End,
}

/// Reads and runs commands until the input ends.
pub(super) fn run_lines(session: &mut Session) -> Result<()> {
    let is_at_terminal = io::stdin().is_terminal();
    session.become_interactive(is_at_terminal);
    session.connect()?;
    if is_at_terminal { edit_lines(session) } else { read_lines(session) }
}

fn read_lines(session: &mut Session) -> Result<()> {
    let has_hints = Cell::new(false);
    // What is read ahead must be known where the client waits for messages or input.
    let input = io::stdin().as_fd().try_clone_to_owned();
    let mut input = BufReader::new(File::from(input?));
    let mut line = Vec::new();
    loop {
        if session.is_subscribed() {
            session.wait_for_messages(!input.buffer().is_empty())?;
        }
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
        let command = Line::of(&line);
        if command.obey(session, &has_hints)? == Flow::End {
            return Ok(());
        }
    }
}

fn edit_lines(session: &mut Session) -> Result<()> {
    let has_hints = Rc::new(Cell::new(true));
    let family = session.options.family;
    set_preferences(family, &has_hints)?;
    let help = if session.is_connected() { session.help() } else { Rc::default() };
    let failed = |error: ReadlineError| {
        eprintln!("Error: {error}");
        Stop::Exit(1)
    };
    let config = Config::builder()
        .max_history_size(HISTORY_LINES_MAX)
        .map_err(failed)?
        .completion_type(CompletionType::Circular)
        .build();
    let past = MemHistory::with_config(&config);
    let mut editor: Editor<Assistant, MemHistory> = Editor::with_history(config, past).map_err(failed)?;
    editor.set_helper(Some(Assistant { help, has_hints: Rc::clone(&has_hints) }));
    let mut history = History::load(family);
    for line in &history.lines {
        editor.add_history_entry(line).map_err(failed)?;
    }
    loop {
        if session.is_subscribed() {
            // Any key is input, also before the line ends.
            let _keys = KeyByKey::begin();
            session.wait_for_messages(false)?;
        }
        let typed = match editor.readline(&session.prompt()) {
            Ok(typed) => typed,
            Err(ReadlineError::Eof | ReadlineError::Interrupted) if session.is_subscribed() => {
                session.listen_no_more()?;
                continue;
            }
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let line = Line::of(typed.as_bytes());
        if !is_secret(&typed) {
            editor.add_history_entry(&typed).map_err(failed)?;
            history.add(&typed);
        }
        if line.obey(session, &has_hints)? == Flow::End {
            return Ok(());
        }
    }
}

/// A line from the user.
enum Line {
    Empty,
    UnbalancedQuotes,
    WrongRepeat,
    Command { words: Vec<Vec<u8>>, repeat: i64 },
}

impl Line {
    /// Parses a line; like redis-cli it ignores everything behind a NUL.
    fn of(line: &[u8]) -> Line {
        let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let Some(mut words) = words(line) else { return Line::UnbalancedQuotes };
        let repeat = match words.first() {
            None => return Line::Empty,
            Some(first) if words.len() > 1 => repeat(first),
            Some(_) => None,
        };
        match repeat {
            Some(..=0) => Line::WrongRepeat,
            Some(repeat) => Line::Command { words: words.split_off(1), repeat },
            None => Line::Command { words, repeat: 1 },
        }
    }

    fn obey(self, session: &mut Session, has_hints: &Cell<bool>) -> Result<Flow> {
        let (words, repeat) = match self {
            Line::Empty => return Ok(Flow::On),
            Line::UnbalancedQuotes => return say("Invalid argument(s)").map(|()| Flow::On),
            Line::WrongRepeat => {
                return say("Invalid redis-cli repeat command option value.").map(|()| Flow::On);
            }
            Line::Command { words, repeat } => (words, repeat),
        };
        match (&words[0].to_ascii_lowercase()[..], words.len()) {
            (b"quit" | b"exit", _) => return Ok(Flow::End),
            (b"restart", _) => say("Use 'restart' only in Lua debugging mode.")?,
            (b"connect", 3) => session.move_to(&words[1], &words[2])?,
            (b"clear", 1) => {
                let mut out = io::stdout().lock();
                out.write_all(b"\x1b[H\x1b[2J")?;
                out.flush()?;
            }
            ([b':', ..], _) => set_preference(&words, has_hints, "")?,
            _ => {
                let begin = Instant::now();
                match session.issue(&words, repeat) {
                    // The next command opens a new connection.
                    Ok(()) | Err(Stop::Lost) => {}
                    Err(stop) => return Err(stop),
                }
                let took = begin.elapsed();
                if took >= SLOW && session.options.output == Output::Standard {
                    say(format_args!("({:.2}s)", took.as_secs_f64()))?;
                }
            }
        }
        Ok(Flow::On)
    }
}

/// Whether a line may contain a password, so that the history must not keep it. A line that is no valid
/// command may contain one, too: its quotes may be wrong, or it may begin with a repetition.
fn is_secret(line: &str) -> bool {
    let unquoted =
        || line.split_whitespace().map(|word| word.replace(['"', '\''], "").into_bytes()).collect();
    let words: Vec<Vec<u8>> = words(line.as_bytes()).unwrap_or_else(unquoted);
    let words = match words.first() {
        Some(first) if repeat(first).is_some() => &words[1..],
        _ => &words[..],
    };
    let is = |position: usize, word: &str| is_word(words.get(position), word);
    let has = |known: &[&str]| {
        words.iter().skip(1).any(|word| known.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes())))
    };
    const PARAMETERS: &[&str] = &[
        "masterauth",
        "masteruser",
        "primaryauth",
        "primaryuser",
        "requirepass",
        "tls-client-key-file-pass",
        "tls-key-file-pass",
    ];
    is(0, "auth")
        || is(0, "acl") && is(1, "setuser")
        || is(0, "config") && is(1, "set") && has(PARAMETERS)
        || is(0, "hello") && has(&["auth"])
        || is(0, "migrate") && has(&["auth", "auth2"])
        || is(0, "sentinel") && has(&["auth-pass", "sentinel-pass"])
}

/// The number of repetitions, if the first word is a number (`strtol`).
fn repeat(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?.trim_ascii_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // `strtol` reads no digits as 0, and too many as the largest number.
        true => Some(text.parse().unwrap_or(0)),
        false => None,
    }
}

fn set_preference(words: &[Vec<u8>], has_hints: &Cell<bool>, place: &str) -> Result<()> {
    let text = |position: usize| String::from_utf8_lossy(&words[position]);
    if !is_word(words.first(), ":set") || words.len() < 2 {
        return say(format_args!("{place}unknown redis-cli internal command '{}'", text(0)));
    }
    match is_word(words.get(1), "hints") {
        true => has_hints.set(true),
        false if is_word(words.get(1), "nohints") => has_hints.set(false),
        false => say(format_args!("{place}unknown redis-cli preference '{}'", text(1)))?,
    }
    Ok(())
}

/// Runs the user's file of preferences.
fn set_preferences(family: Family, has_hints: &Cell<bool>) -> Result<()> {
    let name = format!(".{}clirc", family.name());
    let Some(file) = own_file(family, "RCFILE", &name) else { return Ok(()) };
    let text = fs::read(file).unwrap_or_default();
    for words in text.split(|byte| *byte == b'\n').filter_map(words).filter(|words| !words.is_empty()) {
        set_preference(&words, has_hints, &format!("{name}: "))?;
    }
    Ok(())
}

/// The path of a user's file: from an environment variable, or in the home directory. `None` if it is
/// `/dev/null`.
fn own_file(family: Family, variable: &str, name: &str) -> Option<PathBuf> {
    match family.variable(variable).filter(|value| !value.is_empty()) {
        Some(path) => Some(PathBuf::from(path)).filter(|path| path.as_os_str() != "/dev/null"),
        None => {
            let home = env::var_os("HOME").filter(|value| !value.is_empty())?;
            Some(PathBuf::from(home).join(name))
        }
    }
}

/// The lines that were typed, in the file that redis-cli uses, too.
struct History {
    lines: VecDeque<String>,
    file: Option<PathBuf>,
}

impl History {
    fn load(family: Family) -> History {
        let file = own_file(family, "HISTFILE", &format!(".{}cli_history", family.name()));
        let text = file.as_ref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut lines: VecDeque<String> = text.lines().map(str::to_owned).collect();
        lines.drain(..lines.len().saturating_sub(HISTORY_LINES_MAX));
        History { lines, file }
    }

    fn add(&mut self, line: &str) {
        if line.is_empty() || self.lines.back().is_some_and(|last| last == line) {
            return;
        }
        self.lines.push_back(line.to_owned());
        if self.lines.len() > HISTORY_LINES_MAX {
            self.lines.pop_front();
        }
        if let Err(error) = self.save() {
            eprintln!("The history could not be saved: {}", plain_text(&error));
            self.file = None;
        }
    }

    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let text: String = self.lines.iter().flat_map(|line| [line, "\n"]).collect();
        if file.exists() {
            // An existing file keeps its permissions, so they are set here: only its user may read it.
            fs::set_permissions(file, Permissions::from_mode(HISTORY_MODE))?;
        }
        replace(file, text.as_bytes(), Rights::Kept)
    }
}

/// Asks for the password on the terminal, where stars are shown in its place; or reads it from standard input
/// that is no terminal.
pub(super) fn ask_password() -> Option<Vec<u8>> {
    const PROMPT: &str = "Please input password: ";
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin().read_line(&mut line).ok()?;
        return Some(line.trim_end_matches(['\r', '\n']).as_bytes().to_vec());
    }
    let mut editor: Editor<Mask, MemHistory> =
        Editor::with_history(Config::default(), MemHistory::new()).ok()?;
    editor.set_helper(Some(Mask));
    editor.readline(PROMPT).ok().map(String::into_bytes)
}

/// Shows stars in the place of what is typed.
struct Mask;

impl Helper for Mask {}

impl Validator for Mask {}

impl Completer for Mask {
    type Candidate = String;
}

impl Hinter for Mask {
    type Hint = String;
}

impl Highlighter for Mask {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        Cow::Owned("*".repeat(line.chars().count()))
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        true
    }
}

/// Hints and completions for the line editor.
struct Assistant {
    help: Rc<Help>,
    has_hints: Rc<Cell<bool>>,
}

impl Helper for Assistant {}

impl Validator for Assistant {}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.help.completions(&line[..position]))
    }
}

impl Hinter for Assistant {
    type Hint = Shown;

    fn hint(&self, line: &str, position: usize, _: &Context<'_>) -> Option<Shown> {
        let is_wanted = self.has_hints.get() && position == line.len();
        is_wanted.then(|| self.help.hint(line)).flatten().map(Shown)
    }
}

/// A hint that is only shown: it names arguments, so it cannot be inserted.
struct Shown(String);

impl rustyline::hint::Hint for Shown {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[0;90;49m{hint}\x1b[0m"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        match Line::of(line.as_bytes()) {
            Line::Empty => "nothing".to_owned(),
            Line::UnbalancedQuotes => "quotes".to_owned(),
            Line::WrongRepeat => "repeat".to_owned(),
            Line::Command { words, repeat } => {
                let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
                format!("{repeat} {}", words.join("|"))
            }
        }
    }

    #[test]
    fn a_line_is_a_command_and_how_often() {
        for (line, expected) in [
            ("", "nothing"),
            (" \t\r\n", "nothing"),
            ("get \"a b\"\r\n", "1 get|a b"),
            ("get a\0b", "1 get|a"),
            ("get \"a", "quotes"),
            ("get \"a\"b", "quotes"),
            ("3 ping", "3 ping"),
            ("+3 ping", "3 ping"),
            ("3", "1 3"),
            ("0 ping", "repeat"),
            ("-1 ping", "repeat"),
            ("\"\" ping", "repeat"),
            ("99999999999999999999 ping", "repeat"),
            ("3x ping", "1 3x|ping"),
        ] {
            assert_eq!(shown(line), expected, "{line:?}");
        }
    }

    #[test]
    fn passwords_stay_out_of_the_history() {
        for (line, expected) in [
            ("AUTH x", true),
            ("3 auth x", true),
            ("acl setuser a >x", true),
            ("config set requirepass x", true),
            ("config set maxmemory 1 RequirePass x", true),
            ("config set tls-key-file-pass x", true),
            ("auth \"x", true),
            ("0 auth x", true),
            ("\"auth\" \"x", true),
            ("hello 3 auth default x", true),
            ("config set maxmemory 1", false),
            ("get auth", false),
            ("hello 3 setname a", false),
            ("\"", false),
        ] {
            assert_eq!(is_secret(line), expected, "{line}");
        }
    }
}
