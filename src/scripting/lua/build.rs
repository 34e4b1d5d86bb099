//! Builds the interpreter of scripts: Lua 5.1.5, with our own changes.
//!
//! Plain Lua 5.1.5 has not changed since 2012, so it lacks every security fix since then. `lua-5.1.5/` has
//! its sources as they are compiled, our changes included. `changes/` documents these: each hunk of a diff
//! says why, and `patch -R -p1` turns our files into upstream's. `lua-5.1.5.sha256` has the sums of
//! upstream's files, and `tests/commands/lua_sources.rs` holds the three against each other.
//! `additions.c` has the new functions. A number such as A12 is a test in
//! `tests/server/security/interpreter.rs`.
//!
//! With `KEYFAST_SANITIZE=address,undefined` the interpreter is built with these sanitizers of clang and with
//! its own checks: `tests/sanitizers/run` and `tests/fuzz/run` do so.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Our part of the interpreter, relative to the package, in which cargo runs this script.
const HERE: &str = "src/scripting/lua";

/// What to do if the interpreter is not compiled: the compiler is missing, or its headers are.
const NO_COMPILER: &str =
    "Keyfast needs a C compiler (for Lua and for cryptography): install gcc and libc6-dev, or set CC";

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// The C files of a directory, in the order of their names.
fn c_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|is| is == "c")).collect();
    found.sort();
    found
}

pub(crate) fn build() {
    let ours = Path::new(HERE);
    let lua = ours.join("lua-5.1.5");
    println!("cargo:rerun-if-changed={HERE}");
    println!("cargo:rerun-if-env-changed=KEYFAST_SANITIZE");

    let mut build = cc::Build::new();
    build.include(ours).include(&lua).warnings(false).flag_if_supported("-fno-common");
    build.files(c_files(ours)).files(c_files(&lua));
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
    // Links the whole archive, because the linker reads the crates that call it later. Apple's linkers read
    // an archive again when they need it, and zig's does not know the option.
    if variable("CARGO_CFG_TARGET_VENDOR") != "apple" {
        build.link_lib_modifier("+whole-archive");
    }
    if let Err(why) = build.try_compile("keyfast_lua") {
        // Cargo shows this as one line, before all that the compiler has printed.
        println!("cargo::error={NO_COMPILER} ({why})");
        std::process::exit(1);
    }
}
