//! Runs before the crate is compiled: builds the interpreter of scripts, and finds out which commit this is.

#[path = "scripting/lua/build.rs"]
mod lua;

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// The environment variable that names the commit. A build without git may set it, and the crate reads it.
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

/// The commit that is built; `None` if it is not known. Only a release build asks git: the answer changes
/// with each commit, and cargo then compiles the whole crate again.
fn commit() -> Option<String> {
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let known = env::var(COMMIT).ok().or_else(packaged);
    let known = known.or_else(|| if is_release { checked_out() } else { None });
    let digits: String = known?.trim().chars().take(DIGITS).collect();
    (digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

/// The commit of which a package was made.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(VCS_INFO).ok()?;
    let (_, behind) = text.split_once("\"sha1\": \"")?;
    behind.split('"').next().map(str::to_owned)
}

/// The commit that git has checked out here. A repository around the package belongs to another project.
fn checked_out() -> Option<String> {
    if !Path::new(".git").exists() {
        return None;
    }
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/logs/HEAD");
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output().ok()?;
    String::from_utf8(output.stdout).ok()
}
