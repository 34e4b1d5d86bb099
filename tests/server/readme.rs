//! The documents, tried out: every fenced block of the README and of the pages is run here, or by the script
//! that a rule names.
//!
//! - A transcript (`console`) is typed in again: `keyfast cli` has the name redis-cli, and what it prints
//!   must be what the document shows. `…` in a document stands for any text, and alone in its line for any
//!   lines.
//! - A command line that starts a server starts one, on free ports, until it is ready and ends by SIGTERM.
//! - Python, JavaScript and containers are run by scripts of `tests/clients/` and `tests/docker/`, which take
//!   the blocks out of the documents.
//!
//! A block that no rule covers fails the test.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use support::client::words;
use support::folder::Folder;
use support::pages::{Block, blocks_of};
use support::pages::{documents, read, root};
use support::server::{Server, free_port, program};

fn blocks() -> Vec<Block> {
    documents().iter().flat_map(|document| blocks_of(document)).collect()
}

/// How a block is tried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// It is typed in here, and what is printed is compared.
    Transcript,
    /// Each of its lines starts a server here.
    Start,
    /// It is code of this file.
    Rust,
    /// This script runs it; it takes the block out of the document, or runs the same command.
    Script(&'static str),
    /// Nothing runs it, for this reason. Not in the README.
    Shown(&'static str),
}

/// What begins a block, and how it is tried out. The first rule that fits counts.
const RULES: &[(&str, &str, Trial)] = &[
    ("console", "$ ", Trial::Transcript),
    ("sh", "cargo run --release\n", Trial::Script("tests/bare/run")),
    ("sh", "cargo test\n", Trial::Script("tests/bare/run")),
    ("sh", "cargo run --release -- ", Trial::Start),
    ("sh", "cargo bench --bench compare", Trial::Script(".ci/run")),
    ("sh", "docker build -t keyfast .\n", Trial::Script("tests/docker/readme")),
    ("sh", "docker compose kill db1\n", Trial::Script("tests/docker/compose")),
    ("sh", "src/packaging/build target/keyfast\nsrc/packaging/packages", Trial::Script("tests/packages/run")),
    ("sh", "src/packaging/build target/keyfast\n", Trial::Script("Dockerfile")),
    ("sh", "keyfast --store 'postgres://", Trial::Shown("tests/locks/store starts servers on PostgreSQL")),
    ("sh", "keyfast cli --rdb ", Trial::Shown("tests/files/backups.rs runs its lines")),
    ("sh", "redis-cli CONFIG SET auto-aof", Trial::Shown("tests/files/backups.rs runs its lines")),
    ("sh", "pg_basebackup", Trial::Shown("tests/support/src/store/postgres.rs makes replicas so")),
    ("sh", "pg_rewind", Trial::Shown("it needs a primary that was lost")),
    ("sh", "pg_", Trial::Shown("tests/files/backups.rs runs its lines")),
    ("sh", "etcdctl --endpoints", Trial::Shown("tests/files/backups.rs runs its lines")),
    ("sh", "etcdctl snapshot restore", Trial::Shown("tests/files/backups.rs runs its lines")),
    ("sh", "etcdctl role", Trial::Shown("tests/locks/store starts servers on etcd, with users")),
    ("python", "import os\n\nimport pytest\n", Trial::Script("tests/clients/python/run")),
    ("python", "import redis\n", Trial::Script("tests/clients/python/test_documents.py")),
    ("python", "import uuid\n\nimport redis\n", Trial::Script("tests/clients/python/test_documents.py")),
    ("python", "from testcontainers.", Trial::Script("tests/docker/testcontainers/run")),
    ("js", "import { GenericContainer, ", Trial::Script("tests/docker/testcontainers/run")),
    (
        "rust,ignore",
        "use redis::Commands;\nuse testcontainers::",
        Trial::Script("tests/docker/testcontainers/run"),
    ),
    (
        "js",
        "import { createClient } from \"redis\";\n",
        Trial::Script("tests/clients/node/documents.test.mjs"),
    ),
    ("rust,no_run", "fn main() -> redis::RedisResult<()> {\n", Trial::Rust),
    ("yaml", "x-node: &node\n", Trial::Script("tests/docker/compose")),
    ("yaml", "services:\n  redis:\n", Trial::Script("tests/docker/readme")),
    ("yaml", "    services:\n", Trial::Shown("a part of a workflow, for a forge")),
    ("yaml", "scrape_configs:\n", Trial::Shown("a part of Prometheus' configuration")),
    ("sql", "", Trial::Shown("tests/locks/store/administrators.rs runs it")),
    ("text", "", Trial::Shown("no command")),
];

fn trial(block: &Block) -> Option<Trial> {
    let fits = |(language, begin, _): &&(&str, &str, Trial)| {
        block.language == *language && block.text.starts_with(begin)
    };
    RULES.iter().find(fits).map(|(.., trial)| *trial)
}

#[test]
fn every_block_is_tried_out() {
    let mut used = Vec::new();
    for block in blocks() {
        let Some(trial) = trial(&block) else {
            panic!("{}: no rule says who runs this block:\n{}", block.place(), block.text)
        };
        used.push(trial);
        match trial {
            Trial::Shown(_) => {
                assert_ne!(block.document, "README.md", "line {}: nothing runs it", block.line)
            }
            Trial::Script(script) => assert!(root().join(script).exists(), "{}: {script}", block.place()),
            _ => {}
        }
    }
    for (language, begin, trial) in RULES {
        assert!(used.contains(trial), "no document has a block of {language} that begins with {begin:?}");
    }
}

/// The scripts take the blocks of these documents, so they cannot run something else.
#[test]
fn the_scripts_read_the_documents() {
    for (script, documents) in [
        (
            "tests/clients/python/test_documents.py",
            &["README.md", "testing.md", "compatibility.md", "locks.md"][..],
        ),
        ("tests/clients/node/documents.test.mjs", &["compatibility.md", "locks.md"]),
        ("tests/docker/readme", &["README.md", "docker.md"]),
        ("tests/docker/compose", &["store.md"]),
        ("tests/docker/testcontainers/run", &["docker.md"]),
    ] {
        let text = read(script);
        for document in documents {
            assert!(text.contains(document), "{script} does not read {document}");
        }
    }
}

/// A server for the transcripts of one document, and a folder in which the commands find the programs that
/// the document names.
struct Stage {
    folder: Folder,
    _server: Server,
    metrics_port: u16,
}

impl Stage {
    fn new(document: &str) -> Stage {
        let name = Path::new(document).file_stem().expect("a name").to_string_lossy().into_owned();
        let folder = Folder::new(&format!("documents-{name}"));
        let metrics_port = free_port();
        let server = Server::start_with(&["--metrics-port", &metrics_port.to_string()]);
        // Each name is the same program. The client goes to this server, and prints as on a terminal.
        let script = format!(
            "#!/bin/sh\ncase \"${{0##*/}} $1\" in\n\
             redis-cli*) ;;\n\
             'keyfast cli') shift ;;\n\
             *) exec '{program}' \"$@\" ;;\nesac\n\
             exec '{program}' cli -p {port} --no-raw \"$@\"\n",
            program = program(),
            port = server.port(),
        );
        for path in ["bin/redis-cli", "bin/keyfast", "target/release/keyfast"] {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(&file, &script).expect("a file");
            let made = Command::new("chmod").arg("700").arg(&file).status();
            assert!(made.expect("chmod runs").success());
        }
        Stage { folder, _server: server, metrics_port }
    }

    /// What a command prints, with lines for its input.
    fn printed(&self, command: &str, input: &str) -> String {
        let path = format!("{}:{}", self.folder.file("bin"), std::env::var("PATH").unwrap_or_default());
        let mut child = Command::new("sh")
            .args(["-c", &self.without_curl(command)])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("sh runs");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("the command reads its input");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{command} failed");
        String::from_utf8(output.stdout).expect("a text")
    }

    /// A command with a file in place of what curl would fetch: not every machine has curl.
    fn without_curl(&self, command: &str) -> String {
        let Some(rest) = command.strip_prefix("curl -s localhost:9121") else { return command.to_owned() };
        let (path, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.metrics_port)).expect("metrics");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        let (_, body) = reply.split_once("\r\n\r\n").expect("a head and a body");
        format!("cat '{}' {rest}", self.folder.write("body", body))
    }
}

