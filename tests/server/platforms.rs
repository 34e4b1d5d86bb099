//! Where the code may depend on Linux: in `src/platform`, so that another system is a matter of days.
//!
//! `tests/platforms/run` has the compiler check the whole code for macOS. It cannot see what compiles there
//! and means nothing, such as a path below `/proc`. These words show it.

use std::fs;
use std::path::{Path, PathBuf};

/// What not all Unix systems have, or each has in its own way. Paths as bytes, permissions, signals and Unix
/// sockets of the standard library and of tokio are the same, so `std::os::unix` may be used anywhere.
const SYSTEM_WORDS: &[&str] = &[
    "/dev/fd",
    "/dev/full",
    "/dev/shm",
    "/proc/",
    "/sys/",
    "os::linux",
    "os::macos",
    "target_env",
    "target_os",
    "target_vendor",
];

/// Calls of the system, many of which are of one alone. Tests may use them: they end processes, and play
/// terminals.
const SYSTEM_CALLS: &[&str] = &["libc::", "nix::"];

/// The module for it, below `src`.
const PLATFORM: &str = "platform";

/// Files elsewhere that depend on the system, with the reason. Below `src` there is none.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("benches/compare/server.rs", "measures other servers, on Linux only: their threads and their memory"),
    ("tests/files/exporting.rs", "counts the open files of the server"),
    ("tests/server/limits.rs", "counts the connections of the machine"),
    ("tests/commands/long_requests.rs", "counts the threads of the server"),
    ("tests/server/parameters.rs", "reads the score by which Linux chooses a process to kill"),
    ("tests/server/security/script_libraries.rs", "reads the most memory that the server had"),
    ("tests/support/src/server.rs", "reads how much memory the server has"),
    (
        "tests/support/src/store/postgres.rs",
        "asks whether root runs the tests, as PostgreSQL refuses to run as root",
    ),
    ("tests/locks/store/starts.rs", "reads the title of a process; a file that holds no password"),
    (
        "tests/server/supervising.rs",
        "reads the title, the parent and the streams of a process; abstract sockets",
    ),
    ("tests/many/main.rs", "counts the threads of the process"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder, with their code: without comments.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let is_another_package = ["fuzz", "clients", "target"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !is_another_package {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a text");
            let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
            found.push((name, code.join("\n")));
        }
    }
    found
}

/// Those of some words that a code has. `unix::` is not `nix::`.
fn found_in(code: &str, words: &[&'static str]) -> Vec<&'static str> {
    let is_whole =
        |at: usize| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
    let is_in = |word: &&&str| code.match_indices(**word).any(|(at, _)| is_whole(at));
    words.iter().filter(is_in).copied().collect()
}

#[test]
fn only_one_module_depends_on_the_system() {
    let platform = format!("src/{PLATFORM}/");
    let this_file = "tests/server/platforms.rs";
    let mut unused: Vec<_> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    let mut found = Vec::new();
    let folders = ["src", "tests", "benches"];
    for (name, code) in folders.iter().flat_map(|folder| sources(&root().join(folder))) {
        let mut words = found_in(&code, SYSTEM_WORDS);
        if name.starts_with("src/") {
            words.extend(found_in(&code, SYSTEM_CALLS));
        }
        if words.is_empty() || name.starts_with(&platform) || name == this_file {
            continue;
        }
        match unused.iter().position(|exception| *exception == name) {
            Some(place) => drop(unused.swap_remove(place)),
            None => found.push(format!("{name}: {words:?}")),
        }
    }
    assert!(found.is_empty(), "these depend on the system outside src/{PLATFORM}:\n{}", found.join("\n"));
    assert!(unused.is_empty(), "these do not depend on the system any more: {unused:?}");
}

#[test]
fn words_of_a_system_are_found() {
    assert_eq!(
        found_in("#[cfg(target_os = \"linux\")] open(\"/proc/self\")", SYSTEM_WORDS),
        ["/proc/", "target_os"]
    );
    assert_eq!(found_in("use nix::poll::poll; libc::getpid()", SYSTEM_CALLS), ["libc::", "nix::"]);
    assert!(found_in("use std::os::unix::net::UnixStream;", SYSTEM_CALLS).is_empty());
}

#[test]
fn each_file_of_the_module_says_what_macos_does() {
    for (name, _) in sources(&root().join("src").join(PLATFORM)) {
        let text = fs::read_to_string(root().join(&name)).expect("a text");
        let mut story = text.lines().take_while(|line| line.starts_with("//!"));
        assert!(story.any(|line| line.contains("macOS")), "{name} does not say what macOS does in its place");
    }
}
