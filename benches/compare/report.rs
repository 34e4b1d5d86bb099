//! The figures, as a table for people, and as results for a file.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use keyfast::internals::progress::{self, Indicator, Progress, Unit, beside_bar};

use crate::options::Part;
use crate::results::{self, Results, Run, show};
use crate::server::Program;

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
    /// As the table's head has them.
    servers: Vec<String>,
    /// With their versions.
    labels: Vec<String>,
    /// The part that is being compared.
    part: Part,
    rows: Vec<Row>,
    progress: Arc<Progress>,
    /// Shows the progress until the table is printed.
    indicator: Option<Indicator>,
}

struct Row {
    part: Part,
    what: String,
    unit: String,
    figures: Vec<f64>,
    is_less_better: bool,
}

impl Report {
    /// A report of these programs, Keyfast the first, that will have so many rows.
    pub(crate) fn new(programs: &[Program], rows: u64) -> Report {
        let servers = programs.iter().map(|program| program.name.clone()).collect();
        let labels = programs.iter().map(Program::label).collect();
        let progress = Arc::new(Progress::new(Unit::Items("rows"), Some(rows)));
        let indicator = Indicator::bar(&progress, "Measuring").unwrap_or_else(|| {
            Indicator::lines(&progress, LINE_INTERVAL, |report| eprintln!("Measuring: {report}"))
        });
        Report { servers, labels, part: Part::Cpu, rows: Vec::new(), progress, indicator: Some(indicator) }
    }

    /// Rows that are added from now on belong to this part.
    pub(crate) fn begin(&mut self, part: Part) {
        self.part = part;
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
        beside_bar(|| eprintln!("{}", row.line()));
        self.progress.add(1);
        self.rows.push(row);
    }

    /// The results for a file. `run` describes the measurement; this function adds the names of the parts.
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

/// The middle one.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
