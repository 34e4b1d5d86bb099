//! The figures, as a table for people.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use keyfast::progress::{self, Indicator, Progress, Unit, beside_bar};

/// What one round has measured.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) cpu_us: f64,
    pub(crate) user_us: f64,
    pub(crate) thousands_per_second: f64,
}

/// How often it is said how far the comparison is, where there is no terminal for a bar.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// All rows, with one figure for each server; the first server is Keyfast.
pub(crate) struct Report {
    pub(crate) servers: Vec<String>,
    rows: Vec<Row>,
    progress: Arc<Progress>,
    /// Shows the progress until the table is printed.
    indicator: Option<Indicator>,
}

struct Row {
    what: String,
    unit: String,
    figures: Vec<f64>,
    /// The better of two figures.
    better: fn(f64, f64) -> f64,
}

impl Report {
    /// A report that will have so many rows.
    pub(crate) fn new(servers: Vec<String>, rows: u64) -> Report {
        let progress = Arc::new(Progress::new(Unit::Items("rows"), Some(rows)));
        let indicator = Indicator::bar(&progress, "Measuring").unwrap_or_else(|| {
            Indicator::lines(&progress, LINE_INTERVAL, |report| eprintln!("Measuring: {report}"))
        });
        Report { servers, rows: Vec::new(), progress, indicator: Some(indicator) }
    }

    /// Ends what shows the progress.
    ///
    /// # Errors
    ///
    /// If there are other rows than were expected.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.indicator = None;
        let progress::Report { done, total, .. } = self.progress.report();
        match total == Some(done) {
            true => Ok(()),
            false => Err(format!("Options::rows expects {total:?} rows, and there are {done}")),
        }
    }

    /// A figure of which less is better.
    pub(crate) fn add(&mut self, what: &str, unit: &str, figures: Vec<f64>) {
        self.add_row(what, unit, figures, f64::min);
    }

    /// A figure of which more is better.
    pub(crate) fn add_rate(&mut self, what: &str, unit: &str, figures: Vec<f64>) {
        self.add_row(what, unit, figures, f64::max);
    }

    fn add_row(&mut self, what: &str, unit: &str, figures: Vec<f64>, better: fn(f64, f64) -> f64) {
        let row = Row { what: what.to_owned(), unit: unit.to_owned(), figures, better };
        // Shown at once as well: a long run that is stopped has then not been in vain.
        beside_bar(|| eprintln!("{}", row.line()));
        self.progress.add(1);
        self.rows.push(row);
    }

    /// The rows whose unit begins with these words, by their labels.
    pub(crate) fn rows_about(&self, unit: &str) -> Vec<(String, &[f64])> {
        let mut subject = "";
        let mut found = Vec::new();
        for Row { what, unit: row_unit, figures, .. } in &self.rows {
            subject = if what.is_empty() { subject } else { what };
            let is_about = row_unit.starts_with(unit) || (unit.starts_with("bytes") && subject == "memory");
            if is_about && !row_unit.starts_with("MiB") {
                let label = if row_unit.starts_with("CPU") { subject } else { row_unit.trim() };
                found.push((label.to_owned(), figures.as_slice()));
            }
        }
        found
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
        let best = others.iter().copied().reduce(self.better).expect("there is another server");
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
