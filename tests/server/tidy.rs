//! The house rules that a compiler does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use keyfast::internals::commands::all;
use keyfast::internals::config::{Owner, parameters};

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
    let rooms = map
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
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
        assert!(text.starts_with("//! "), "{} does not say what it is for", path.display());
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

/// A string that is quoted from elsewhere cannot be broken without breaking a search for it, nor can a name.
fn is_a_long_text(line: &str) -> bool {
    line.starts_with("marked!(")
        || line.trim_start().starts_with("complexity: ")
        || line.matches('"').count() >= 2
}

#[test]
fn unsafe_is_in_ten_rooms() {
    const ROOMS: [&str; 10] = [
        "src/allocator.rs",
        "src/keyspace/store/entry.rs",
        "src/platform/command_line.rs",
        "src/platform/heap.rs",
        "src/platform/host_names.rs",
        "src/platform/memory.rs",
        "src/platform/program.rs",
        "src/platform/thread_clock.rs",
        "src/scripting/ffi.rs",
        "src/scripting/interpreter.rs",
    ];
    let keyword = ["unsafe", " "].concat();
    for (path, text) in sources(&root().join("src")) {
        let uses_it =
            text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(&keyword));
        let may_use_it = ROOMS.iter().any(|room| path.ends_with(room));
        assert_eq!(uses_it, may_use_it, "{} has {keyword}, or is in vain in the list", path.display());
    }
}

/// Files that recognize commands by their names, below `src/`, with the reason. For all others, a fact of the
/// command decides.
const KNOW_NAMES: &[(&str, &str)] = &[
    ("cli", "the client knows a server only by the names of its commands"),
    (
        "lens/script.rs",
        "the lens searches the texts of scripts, as libraries write them, for the names of commands",
    ),
    ("persistence/aof/reader.rs", "a log of other servers may hold requests that are too long for one"),
    ("config", "`save` is a parameter, `debug` and `swapdb` are values of parameters"),
    ("options/loading.rs", "`save` is a parameter"),
    ("scripting/sandbox.rs", "`select` and `type` are functions of Lua"),
];

#[test]
fn a_fact_decides_and_no_name() {
    let source = root().join("src");
    let names: BTreeSet<&str> = all()
        .flat_map(|command| std::iter::once(command).chain(command.subcommands))
        .map(|command| command.name)
        .collect();
    let mut unused: BTreeSet<_> = KNOW_NAMES.iter().map(|(path, _)| *path).collect();
    let mut found = Vec::new();
    for (path, text) in sources(&source) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_own = |name: &str| code.contains(&format!("    name: \"{name}\","));
        let compared = compared_words(code).into_iter();
        let compared: Vec<_> = compared.filter(|word| names.contains(word) && !is_own(word)).collect();
        if compared.is_empty() {
            continue;
        }
        let below = path.strip_prefix(&source).unwrap();
        match KNOW_NAMES.iter().find(|(excused, _)| below.starts_with(excused)) {
            Some((excused, _)) => _ = unused.remove(excused),
            None => found.push(format!("{}: {compared:?}", below.display())),
        }
    }
    assert!(found.is_empty(), "names of commands decide here:\n{}", found.join("\n"));
    assert!(unused.is_empty(), "no names of commands there any more: {unused:?}");
}

/// The strings that code compares with a name or a command: behind `==`, in the arms of a `match`, and in
/// lists of words.
fn compared_words(code: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let is_named = |text: &str| text.contains("name") || text.contains("command");
    let mut matched = "";
    let mut listed: Option<Vec<&str>> = None;
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let literals = || line.split('"').skip(1).step_by(2);
        for (before, after) in ["== ", "!= "].into_iter().filter_map(|sign| line.split_once(sign)) {
            let literal = after.trim_start_matches(['b', '&']).strip_prefix('"');
            if let Some(word) =
                literal.and_then(|literal| literal.split('"').next()).filter(|_| is_named(before))
            {
                words.push(word);
            }
        }
        if let Some(at) = line.find("match ").or_else(|| line.find("matches!(")) {
            matched = &line[at..];
        }
        let is_arm = line.trim_start().trim_start_matches(['|', ' ', '(', 'b']).starts_with('"');
        let is_in_macro = line.contains("matches!(");
        if is_named(matched) && (is_arm && line.contains("=>") || is_in_macro) {
            words.extend(literals());
        }
        // A list of words: from its type to its end.
        if line.contains("[&str] =") || line.contains("[&[u8]] =") {
            listed = Some(Vec::new());
        }
        if let Some(list) = &mut listed {
            list.extend(literals());
            if line.trim_end().ends_with("];") {
                words.extend(listed.take().unwrap_or_default());
            }
        }
    }
    words
}

