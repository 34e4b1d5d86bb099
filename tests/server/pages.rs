//! The documents as texts: their links lead somewhere, and the paths that they name exist.
//!
//! A link from page to page is a reference. Its definition at the foot of the page is for forges, and one in
//! `src/guide/mod.rs` is for docs.rs; `cargo doc` resolves those.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::folder::Folder;
use support::pages::{documents, pages, read, root};

/// Folders whose files documents name in code.
const FOLDERS: &[&str] = &["src/", "tests/", "benches/", ".ci/"];

/// A document without its fenced blocks, and without code within lines if that is asked for.
fn prose(text: &str, with_code: bool) -> String {
    let mut prose = String::new();
    let mut is_fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let parts = line.split('`').enumerate();
            let kept = parts.filter(|(number, _)| with_code || number % 2 == 0).map(|(_, part)| part);
            prose += &kept.collect::<Vec<_>>().join(if with_code { "`" } else { "" });
            prose.push('\n');
        }
    }
    prose
}

/// The anchors of a document's headings, as forges and rustdoc make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose = prose(text, true);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    headings.map(anchor).collect()
}

/// Fails unless a link from a document leads to a file, and to a heading of it if it names one.
fn follow(document: &str, link: &str) {
    follow_in(&root(), document, link);
}

/// The same for documents that were copied elsewhere.
fn follow_in(root: &Path, document: &str, link: &str) {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = Path::new(document).parent().expect("a folder");
    let file = if path.is_empty() { PathBuf::from(document) } else { folder.join(path) };
    assert!(root.join(&file).exists(), "{document} links to {link}, which does not exist");
    if !anchor.is_empty() {
        let text = read(&file.to_string_lossy());
        assert!(anchors(&text).contains(anchor), "{document} links to {link}, a heading that does not exist");
    }
}

/// The texts between a beginning and an end.
fn between<'a>(text: &'a str, begin: &str, end: char) -> Vec<&'a str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

/// The links and pictures of a text that are among the documents.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = between(text, "](", ')').into_iter();
    let images = ["src=\"", "srcset=\""].into_iter().flat_map(|begin| between(text, begin, '"'));
    links.chain(images).filter(|link| !link.starts_with("https://"))
}

#[test]
fn the_links_of_documents_lead_somewhere() {
    let mut followed = 0;
    for document in documents() {
        let text = prose(&read(&document), false);
        for link in links(&text) {
            let is_page = document.starts_with("src/");
            assert!(!is_page || link.starts_with('#'), "{document}: {link} must be a reference");
            follow(&document, link);
            followed += 1;
        }
    }
    assert!(followed > 30, "{followed}");
}

/// What packages ship is read without the rest of the repository.
#[test]
fn the_links_of_pages_in_packages_lead_to_pages_there() {
    let folder = Folder::new("pages");
    let copied = Command::new(root().join("src/packaging/pages")).arg(folder.path()).status();
    assert!(copied.expect("bash").success());
    let mut followed = 0;
    for document in documents().iter().chain(["benches/README.md".to_owned()].iter()) {
        let text = prose(&read(document), false);
        let references =
            text.lines().filter(|line| is_definition(line)).filter_map(|line| line.split("]: ").nth(1));
        for link in links(&text).chain(references) {
            follow_in(folder.path(), document, link);
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed}");
}

#[test]
fn the_references_of_pages_are_defined_for_forges_and_for_rustdoc() {
    let modules = read("src/guide/mod.rs");
    let names = pages();
    let listed = modules.split("\npages! {").nth(1).expect("a list of pages");
    let listed: BTreeSet<String> =
        listed.split_whitespace().filter(|word| *word != "}").map(str::to_owned).collect();
    assert_eq!(listed, names, "src/guide/mod.rs lists the pages that are there");
    for name in &names {
        let definition = format!("#[doc = \"[{name}]: crate::guide::{name}\"]");
        assert!(modules.contains(&definition), "src/guide/mod.rs does not define {name}");
    }
    let mut used_by_any = 0;
    for page in &names {
        let document = format!("src/guide/{page}.md");
        let text = prose(&read(&document), false);
        let (defined, rest): (Vec<_>, Vec<_>) = text.lines().partition(|line| is_definition(line));
        let defined: BTreeSet<&str> = defined.into_iter().map(|line| definition(&document, line)).collect();
        let rest = rest.join("\n");
        let used: BTreeSet<&str> = between(&rest, "[", ']')
            .into_iter()
            .filter(|name| names.contains(*name) && !rest.contains(&format!("[{name}](")))
            .collect();
        assert_eq!(used, defined, "{document}: references that are used, and those defined at its foot");
        used_by_any += used.len();
    }
    assert!(used_by_any > 20, "{used_by_any}");
}

fn is_definition(line: &str) -> bool {
    line.starts_with('[') && line.contains("]: ")
}

/// The name that a line at the foot of a page defines.
fn definition<'a>(document: &str, line: &'a str) -> &'a str {
    let (name, link) = line.trim_start_matches('[').split_once("]: ").expect("a definition");
    assert_eq!(link, format!("{name}.md"), "{document} defines a name as another page");
    follow(document, link);
    name
}

#[test]
fn the_paths_that_documents_name_exist() {
    let mut found = 0;
    for document in documents() {
        let text = prose(&read(&document), true);
        for code in text.split('`').skip(1).step_by(2) {
            let words = code.split_whitespace();
            for path in words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder))) {
                assert!(root().join(path).exists(), "{document} names {path}, which does not exist");
                found += 1;
            }
        }
    }
    assert!(found > 60, "{found}");
}

#[test]
fn the_house_uses_the_words_of_its_glossary() {
    let page = read("src/guide/architecture.md");
    let glossary = page.split("\n## A glossary").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = glossary.expect("a glossary").lines().filter_map(|line| line.strip_prefix("| "));
    let words: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()).skip(2).collect();
    assert!(words.len() > 25 && words.is_sorted(), "{words:?}");
    let mut texts = String::new();
    collect(&root().join("src"), &mut texts);
    for word in words {
        let is_letter = |character: Option<char>| character.is_some_and(char::is_alphabetic);
        let is_whole = |at: usize| {
            let after = texts[at + word.len()..].trim_start_matches(['s', 'e', 'd']);
            !is_letter(texts[..at].chars().next_back()) && !is_letter(after.chars().next())
        };
        assert!(
            texts.match_indices(word).any(|(at, _)| is_whole(at)),
            "no code or comment has the word {word}"
        );
    }
}

/// The texts of all Rust files below a folder, in lower case.
fn collect(folder: &Path, texts: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push_str(&fs::read_to_string(path).expect("a text").to_lowercase());
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 190, "{lines} lines: what is for few readers belongs on a page");
}
