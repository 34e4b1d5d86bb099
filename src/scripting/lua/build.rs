//! Builds the interpreter of scripts: Lua 5.1.5, with our own changes.
//!
//! Plain Lua 5.1.5 has not changed since 2012, so it lacks every security fix since then. The sources come
//! from the crate `lua-src`. This script copies, changes and compiles them. `changes/*.diff` contains the
//! changes, one file for each file of Lua, in the form of `diff -u` without line numbers; the reason of a
//! change follows `@@`. A change's old lines must be in the source exactly once, or the build fails. So an
//! updated crate does not build before the changes fit again. `additions.c` has the new functions.
//! With `KEYFAST_SANITIZE=address,undefined` the interpreter is built with these sanitizers of clang and with
//! its own checks: `tests/sanitizers/run` and `tests/fuzz/run` do so.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::{env, fs, panic};

/// The directory of the changes, relative to the package.
const HERE: &str = "src/scripting/lua";

fn main() {
    let here = Path::new(&variable("CARGO_MANIFEST_DIR")).join(HERE);
    let sources = Path::new(&variable("OUT_DIR")).join("lua");
    println!("cargo:rerun-if-changed={HERE}");
    println!("cargo:rerun-if-env-changed=KEYFAST_SANITIZE");

    let _ = fs::remove_dir_all(&sources);
    fs::create_dir_all(&sources).expect("a folder for the sources");
    copy(&lua_sources(), &sources);
    for path in files(&here.join("changes"), "diff") {
        let name = path.file_stem().expect("a file has a name");
        change(&sources.join(name), &path);
    }
    for name in ["additions.c", "additions.h"] {
        fs::copy(here.join(name), sources.join(name)).expect(name);
    }
    compile(&sources);
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// The files in a directory with this extension, in the order of their names.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    found
}

/// The directory of the Lua 5.1 sources in the crate `lua-src`.
///
/// The crate has no function for that. But cargo compiles it from an absolute path, and the location of a
/// panic contains that path. The crate panics when it is asked to build for an unknown target.
fn lua_sources() -> PathBuf {
    let (sender, places) = mpsc::channel();
    panic::set_hook(Box::new(move |panic| {
        let _ = sender.send(panic.location().map(|place| PathBuf::from(place.file())));
    }));
    let built = panic::catch_unwind(|| lua_src::Build::new().target("none").build(lua_src::Lua51));
    let _ = panic::take_hook();
    assert!(built.is_err(), "lua-src built Lua for a target that does not exist");
    let place = places.recv().ok().flatten().expect("a panic has a place");
    let package = place.ancestors().nth(2).expect("lua-src lies in a folder, in src");
    let sources = package.join("lua-5.1.5");
    assert!(sources.join("lvm.c").is_file(), "no sources of Lua 5.1.5 in {}", package.display());
    sources
}

fn copy(from: &Path, to: &Path) {
    for path in files(from, "c").into_iter().chain(files(from, "h")) {
        let name = path.file_name().expect("a file has a name");
        let text = fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        fs::write(to.join(name), text).expect("room for the sources");
    }
}

/// Applies the changes in a file to a source.
fn change(source: &Path, changes: &Path) {
    let read = |path: &Path| {
        fs::read_to_string(path)
            .unwrap_or_else(|why| panic!("{}: {why}", path.display()))
            .replace("\r\n", "\n")
    };
    let mut text = read(source);
    for hunk in hunks(&read(changes)) {
        let found = text.matches(&hunk.old).count();
        assert!(
            found == 1 && !hunk.old.is_empty(),
            "{}: the change \"{}\" finds its place {found} times, not once",
            changes.display(),
            hunk.purpose,
        );
        text = text.replacen(&hunk.old, &hunk.new, 1);
    }
    fs::write(source, text).expect("room for the sources");
}

/// One change: its old and its new lines.
struct Hunk {
    purpose: String,
    old: String,
    new: String,
}

/// The changes in a file. The text before the first `@@` is for people.
fn hunks(text: &str) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for line in text.lines() {
        if let Some(purpose) = line.strip_prefix("@@ ") {
            hunks.push(Hunk { purpose: purpose.to_owned(), old: String::new(), new: String::new() });
            continue;
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        let (is_old, is_new, rest) = match line.split_at_checked(1) {
            None => (true, true, ""),
            Some((" ", rest)) => (true, true, rest),
            Some(("-", rest)) => (true, false, rest),
            Some(("+", rest)) => (false, true, rest),
            Some(_) => panic!("a line of a change begins with a blank, - or +: {line}"),
        };
        for (side, is_there) in [(&mut hunk.old, is_old), (&mut hunk.new, is_new)] {
            if is_there {
                side.push_str(rest);
                side.push('\n');
            }
        }
    }
    hunks
}

fn compile(sources: &Path) {
    let mut build = cc::Build::new();
    build.include(sources).warnings(false).flag_if_supported("-fno-common");
    build.files(files(sources, "c"));
    if variable("CARGO_CFG_TARGET_FAMILY") == "unix" {
        build.define("LUA_USE_POSIX", None);
    }
    match env::var("KEYFAST_SANITIZE") {
        Ok(sanitizers) if !sanitizers.is_empty() => {
            build.flag(format!("-fsanitize={sanitizers}")).flag("-fno-omit-frame-pointer");
            build.debug(true).opt_level(1);
            if sanitizers.contains("undefined") {
                // Undefined behaviour ends the program: rustc does not link the library that would report it.
                build.flag("-fsanitize-trap=undefined");
                // Lua converts any number to an integer, and then compares the result.
                build.flag("-fno-sanitize=float-cast-overflow");
                // Enables Lua's own assertions, and moves the stack at every opportunity.
                build
                    .flag("-include")
                    .flag("assert.h")
                    .define("lua_assert", "assert")
                    .define("HARDSTACKTESTS", None);
            }
        }
        // Tests run scripts to their limits: without optimization that would take minutes.
        _ if variable("OPT_LEVEL") == "0" => drop(build.opt_level(2)),
        _ => {}
    }
    // Links the whole archive, because the linker reads the crates that call it later.
    build.link_lib_modifier("+whole-archive").compile("keyfast_lua");
}
