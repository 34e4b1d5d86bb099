//! The tables of the README and of the page on benchmarks have the figures of `benches/compare.json`, as the
//! charts do.
//!
//! So no figure on a page is older than another one. `KEYFAST_WRITE_PAGES=1` writes them anew.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::charts::kept;
use super::charts::results::{Results, Row, show};
use super::is_kept;

/// One figure of each server: the part, the subject and the unit in the file of results.
type Figure = (&'static str, &'static str, &'static str);

/// The rows of a table: what each is called, and its figures.
type Rows = &'static [(&'static str, &'static [Figure])];

const CPU: &str = "CPU µs per command";

/// A table's head, its rows, and which figures a row has. Several are put into one cell, with commas.
const TABLES: &[(&str, Rows)] = &[
    (
        "| |",
        &[
            (
                "CPU µs per SET, GET, SETNX, one at a time",
                &[
                    ("cpu", "SET at depth 1", CPU),
                    ("cpu", "GET at depth 1", CPU),
                    ("cpu", "SETNX at depth 1", CPU),
                ],
            ),
            (
                "… 16 in a pipeline",
                &[
                    ("cpu", "SET at depth 16", CPU),
                    ("cpu", "GET at depth 16", CPU),
                    ("cpu", "SETNX at depth 16", CPU),
                ],
            ),
            (
                "… 100 in a pipeline",
                &[
                    ("cpu", "SET at depth 100", CPU),
                    ("cpu", "GET at depth 100", CPU),
                    ("cpu", "SETNX at depth 100", CPU),
                ],
            ),
            (
                "CPU µs per release of a lock by EVALSHA, one at a time, 16 in a pipeline",
                &[
                    ("scripts", "EVALSHA of a release at depth 1", CPU),
                    ("scripts", "EVALSHA of a release at depth 16", CPU),
                ],
            ),
            (
                "bytes per key, 16-byte keys, 32-byte values",
                &[("memory", "memory", "bytes per key, 2000000 of 16 bytes, values of 32")],
            ),
            (
                "the same with an expiry on every key",
                &[("memory", "memory", "the same with an expiry on every key")],
            ),
            (
                "bytes per key with values of 1 KiB",
                &[("memory", "memory", "with values of 1 KiB, a tenth as many keys")],
            ),
            ("MiB when idle", &[("memory", "memory", "MiB when idle")]),
            ("MiB with 1,000 idle connections", &[("memory", "memory", "MiB with 1,000 idle connections")]),
        ],
    ),
    (
        "| CPU µs per command |",
        &[
            ("`PING`, which does nothing", &[("collections", "PING, at depth 16", CPU)]),
            ("`HSET`, hashes of 20 fields", &[("collections", "HSET, 20 fields, at depth 16", CPU)]),
            ("`HGET`, hashes of 20 fields", &[("collections", "HGET, 20 fields, at depth 16", CPU)]),
            ("`HSET`, a hash of 100,000 fields", &[("collections", "HSET, 100,000, at depth 16", CPU)]),
            ("`HGET`, a hash of 100,000 fields", &[("collections", "HGET, 100,000, at depth 16", CPU)]),
            ("`LPUSH`", &[("collections", "LPUSH, at depth 16", CPU)]),
            ("`RPOP`", &[("collections", "RPOP, at depth 16", CPU)]),
            ("`LRANGE` of 100", &[("collections", "LRANGE of 100, at depth 16", CPU)]),
            ("`SADD`", &[("collections", "SADD, at depth 16", CPU)]),
            ("`SISMEMBER`, of 100,000", &[("collections", "SISMEMBER of 100,000, at depth 16", CPU)]),
            ("`ZADD`, to 100,000", &[("collections", "ZADD, 100,000, at depth 16", CPU)]),
            ("`ZSCORE`, of 100,000", &[("collections", "ZSCORE, 100,000, at depth 16", CPU)]),
            ("`ZRANK`, of 100,000", &[("collections", "ZRANK, 100,000, at depth 16", CPU)]),
            ("`ZRANGEBYSCORE` of 10", &[("collections", "ZRANGEBYSCORE of 10, at depth 16", CPU)]),
            ("`XADD`", &[("collections", "XADD, at depth 16", CPU)]),
            ("`XREAD` of 10", &[("collections", "XREAD of 10, at depth 16", CPU)]),
        ],
    ),
    (
        "| bytes |",
        &[
            (
                "a field of a hash, 10 + 10 bytes",
                &[("collections", "collections", "bytes per field, 10 + 10 bytes")],
            ),
            ("a member of a set", &[("collections", "collections", "bytes per member of a set")]),
            (
                "a member of a sorted set",
                &[("collections", "collections", "bytes per member of a sorted set")],
            ),
            ("an element of a list", &[("collections", "collections", "bytes per element of a list")]),
            (
                "a hash of 5 fields, one of 900,000",
                &[("collections", "collections", "bytes per hash of 5 fields")],
            ),
            (
                "a set of 10 integers, one of 900,000",
                &[("collections", "collections", "bytes per set of 10 integers")],
            ),
            ("a list of 10, one of 900,000", &[("collections", "collections", "bytes per list of 10")]),
            (
                "a sorted set of 10, one of 900,000",
                &[("collections", "collections", "bytes per sorted set of 10")],
            ),
        ],
    ),
];

/// The figures of all servers.
fn figures(results: &Results, (part, subject, unit): Figure) -> &[f64] {
    let is_meant = |row: &&Row| row.part == part && row.subject == subject && row.unit == unit;
    let row = results.rows.iter().find(is_meant);
    &row.unwrap_or_else(|| panic!("no results of {part}: {subject}, {unit}")).figures
}

/// A server's name with the first two numbers of its version, as `Redis 8.6`; of Keyfast only the name.
fn short(label: &str) -> String {
    match label.split_once(' ') {
        Some(("Keyfast", _)) | None => "Keyfast".to_owned(),
        Some((name, version)) => {
            let numbers: Vec<&str> = version.split('.').take(2).collect();
            format!("{name} {}", numbers.join("."))
        }
    }
}

/// The lines of a table in Markdown, with Keyfast's ratio to the best of the others.
fn table(results: &Results, head: &str, rows: Rows) -> String {
    let servers: Vec<String> = results.servers.iter().map(|label| short(label)).collect();
    let mut table = format!("{head} {} | ratio |\n", servers.join(" | "));
    let _ = writeln!(table, "| --- |{} ---: |", " ---: |".repeat(servers.len()));
    for (label, shown) in rows {
        let shown: Vec<&[f64]> = shown.iter().map(|figure| figures(results, *figure)).collect();
        let cell =
            |server: usize| shown.iter().map(|figures| show(figures[server])).collect::<Vec<_>>().join(", ");
        let cells: Vec<String> = (0..servers.len()).map(cell).collect();
        let ratio = |figures: &&[f64]| {
            let best = figures[1..].iter().copied().fold(f64::INFINITY, f64::min);
            format!("{:.2}", figures[0] / best)
        };
        let ratios: Vec<String> = shown.iter().map(ratio).collect();
        let _ = writeln!(table, "| {label} | {} | {} |", cells.join(" | "), ratios.join(", "));
    }
    table
}

/// The document with the lines that begin where `is_first` says, up to the next one that `ends`, replaced.
fn with_lines(text: &str, is_first: impl Fn(&str) -> bool, ends: impl Fn(&str) -> bool, new: &str) -> String {
    let begin = text.lines().position(is_first).unwrap_or_else(|| panic!("no line for:\n{new}"));
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[begin + 1..].iter().position(|line| ends(line)).map_or(lines.len(), |at| begin + 1 + at);
    let mut all: Vec<&str> = lines[..begin].to_vec();
    all.extend(new.lines());
    all.extend(&lines[end..]);
    format!("{}\n", all.join("\n"))
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a document")
}

#[test]
fn the_page_on_benchmarks_shows_the_kept_results() {
    let (path, results) = ("src/guide/benchmarks.md", kept());
    let mut text = read(path);
    for (head, rows) in TABLES {
        let begin = format!("{head} Keyfast |");
        text = with_lines(
            &text,
            |line| line.starts_with(&begin) && line.ends_with("ratio |"),
            |line| !line.starts_with('|'),
            &table(&results, head, rows),
        );
    }
    is_kept(path, &text);
}

#[test]
fn the_readme_shows_the_kept_results() {
    let (path, results) = ("README.md", kept());
    let version = |number: usize| results.servers[number].split_once(' ').expect("a version").1;
    let numbers: Vec<usize> = ["Keyfast ", "Redis 8", "Valkey 9"]
        .iter()
        .map(|name| results.servers.iter().position(|label| label.starts_with(name)).expect("a server"))
        .collect();
    let mut text = read(path);
    for (label, unit, figure, has_versions) in [
        (
            "CPU per `HSET`, 16 in a pipeline",
            "µs",
            ("collections", "HSET, 20 fields, at depth 16", CPU),
            true,
        ),
        (
            "memory per element of a list",
            "bytes",
            ("collections", "collections", "bytes per element of a list"),
            false,
        ),
    ] {
        let figures = figures(&results, figure);
        let cell = |number: &usize| match has_versions && *number > 0 {
            true => format!("{} {unit} ({})", show(figures[*number]), version(*number)),
            false => format!("{} {unit}", show(figures[*number])),
        };
        let cells: Vec<String> = numbers.iter().map(cell).collect();
        let line = format!("| {label} | {} | not measured | not measured |", cells.join(" | "));
        let begin = format!("| {label} |");
        text = with_lines(&text, |line| line.starts_with(&begin), |_| true, &line);
    }
    is_kept(path, &text);
}