#[test]
fn files_of_a_folder_do_not_use_each_other_in_circles() {
    let source = root().join("src");
    for folder in folders(&source) {
        let circle = circle_in(&folder, &source);
        let name = folder.strip_prefix(&source).unwrap().display();
        assert!(circle.is_empty(), "the files of {name} use each other in a circle: {circle:?}");
    }
}

/// All folders below one.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(folders(&path));
            found.push(path);
        }
    }
    found
}

/// The modules of a folder that use each other in a circle, as far as they name each other.
fn circle_in(folder: &Path, source: &Path) -> Vec<String> {
    let own = folder.strip_prefix(source).unwrap().to_string_lossy().replace('/', "::");
    let files: Vec<_> = sources(folder)
        .into_iter()
        .filter_map(|(path, text)| {
            let below = path.strip_prefix(folder).unwrap().to_path_buf();
            let module = below.iter().next()?.to_string_lossy().trim_end_matches(".rs").to_owned();
            // `mod.rs` is one step higher than its neighbours.
            let steps = below.iter().count() - usize::from(below.ends_with("mod.rs"));
            (steps > 0).then_some((module, steps, text))
        })
        .collect();
    let modules: BTreeSet<&str> = files.iter().map(|(module, ..)| module.as_str()).collect();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, steps, text) in &files {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default().lines();
        let code: Vec<_> = code.filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let named = names_after(&code, &"super::".repeat(*steps)).into_iter();
        for name in named.chain(names_after(&code, &format!("crate::{own}::"))) {
            if let Some(used) = modules.get(name).filter(|used| **used != module) {
                uses.entry(module).or_default().insert(used);
            }
        }
    }
    // A module that uses no other, or that no other uses, is in no circle.
    loop {
        let before = uses.len();
        let users: BTreeSet<&str> = uses.keys().copied().collect();
        uses.values_mut().for_each(|used| used.retain(|name| users.contains(name)));
        let used: BTreeSet<&str> = uses.values().flatten().copied().collect();
        uses.retain(|name, uses| !uses.is_empty() && used.contains(name));
        if uses.len() == before {
            return uses.into_keys().map(str::to_owned).collect();
        }
    }
}

/// The names that stand behind a path, also where several stand in braces.
fn names_after<'a>(text: &'a str, path: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices(path) {
        if text[..at].ends_with("super::") {
            // That is a longer path.
            continue;
        }
        let rest = &text[at + path.len()..];
        let name_of = |text: &'a str| {
            let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
            &text[..end]
        };
        let Some(group) = rest.strip_prefix('{') else {
            names.push(name_of(rest));
            continue;
        };
        let mut depth = 0;
        let mut is_first = true;
        for (at, character) in group.char_indices() {
            if depth == 0 && is_first && !character.is_whitespace() {
                names.push(name_of(&group[at..]));
                is_first = false;
            }
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => is_first = true,
                _ => {}
            }
        }
    }
    names
}

/// Files and folders whose texts are in plain English, below the root of the project.
const PLAIN: &[&str] = &[
    ".ci",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "Dockerfile",
    "README.md",
    "SECURITY.md",
    "benches",
    "src",
    "tests",
];

/// Endings of the files that people read. A file without an ending is a script. Other files are data.
const READ: &[&str] =
    &["c", "css", "diff", "h", "html", "md", "mjs", "py", "rb", "rs", "sh", "sql", "toml", "txt"];

