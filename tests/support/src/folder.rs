//! A place for the files of one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{PATIENCE, Server, program};

/// A folder of a test's own, gone with it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("keyfast-{test}-{}", std::process::id()));
        // What a run before has left there must not be found.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// Its own path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The names of all that is in it.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        entries.map(|entry| entry.unwrap().file_name().into_string().expect("a name in UTF-8")).collect()
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.file(name), text).expect("a file");
        self.file(name)
    }

    /// The program, to be run in here without anything in its environment that concerns it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.current_dir(&self.0).stdin(Stdio::null());
        for name in ["NOTIFY_SOCKET", "UPSTART_JOB", "REDIS_PASSWORD", "REDIS_PASSWORD_FILE"] {
            command.env_remove(name);
        }
        command
    }

    /// A server in here, on a free port of the loopback address.
    pub fn serve(&self, arguments: &[&str]) -> Server {
        Server::run(self.command().args(arguments).args(["--bind", "127.0.0.1", "--port", "0"]), 0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until a file has a text in it, and answers all of it.
#[track_caller]
pub fn wait_for_text(path: &str, part: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.contains(part) {
            return text;
        }
        assert!(Instant::now() < deadline, "no {part:?} in {}:\n{text}", path);
        thread::sleep(Duration::from_millis(2));
    }
}
