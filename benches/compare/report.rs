//! The figures, as a table for people, and as results for a file.

use std::fmt::Write as _;

use crate::options::Part;
use crate::results::{self, Results, Run};
use crate::server::Program;

/// What one round has measured.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) cpu_us: f64,
    pub(crate) user_us: f64,
    pub(crate) thousands_per_second: f64,
}

/// All rows, with one figure for each server; the first server is Keyfast.
pub(crate) struct Report {
    /// As the table's head has them.
    servers: Vec<String>,
    /// With their versions.
    labels: Vec<String>,
    /// The part that is being compared.
    part: Part,
    rows: Vec<Row>,
}

struct Row {
    part: Part,
    what: String,
    unit: String,
    figures: Vec<f64>,
    is_less_better: bool,
}

impl Report {
    pub(crate) fn new(programs: &[Program]) -> Report {
        let servers = programs.iter().map(|program| program.name.clone()).collect();
        let labels = programs.iter().map(Program::label).collect();
        Report { servers, labels, part: Part::Cpu, rows: Vec::new() }
    }

    /// What is added from now on belongs to this part.
    pub(crate) fn begin(&mut self, part: Part) {
        self.part = part;
    }

    /// A figure of which less is better.
    pub(crate) fn add(&mut self, what: &str, unit: &str, figures: Vec<f64>) {
        self.add_row(what, unit, figures, true);
    }

    /// A figure of which more is better.
    pub(crate) fn add_rate(&mut self, what: &str, unit: &str, figures: Vec<f64>) {
        self.add_row(what, unit, figures, false);
    }

    fn add_row(&mut self, what: &str, unit: &str, figures: Vec<f64>, is_less_better: bool) {
        let row =
            Row { part: self.part, what: what.to_owned(), unit: unit.to_owned(), figures, is_less_better };
        // Shown at once as well: a long run that is stopped has then not been in vain.
        eprintln!("{}", row.line());
        self.rows.push(row);
    }

    /// The rows for a file; `run` says how they came about, and is told which parts they are.
    pub(crate) fn results(&self, mut run: Run) -> Results {
        let mut subject = "";
        let mut rows = Vec::new();
        for Row { part, what, unit, figures, is_less_better } in &self.rows {
            // An empty one stands for the one above it.
            subject = if what.is_empty() { subject } else { what };
            let part = part.name().to_owned();
            if !run.parts.contains(&part) {
                run.parts.push(part.clone());
            }
            let rounded = |figure: &f64| (figure * 10_000.0).round() / 10_000.0;
            rows.push(results::Row {
                part,
                subject: subject.to_owned(),
                unit: unit.trim().to_owned(),
                is_less_better: *is_less_better,
                figures: figures.iter().map(rounded).collect(),
            });
        }
        Results { servers: self.labels.clone(), runs: vec![run], rows }
    }

    /// The rows as Markdown, with Keyfast's ratio to the best of the others.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("| | | {} | ratio |\n", self.servers.join(" | "));
        let _ = writeln!(table, "| --- | --- |{} ---: |", " ---: |".repeat(self.servers.len()));
        for row in &self.rows {
            let _ = writeln!(table, "{}", row.line());
        }
        table
    }
}

impl Row {
    fn line(&self) -> String {
        let (own, others) = self.figures.split_first().expect("Keyfast is the first");
        let best = others
            .iter()
            .copied()
            .reduce(if self.is_less_better { f64::min } else { f64::max })
            .expect("there is another server");
        let shown: Vec<String> = self.figures.iter().copied().map(show).collect();
        format!("| {} | {} | {} | {:.2} |", self.what, self.unit, shown.join(" | "), own / best)
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