/// Folders and files that hold no text of ours: what builds and packagers leave, inputs of the fuzzer,
/// requests in `lines.txt`, and Lua's sources. `src/scripting/lua/changes` has what we changed in those.
const NOT_OURS: &[&str] =
    &[".venv", ".work", "__pycache__", "corpus", "lines.txt", "lua-5.1.5", "node_modules", "target"];

/// Words that stand in for the actor. A sentence names it: the client, the caller, another thread.
const VAGUE: [[&str; 2]; 4] = [["any", "body"], ["no", "body"], ["some", "body"], ["who", "ever"]];

/// Lines that need such a word: the file, a part of the line, and the reason.
const VAGUE_FOR_A_REASON: &[(&str, &str, &str)] = &[(
    "src/commands/execution/admission.rs",
    "is sending POST or Host: commands to",
    "people search for this text of Redis",
)];

/// Doc comments that need no third word: the file, the comment, and the reason.
const SHORT_FOR_A_REASON: &[(&str, &str, &str)] = &[];

/// The longest summary of a command, in characters: one line of a terminal.
const SUMMARY_CHARACTERS_MAX: usize = 110;

/// The verbs with which summaries do not start: what a command does is more precise than these.
const VAGUE_VERBS: &[&str] = &["Answers", "Names", "Notes", "Says", "Tells"];

/// The files that people read among those of [`PLAIN`], by their paths below the root.
fn plain_files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in PLAIN {
        let path = root().join(name);
        assert!(path.exists(), "{name} is not there: take it out of the list");
        collect_texts(&path, &mut found);
    }
    found
}

fn collect_texts(path: &Path, found: &mut Vec<(String, String)>) {
    let ending = path.extension().map(|ending| ending.to_string_lossy());
    if path.is_dir() {
        let is_ours = |path: &PathBuf| !NOT_OURS.iter().any(|name| path.ends_with(name));
        let entries = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path());
        entries.filter(is_ours).for_each(|path| collect_texts(&path, found));
    } else if ending.is_none_or(|ending| READ.contains(&&*ending)) {
        let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        found.push((name, fs::read_to_string(path).expect("a text")));
    }
}

/// What runs once in a process, however many instances that has.
const OF_THE_PROCESS: &[&str] = &["src/host", "src/options", "src/process"];

/// What serves sockets: it sees its process, and its instance.
const OF_A_SERVER: &[&str] = &["src/server"];

/// The configuration itself, which reads some fields for others.
const OF_THE_TABLE: &[&str] = &["src/config"];

#[test]
fn a_parameter_belongs_to_what_reads_it() {
    let sources = sources(&root().join("src"));
    let is_below = |path: &Path, rooms: &[&str]| rooms.iter().any(|room| path.starts_with(root().join(room)));
    for parameter in parameters().filter(|parameter| !parameter.is_inert()) {
        let field = format!("config.{}", parameter.name.replace('-', "_"));
        let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
        let reads = |text: &str| text.split(&field).skip(1).any(is_end);
        let readers = || sources.iter().filter(|(path, text)| !is_below(path, OF_THE_TABLE) && reads(text));
        let outside = |rooms: &[&str]| readers().find(|(path, _)| !is_below(path, rooms));
        match parameter.owner {
            Owner::Process => {
                let outside = outside(&[OF_THE_PROCESS, OF_A_SERVER].concat());
                let outside = outside.map(|(path, _)| path.display());
                assert!(outside.is_none(), "{} is the process's: {outside:?}", parameter.name);
            }
            Owner::Instance | Owner::Sandbox => {
                // What has no reader is read by the configuration, as is the directory of the files.
                let is_read = parameter.name != "dir" && readers().next().is_some();
                let is_read_outside = outside(OF_THE_PROCESS).is_some();
                assert!(!is_read || is_read_outside, "{} is the process's", parameter.name);
            }
        }
    }
}

