//! The C of the interpreter: upstream's Lua 5.1.5, with the changes that the diffs document and no others.
//!
//! Upstream's files are not in the tree, only their sums are (`lua-5.1.5.sha256`). Each diff is undone in the
//! file that is compiled, and the result must have upstream's sum. A file without a diff must have it itself.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scripting/lua")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect()
}

/// The files that are compiled, by name, with upstream's sums.
fn sums() -> Vec<(String, String)> {
    let list = read(&folder().join("lua-5.1.5.sha256"));
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| {
        let (sum, path) = line.split_once("  ").expect("a sum and a path");
        (path.trim_start_matches("src/").to_owned(), sum.to_owned())
    };
    lines.map(pair).collect()
}

fn sum_of(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut sum, byte| {
        write!(sum, "{byte:02x}").expect("a string takes all");
        sum
    })
}

/// The two numbers of a side of a hunk: its first line, counted from 1, and how many lines it has.
fn range(text: Option<&str>, sign: char) -> Option<(usize, usize)> {
    let (first, count) = text?.strip_prefix(sign)?.split_once(',')?;
    Some((first.parse().ok()?, count.parse().ok()?))
}

/// Undoes a diff in the file that it made. Every line of the diff must be where it says it is.
fn undone(name: &str, text: &str, diff: &str) -> Result<String, String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut parts = diff.split_inclusive('\n').peekable();
    for head in [format!("--- a/src/{name}\n"), format!("+++ b/src/{name}\n")] {
        if parts.next() != Some(&head) {
            return Err(format!("no line {head}"));
        }
    }
    let (mut old, mut at) = (Vec::new(), 0);
    while let Some(head) = parts.next() {
        let wrong = |what: &str| Err(format!("{what}: {head}"));
        let mut words = head.strip_prefix("@@ ").unwrap_or_default().splitn(4, ' ');
        let ranges = (range(words.next(), '-'), range(words.next(), '+'));
        let (Some((old_first, old_count)), Some((new_first, new_count))) = ranges else {
            return wrong("no hunk");
        };
        if words.next() != Some("@@") || words.next().is_none_or(|why| why.trim().is_empty()) {
            return wrong("no reason");
        }
        if new_first <= at || new_first > lines.len() {
            return wrong("not in order");
        }
        old.extend(&lines[at..new_first - 1]);
        at = new_first - 1;
        let (old_before, new_before) = (old.len(), at);
        if old_before + 1 != old_first {
            return wrong("another old line");
        }
        while let Some(part) = parts.next_if(|part| !part.starts_with('@')) {
            let (mark, line) = part.split_at_checked(1).unwrap_or_default();
            if !matches!(mark, " " | "-" | "+") {
                return wrong("a line without a mark");
            }
            if mark != "-" {
                if lines.get(at) != Some(&line) {
                    return wrong("another new line");
                }
                at += 1;
            }
            if mark != "+" {
                old.push(line);
            }
        }
        if (old.len() - old_before, at - new_before) != (old_count, new_count) {
            return wrong("another number of lines");
        }
    }
    old.extend(&lines[at..]);
    Ok(old.concat())
}

#[test]
fn lua_is_upstream_with_the_changes_that_are_documented() {
    let sums = sums();
    let listed: BTreeSet<_> = sums.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names_in(&folder().join("lua-5.1.5")), listed, "the files, and the list of their sums");
    let mut unused = names_in(&folder().join("changes"));
    for (name, sum) in sums {
        let mut text = read(&folder().join("lua-5.1.5").join(&name));
        let diff = format!("{name}.diff");
        if unused.remove(&diff) {
            let diff = read(&folder().join("changes").join(diff));
            text = undone(&name, &text, &diff).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        assert_eq!(sum_of(&text), sum, "{name} has a change that no diff documents");
    }
    assert!(unused.is_empty(), "these diffs change no file: {unused:?}");
}

/// What the test above relies on: a byte that is changed anywhere leads to an error, or to another text.
#[test]
fn a_changed_byte_of_lua_or_of_a_diff_is_found() {
    for diff_name in names_in(&folder().join("changes")) {
        let name = diff_name.trim_end_matches(".diff");
        let text = read(&folder().join("lua-5.1.5").join(name));
        let diff = read(&folder().join("changes").join(&diff_name));
        let upstream = undone(name, &text, &diff).expect("a diff that fits");
        let is_found = |text: &str, diff: &str| undone(name, text, diff).as_ref() != Ok(&upstream);
        for at in text.match_indices('\n').map(|(at, _)| at) {
            assert!(is_found(&with_another_byte(&text, at), &diff), "{name}, byte {at}");
        }
        for (start, line) in lines_with_places(&diff) {
            // Of a hunk's head the numbers are checked; its reason is free text.
            let last = if line.starts_with("@@") { 4 } else { line.len() - 1 };
            for at in [start, start + last] {
                assert!(is_found(&text, &with_another_byte(&diff, at)), "{diff_name}, byte {at}");
            }
        }
    }
}

fn lines_with_places(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        at += line.len();
        (at - line.len(), line)
    })
}

fn with_another_byte(text: &str, at: usize) -> String {
    let other = if text.as_bytes()[at] == b'7' { "8" } else { "7" };
    [&text[..at], other, &text[at + 1..]].concat()
}