/// One command of a transcript: what is typed in, then what it shows.
#[derive(Default)]
struct Step {
    command: String,
    /// Lines behind the client's own prompt.
    input: String,
    shown: Vec<String>,
}

fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), ..Step::default() });
            continue;
        }
        let step = steps.last_mut().unwrap_or_else(|| panic!("{} begins with no command", block.place()));
        match line.strip_prefix("127.0.0.1:6379> ") {
            Some(typed) => step.input += &format!("{typed}\n"),
            None => step.shown.push(line.to_owned()),
        }
    }
    steps
}

#[test]
fn transcripts_print_what_they_show() {
    let mut tried = 0;
    for document in documents() {
        let blocks = blocks_of(&document);
        let transcripts: Vec<_> =
            blocks.iter().filter(|block| trial(block) == Some(Trial::Transcript)).collect();
        if transcripts.is_empty() {
            continue;
        }
        // A reader types them in one after the other, and may do so again.
        let stage = Stage::new(&document);
        for block in transcripts.iter().chain(&transcripts) {
            for step in steps(block) {
                let printed = stage.printed(&step.command, &step.input);
                let printed: Vec<&str> = printed.lines().collect();
                let shown: Vec<&str> = step.shown.iter().map(String::as_str).collect();
                let place = format!("{}: {}", block.place(), step.command);
                assert!(
                    are_alike(&shown, &printed),
                    "{place}\nthe document shows:\n{}\nit prints:\n{}",
                    shown.join("\n"),
                    printed.join("\n")
                );
                tried += 1;
            }
        }
    }
    assert!(tried >= 10, "{tried}");
}

