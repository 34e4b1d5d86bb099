//! Runs before the crate is compiled: builds the interpreter of scripts, and finds out which commit this is.

#[path = "scripting/lua/build.rs"]
mod lua;

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// The variable by which a build without git is told the commit, and the crate is.
const COMMIT: &str = "KEYFAST_COMMIT";
/// In a package, cargo leaves the commit here.
const VCS_INFO: &str = ".cargo_vcs_info.json";
/// Digits of a commit that are shown.
const DIGITS: usize = 7;

fn main() {
    lua::build();
    println!("cargo:rerun-if-changed=src/build.rs");
    println!("cargo:rerun-if-env-changed={COMMIT}");
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env={COMMIT}={commit}");
}

/// The commit that is built; `None` if nothing tells it. A build without optimization does not ask git: the
/// answer changes with each commit, and then the whole crate would have to be compiled again.
fn commit() -> Option<String> {
    let told = env::var(COMMIT).ok().or_else(packaged);
    let told = told.or_else(|| (env::var("PROFILE").as_deref() == Ok("release")).then(asked)?);
    let digits: String = told?.trim().chars().take(DIGITS).collect();
    (digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

/// The commit of which a package was made.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(VCS_INFO).ok()?;
    let (_, behind) = text.split_once("\"sha1\": \"")?;
    behind.split('"').next().map(str::to_owned)
}

/// The commit that git has checked out here. A repository around the package is another one's.
fn asked() -> Option<String> {
    if !Path::new(".git").exists() {
        return None;
    }
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/logs/HEAD");
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output().ok()?;
    String::from_utf8(output.stdout).ok()
}
