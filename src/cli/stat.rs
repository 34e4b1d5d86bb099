//! The mode that watches a server: `--stat`.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use super::Result;
use super::session::Session;

/// The interval between two lines, if `-i` does not say it.
const INTERVAL: Duration = Duration::from_secs(1);
/// Lines between two headings.
const LINES_BETWEEN_HEADINGS: u64 = 20;

/// Prints a line of figures at each interval, for ever.
pub(super) fn print_figures(session: &mut Session) -> Result<()> {
    let interval = if session.options.interval.is_zero() { INTERVAL } else { session.options.interval };
    let mut commands_before = None;
    for line in 0_u64.. {
        let info = session.must_ask(&["INFO"], "ERROR:")?;
        let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        let mut out = io::stdout().lock();
        if line % LINES_BETWEEN_HEADINGS == 0 {
            writeln!(
                out,
                "------- data ------ --------------------- load -------------------- - child -\n\
                 keys       mem      clients blocked requests            connections          "
            )?;
        }
        let commands = field(&info, "total_commands_processed");
        let more = commands - commands_before.replace(commands).unwrap_or(commands);
        writeln!(
            out,
            "{:<11}{:<8} {:<8}{:<8}{:<19} {:<12}{}",
            keys(&info),
            bytes_shown(field(&info, "used_memory")),
            field(&info, "connected_clients"),
            field(&info, "blocked_clients"),
            format!("{commands} (+{more})"),
            field(&info, "total_connections_received"),
            children(&info)
        )?;
        out.flush()?;
        drop(out);
        thread::sleep(interval);
    }
    Ok(())
}

/// A number in INFO; 0 if it is missing.
fn field(info: &str, name: &str) -> i64 {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The number of keys in all databases.
fn keys(info: &str) -> u64 {
    let databases = info.lines().filter(|line| line.starts_with("db"));
    let counts =
        databases.filter_map(|line| line.split_once(":keys=")?.1.split(',').next()?.parse::<u64>().ok());
    counts.sum()
}

/// The work in the background: snapshots and rewrites of the log.
fn children(info: &str) -> &'static str {
    let is = |name| field(info, name) == 1;
    match (is("rdb_bgsave_in_progress"), is("aof_rewrite_in_progress"), is("loading")) {
        (_, _, true) => "LOAD",
        (true, true, _) => "SAVE+AOF",
        (true, false, _) => "SAVE",
        (false, true, _) => "AOF",
        (false, false, _) => "",
    }
}

fn bytes_shown(bytes: i64) -> String {
    let mut size = bytes as f64;
    if size < 1024.0 {
        return format!("{bytes}B");
    }
    let mut units = ['K', 'M', 'G'].into_iter().peekable();
    while let Some(unit) = units.next() {
        size /= 1024.0;
        if size < 1024.0 || units.peek().is_none() {
            return format!("{size:.2}{unit}");
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_from_info() {
        let info = "# Memory\r\nused_memory:1170000\r\nused_memory_rss:5\r\n\
                    db0:keys=3,expires=0,avg_ttl=0\r\ndb15:keys=4,expires=0\r\nrdb_bgsave_in_progress:1\r\n";
        assert_eq!(field(info, "used_memory"), 1_170_000);
        assert_eq!(field(info, "nosuch"), 0);
        assert_eq!(keys(info), 7);
        assert_eq!(children(info), "SAVE");
        for (bytes, expected) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1_170_000, "1.12M"), (5 << 40, "5120.00G")]
        {
            assert_eq!(bytes_shown(bytes), expected);
        }
    }
}