/// Whether lines are those that a document shows. `…` alone stands for any lines.
fn are_alike(shown: &[&str], printed: &[&str]) -> bool {
    match shown {
        [] => printed.is_empty(),
        ["…", rest @ ..] => (0..=printed.len()).any(|skipped| are_alike(rest, &printed[skipped..])),
        [line, rest @ ..] => printed
            .split_first()
            .is_some_and(|(first, printed)| is_like(line, first) && are_alike(rest, printed)),
    }
}

/// Whether a line is the one that a document shows. `…` stands for any text.
fn is_like(shown: &str, printed: &str) -> bool {
    match shown.split_once('…') {
        None => shown == printed,
        Some((begin, rest)) => printed.strip_prefix(begin).is_some_and(|printed| {
            let ends = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
            ends.into_iter().any(|at| is_like(rest, &printed[at..]))
        }),
    }
}

#[test]
fn a_transcript_that_shows_something_else_is_found() {
    assert!(are_alike(&["a", "…", "c …"], &["a", "x", "y", "c 1"]) && are_alike(&["…"], &[]));
    assert!(!are_alike(&["a"], &["b"]) && !are_alike(&["a"], &["a", "b"]) && !are_alike(&["a", "b"], &["a"]));
    assert!(!are_alike(&["…", "c"], &["a", "b"]) && is_like("+… ms (…): x", "+3 ms (y): x"));
    assert!(!is_like("+… ms", "+3 s"));
}

/// A command line of a document, taken apart.
struct Start {
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    input: String,
}

/// Takes `echo "input" | NAME=value cargo run --release -- arguments` apart.
fn start(line: &str) -> Option<Start> {
    let (input, command) = match line.split_once(" | ") {
        Some((echo, command)) => (format!("{}\n", words(echo.strip_prefix("echo ")?).join(" ")), command),
        None => (String::new(), line),
    };
    let (before, after) = command.split_once("cargo run --release")?;
    let variables = before.split_whitespace().map(|word| word.split_once('='));
    let variables = variables.map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let arguments = words(after.trim().trim_start_matches("-- "));
    Some(Start { variables: variables.collect::<Option<_>>()?, arguments, input })
}

#[test]
fn command_lines_start_servers() {
    let mut started = 0;
    for block in blocks().iter().filter(|block| trial(block) == Some(Trial::Start)) {
        for line in block.text.lines() {
            let start = start(line).unwrap_or_else(|| panic!("{}: {line}", block.place()));
            let folder = Folder::new(&format!("command-line-{started}"));
            write_files(&folder);
            let mut server = run(&folder, start);
            server.signal("TERM");
            let status = server.wait_for_end();
            assert!(status.success(), "{}: {line}: {status}:\n{}", block.place(), server.output());
            started += 1;
        }
    }
    assert!(started >= 8, "{started}");
}

/// Starts a server as a document says, in a folder, but on ports that are free. Returns when it is ready.
fn run(folder: &Folder, start: Start) -> Server {
    let Start { mut variables, mut arguments, input } = start;
    let mut has_port = false;
    for (name, value) in &mut variables {
        if name == "KEYFAST_PORT" {
            *value = free_port().to_string();
            has_port = true;
        }
    }
    for at in 0..arguments.len() {
        if at > 0 && ["--port", "--tls-port", "--metrics-port"].contains(&arguments[at - 1].as_str()) {
            has_port |= arguments[at - 1] == "--port";
            if arguments[at] != "0" {
                arguments[at] = free_port().to_string();
            }
        }
        if arguments[at].starts_with("/etc/") {
            arguments[at] = folder.write("redis.conf", "maxmemory 100mb\n");
        }
    }
    if !has_port {
        arguments.extend(["--port".to_owned(), "0".to_owned()]);
    }
    let input = File::open(folder.write("input", &input)).expect("a file");
    let mut command = folder.command();
    command.args(arguments).envs(variables).stdin(input);
    // The number stands for any port: nothing connects.
    Server::run(&mut command, 1)
}

