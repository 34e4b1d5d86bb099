//! Builds the interpreter of scripts: Lua 5.1.5, with our own changes.
//!
//! Plain Lua 5.1.5 has been as it is since 2012, and every security fix since then is missing from it. The
//! sources come from the crate `lua-src`; here they are copied, changed and compiled. `changes/*.diff` has
//! the changes, one file for each file of Lua, in the form of `diff -u` without line numbers: behind `@@`
//! stands what a change is for. Its old lines must be in the source exactly once, or the build fails: a crate
//! that was updated cannot be built without a repair. `additions.c` has the functions that Lua did not have.
//!
//! With `KEYFAST_SANITIZE=address,undefined` the interpreter is built with these sanitizers of clang and with
//! its own checks: `tests/sanitizers/run` and `tests/fuzz/run` do so.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::{env, fs, panic};

/// Where the changes are, from the package's folder on.
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

/// Files of a folder whose names end like this, in the order of their names.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    found
}

/// Where the crate `lua-src` keeps the sources of Lua 5.1.
///
/// The crate has no function for that. But cargo compiles it from an absolute path, and the place of a panic
/// in it tells that path: it panics where it is to build for a target that it does not know.
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

/// Applies the changes of a file to a source.
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

/// One change.
struct Hunk {
    purpose: String,
    old: String,
    new: String,
}

/// The changes in a file. What comes before the first `@@` is for people.
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
                // The program ends where something is undefined: rustc has no library that prints it.
                build.flag("-fsanitize-trap=undefined");
                // Lua makes integers of any numbers, and then compares what came of it.
                build.flag("-fno-sanitize=float-cast-overflow");
                // What the interpreter takes for granted, and a stack that moves whenever it may.
                build
                    .flag("-include")
                    .flag("assert.h")
                    .define("lua_assert", "assert")
                    .define("HARDSTACKTESTS", None);
            }
        }
        // Tests run scripts to their limits: without optimization they would take minutes.
        _ if variable("OPT_LEVEL") == "0" => drop(build.opt_level(2)),
        _ => {}
    }
    // The whole of it, since the linker meets those who call it later: the crates that this one uses.
    build.link_lib_modifier("+whole-archive").compile("keyfast_lua");
}
