//! The house rules that a compiler does not know.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest line of code or prose, in characters.
const LINE_CHARACTERS_MAX: usize = 110;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder, with their texts.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("fuzz") && !path.ends_with("clients")
        {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.clone(), fs::read_to_string(&path).expect("a text")));
        }
    }
    found
}

/// The modules of `lib.rs`, in their order.
fn rooms() -> Vec<String> {
    let map = fs::read_to_string(root().join("src/lib.rs")).expect("lib.rs");
    let rooms = map.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    rooms.map(str::to_owned).collect()
}

#[test]
fn a_room_uses_only_those_above_it() {
    let rooms = rooms();
    let height = |room: &str| rooms.iter().position(|other| other == room);
    let source = root().join("src");
    for (path, text) in sources(&source) {
        let below = path.strip_prefix(&source).unwrap();
        let room = below.iter().next().unwrap().to_string_lossy();
        let Some(own) = height(room.trim_end_matches(".rs")) else { continue };
        for used in text.split("crate::").skip(1) {
            let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(used_height) = height(&used) else { continue };
            assert!(used_height <= own, "{} uses {used}, which is below it", path.display());
        }
    }
}

#[test]
fn every_file_opens_with_its_story() {
    for (path, text) in sources(&root()) {
        let is_inner = path.ends_with("request/tests.rs");
        assert!(is_inner || text.starts_with("//! "), "{} does not say what it is for", path.display());
    }
}

#[test]
fn lines_fit() {
    for (path, text) in sources(&root()) {
        for (number, line) in text.lines().enumerate() {
            let fits = line.chars().count() <= LINE_CHARACTERS_MAX || is_a_long_text(line);
            assert!(fits, "{}:{} is too long", path.display(), number + 1);
        }
    }
}

/// A string that is quoted from elsewhere cannot be broken without breaking a search for it.
fn is_a_long_text(line: &str) -> bool {
    line.trim_start().starts_with("complexity: ") || line.matches('"').count() >= 2
}

#[test]
fn unsafe_is_in_four_rooms() {
    const ROOMS: [&str; 4] =
        ["src/allocator.rs", "src/keyspace/entry.rs", "src/resident.rs", "src/scripting/ffi.rs"];
    let keyword = ["unsafe", " "].concat();
    for (path, text) in sources(&root().join("src")) {
        let uses_it =
            text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(&keyword));
        let may_use_it = ROOMS.iter().any(|room| path.ends_with(room));
        assert!(!uses_it || may_use_it, "{} has {keyword}", path.display());
    }
}