/// The files and folders that command lines name.
fn write_files(folder: &Folder) {
    fs::create_dir(folder.file("copy-of-my-data")).expect("a folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = certificate.self_signed(&key).expect("a certificate").pem();
    folder.write("key.pem", &key.serialize_pem());
    folder.write("cert.pem", &certificate);
    folder.write("ca.pem", &certificate);
    let security = blocks_of("src/guide/security.md");
    let users = security.iter().find(|block| block.text.starts_with("user ")).expect("users");
    folder.write("users.acl", &users.text);
}

/// The example of the page on compatibility, with the address of a server.
fn example(url: &str) -> redis::RedisResult<bool> {
    let mut connection = redis::Client::open(url)?.get_connection()?;
    let is_ours: bool = redis::cmd("SETNX").arg("from-rust").arg("Hello").query(&mut connection)?;
    let () = redis::cmd("DEL").arg("from-rust").query(&mut connection)?;
    Ok(is_ours)
}

/// The example of the page on locks.
fn example_of_a_lock(url: &str) -> redis::RedisResult<(Option<u64>, u32)> {
    let mut connection = redis::Client::open(url)?.get_connection()?;
    let line = ["ACQUIRE", "lock:report", "token-42", "PX", "30000"];
    let number: Option<u64> = redis::cmd("LOCK").arg(&line).query(&mut connection)?;
    let line = ["RELEASE", "lock:report", "token-42"];
    let released: u32 = redis::cmd("LOCK").arg(&line).query(&mut connection)?;
    Ok((number, released))
}

/// The example of a leader on the page on locks. Returns whether it led, and what its release returned.
fn example_of_a_leader(url: &str) -> redis::RedisResult<(bool, u32)> {
    let mut connection = redis::Client::open(url)?.get_connection()?;
    let token = format!("{}-{:?}", std::process::id(), std::time::SystemTime::now());
    let line = ["ACQUIRE", "leader", &token, "PX", "9000", "WAIT", "0", "AGAIN", "BOUND"];
    let number: u64 = redis::cmd("LOCK").arg(&line).query(&mut connection)?;
    let still: Option<u64> = redis::cmd("LOCK").arg(&["FENCE", "leader", &token]).query(&mut connection)?;
    let released: u32 = redis::cmd("LOCK").arg(&["RELEASE", "leader", &token]).query(&mut connection)?;
    Ok((still == Some(number), released))
}

#[test]
fn the_example_in_rust_leads_each_time() {
    let server = Server::start();
    let url = format!("redis://{}", server.address());
    for _ in 0..2 {
        assert_eq!(example_of_a_leader(&url).expect("a leader"), (true, 1));
    }
}

#[test]
fn the_example_in_rust_takes_a_lock_and_releases_it_each_time() {
    let server = Server::start();
    let url = format!("redis://{}", server.address());
    for _ in 0..2 {
        let (number, released) = example_of_a_lock(&url).expect("two replies");
        assert_eq!((number.is_some(), released), (true, 1));
    }
}

#[test]
fn the_example_in_rust_takes_its_key_each_time() {
    let server = Server::start();
    let url = format!("redis://{}", server.address());
    assert!(example(&url).expect("a reply") && example(&url).expect("a reply"));
}

#[test]
fn the_examples_in_rust_are_code_of_this_file() {
    let code: String = include_str!("readme.rs").lines().map(|line| format!("{}\n", line.trim())).collect();
    let examples: Vec<_> = blocks().into_iter().filter(|block| trial(block) == Some(Trial::Rust)).collect();
    assert!(!examples.is_empty());
    for block in examples {
        let text = block.text.replace("\"redis://localhost:6379\"", "url");
        let steps = text.lines().map(str::trim).filter(|line| line.starts_with("let "));
        let steps: String = steps.map(|line| format!("{line}\n")).collect();
        assert!(!steps.is_empty() && code.contains(&steps), "{} differs from this file", block.place());
    }
}