#[test]
fn sentences_name_the_actor() {
    let vague = VAGUE.map(|halves| halves.concat());
    let is_vague = |word: &str| vague.contains(&word.to_lowercase());
    let mut unused: BTreeSet<_> = VAGUE_FOR_A_REASON.iter().collect();
    let mut found = Vec::new();
    for (name, text) in plain_files() {
        for (number, line) in text.lines().enumerate() {
            if !line.split(|c: char| !c.is_alphanumeric() && c != '_').any(is_vague) {
                continue;
            }
            let excuses = VAGUE_FOR_A_REASON.iter();
            let mut excuses =
                excuses.filter(|(file, part, _)| *file == name && line.contains(part)).peekable();
            if excuses.peek().is_none() {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
            excuses.for_each(|excuse| _ = unused.remove(excuse));
        }
    }
    assert!(found.is_empty(), "{} lines do not name the actor:\n{}", found.len(), found.join("\n"));
    assert!(unused.is_empty(), "no such lines any more: {unused:?}");
}

#[test]
fn doc_comments_say_more_than_a_name() {
    let mut unused: BTreeSet<_> = SHORT_FOR_A_REASON.iter().collect();
    let mut found = Vec::new();
    for (name, text) in plain_files().into_iter().filter(|(name, _)| name.ends_with(".rs")) {
        for (number, comment) in doc_comments(&text) {
            if comment.split_whitespace().count() > 2 || is_a_name(&comment) {
                continue;
            }
            let excuses = SHORT_FOR_A_REASON.iter();
            match excuses.clone().find(|(file, short, _)| *file == name && *short == comment) {
                Some(excuse) => _ = unused.remove(excuse),
                None => found.push(format!("{name}:{number}: {comment}")),
            }
        }
    }
    assert!(found.is_empty(), "{} doc comments are too short:\n{}", found.len(), found.join("\n"));
    assert!(unused.is_empty(), "no such doc comments any more: {unused:?}");
}

/// Whether a comment is the name of a command, or of a function of Lua: it says more than a sentence.
fn is_a_name(comment: &str) -> bool {
    let name = comment.trim_end_matches('.');
    let is_quoted = name.len() > 1 && name.starts_with('`') && name.ends_with('`');
    is_quoted || name.chars().all(|c| c.is_ascii_uppercase())
}

/// The doc comments of a file, each as one text, with the number of its first line.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let mut comments: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(part) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            goes_on = false;
            continue;
        };
        match comments.last_mut().filter(|_| goes_on) {
            Some((_, comment)) => *comment += part,
            None => comments.push((number + 1, part.trim_start().to_owned())),
        }
        goes_on = true;
    }
    comments
}

#[test]
fn a_summary_starts_with_what_the_command_does() {
    for command in all().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
        let (name, summary) = (command.name, command.summary);
        let verb = summary.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        let is_third_person = verb.ends_with('s') && verb.starts_with(|c: char| c.is_ascii_uppercase());
        assert!(is_third_person, "the summary of {name} starts with {verb:?}, which is no verb: {summary}");
        assert!(!VAGUE_VERBS.contains(&verb), "{name} needs another verb than {verb}: {summary}");
        let mut words = summary.split(|c: char| !c.is_alphanumeric());
        assert!(!words.any(|word| ["tells", "told"].contains(&word)), "{name}: {summary}");
        let characters = summary.chars().count();
        assert!(characters <= SUMMARY_CHARACTERS_MAX, "{name}: {characters} characters: {summary}");
    }
}

/// The fixtures for Python and Node: what they send to a server between two tests is in both.
#[test]
fn fixtures_of_both_languages_reset_a_server_by_the_same_commands() {
    for list in ["RESET", "STATE"] {
        let [python, node] = ["python/keyfast/_server.py", "npm/keyfast/server.js"].map(|file| {
            let text = fs::read_to_string(root().join("src/packaging").join(file)).expect("a fixture");
            let begins =
                text.split_once(&format!("\n{list} = (")).or(text.split_once(&format!("const {list} = [")));
            let words = begins.and_then(|(_, rest)| rest.split_once([')', ']'])).expect("a list").0;
            words.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
        });
        assert!(!python.is_empty());
        assert_eq!(python, node, "{list}");
    }
}
