//! The pictures of the documentation are files that tests draw anew and compare with those that are kept.
//!
//! `KEYFAST_WRITE_PAGES=1 cargo test --locked --test server -- pictures::` writes them after a change.
//! Where the documentation shows them, `<picture>` chooses between the one for light and the one for dark
//! pages.

use std::fs;
use std::path::Path;

mod charts;
mod lock_life;
mod svg;
mod tables;

/// The kept file must have this text; where pages are to be written, it has it afterwards.
#[track_caller]
fn is_kept(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("KEYFAST_WRITE_PAGES").is_some() {
        fs::write(&file, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let kept = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
    let differing = kept.lines().zip(text.lines()).find(|(kept, drawn)| kept != drawn);
    assert!(
        kept == text,
        "{path} is not what is drawn now; KEYFAST_WRITE_PAGES=1 writes it anew. Lines that differ: {differing:?}"
    );
}
