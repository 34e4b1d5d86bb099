//! The figures, as a table for people.

use std::fmt::Write as _;

/// What one round has measured.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) cpu_us: f64,
    pub(crate) user_us: f64,
    pub(crate) thousands_per_second: f64,
}

/// All rows, with one figure for each server; the first server is Keyfast.
pub(crate) struct Report {
    pub(crate) servers: Vec<String>,
    rows: Vec<(String, String, Vec<f64>)>,
}

impl Report {
    pub(crate) fn new(servers: Vec<String>) -> Report {
        Report { servers, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, what: &str, unit: &str, figures: Vec<f64>) {
        self.rows.push((what.to_owned(), unit.to_owned(), figures));
    }

    /// The rows whose unit begins with these words, by their labels.
    pub(crate) fn rows_about(&self, unit: &str) -> Vec<(String, &[f64])> {
        let mut subject = "";
        let mut found = Vec::new();
        for (what, row_unit, figures) in &self.rows {
            subject = if what.is_empty() { subject } else { what };
            let is_about = row_unit.starts_with(unit) || (unit.starts_with("bytes") && subject == "memory");
            if is_about && !row_unit.starts_with("MiB") {
                let label = if row_unit.starts_with("CPU") { subject } else { row_unit.trim() };
                found.push((label.to_owned(), figures.as_slice()));
            }
        }
        found
    }

    /// The rows as Markdown, with Keyfast's ratio to each of the others.
    pub(crate) fn table(&self) -> String {
        let (own, others) = self.servers.split_first().expect("Keyfast is the first");
        let mut table = format!("| | | {own} |");
        for other in others {
            let _ = write!(table, " {other} | ratio |");
        }
        table.push_str("\n| --- | --- | ---: |");
        table.push_str(&" ---: | ---: |".repeat(others.len()));
        table.push('\n');
        for (what, unit, figures) in &self.rows {
            let _ = write!(table, "| {what} | {unit} | {} |", show(figures[0]));
            for other in &figures[1..] {
                let _ = write!(table, " {} | {:.2} |", show(*other), figures[0] / other);
            }
            table.push('\n');
        }
        table
    }
}

fn show(figure: f64) -> String {
    if figure < 100.0 { format!("{figure:.2}") } else { format!("{figure:.0}") }
}

/// The middle one.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
