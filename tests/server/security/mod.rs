//! Security fixes of Redis, Valkey and their Lua, and the smallest input that shows each.
//!
//! A file is a section of the list of fixes; the name of a test begins with its number in that list, such as
//! `a2_` or `c7_`. What "safe" means for every entry: the process lives, the next PING on this and on another
//! connection is answered, and no memory stays taken.

mod access;
mod client;
mod files;
mod interpreter;
mod protocol;
mod script_libraries;
mod streams;
mod strings;
mod types;

/// The entries that are due, by the file that has their tests. What is not listed comes with its data type,
/// concerns what Keyfast does not have (replication, cluster, modules, a debugger of scripts), or is a rule
/// of design that no command shows.
const DUE: &[(&str, &str)] = &[
    (
        "interpreter",
        "a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14 a15 a16 a17 a18 a19 a20 a21 a22 a23 a26 a27 a28",
    ),
    ("script_libraries", "b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11"),
    ("strings", "c1 c2 c3 c4 c5 c6 c7 c8 c9 c10 c11 c12 c13 c14 g23"),
    ("protocol", "d1 d2 d3 d4 d5 d6 d7 d8 d9 d10 d11 d12 d13 d14 d15 d17 d23 d24"),
    ("access", "e1 e2 e5 e7 e8 e9 e10 e11 e12 e13"),
    ("files", "f1 f10 f12 f13 f14 f15 f16 f17 f18"),
    ("streams", "e4 f3 f4 g11 g12 g13 g14 g15 g17"),
    ("types", "d19 d20 d21 f2 f5 f6 f7 f9 g1 g2 g3 g18 g19 g20 g24"),
    ("client", "h9 h10 h11 h12 h13 h17"),
];

#[test]
fn every_fix_that_is_due_has_a_test() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/security");
    for (file, due) in DUE {
        let text = std::fs::read_to_string(format!("{folder}/{file}.rs")).expect("a file of tests");
        for number in due.split(' ') {
            let is_tested = text.contains(&format!("\nfn {number}_"));
            assert!(is_tested, "no test in {file}.rs begins with {number}_");
        }
    }
}
