//! The documents as texts.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The documents at the top of the repository.
const TOP: &[&str] = &["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];

pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The names of all pages, without `.md`, in order.
pub fn pages() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("src/guide")).expect("the folder of pages");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
}

/// The paths of all documents, below the root.
pub fn documents() -> Vec<String> {
    let top = TOP.iter().map(|name| (*name).to_owned());
    top.chain(pages().iter().map(|page| format!("src/guide/{page}.md"))).collect()
}

pub fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// A fenced block of a document.
pub struct Block {
    pub document: String,
    /// The line of the document at which it begins.
    pub line: usize,
    pub language: String,
    pub text: String,
}

impl Block {
    pub fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }
}

pub fn blocks_of(document: &str) -> Vec<Block> {
    let text = read(document);
    let mut lines = text.lines().zip(1..);
    let mut blocks = Vec::new();
    while let Some((line, number)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let lines = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
        let text = lines.map(|line| format!("{line}\n")).collect();
        blocks.push(Block {
            document: document.to_owned(),
            line: number,
            language: language.to_owned(),
            text,
        });
    }
    blocks
}
