//! What was measured, as a file: figures, and when, where and how they came about.
//!
//! Charts are drawn from such files, so a new look needs no new measurement. Results of several runs are put
//! together by parts of the comparison: of a part that two runs have measured, the later run's figures count.

use std::path::Path;

use serde_json::{Map, Value, json};

/// Figures of all servers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Results {
    /// Names and versions; Keyfast is the first.
    pub(crate) servers: Vec<String>,
    pub(crate) runs: Vec<Run>,
    pub(crate) rows: Vec<Row>,
}

/// How some of the figures came about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    /// The day of the run in UTC, as `2026-01-31`.
    pub(crate) date: String,
    pub(crate) machine: String,
    pub(crate) settings: String,
    /// What was compared: the words of `--only`.
    pub(crate) parts: Vec<String>,
}

/// One figure of each server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) part: String,
    pub(crate) subject: String,
    pub(crate) unit: String,
    pub(crate) is_less_better: bool,
    pub(crate) figures: Vec<f64>,
}

impl Results {
    /// Reads files, and puts their results together.
    pub(crate) fn read(paths: &[impl AsRef<Path>]) -> Result<Results, String> {
        let mut all: Option<Results> = None;
        for path in paths {
            let path = path.as_ref();
            let failed = |why: String| format!("{}: {why}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
            let results = Results::parse(&text).map_err(failed)?;
            match &mut all {
                Some(all) => all.add(results).map_err(failed)?,
                None => all = Some(results),
            }
        }
        all.ok_or_else(|| "no file of results is named".to_owned())
    }

    /// Takes the figures of a later run of the same servers.
    pub(crate) fn add(&mut self, later: Results) -> Result<(), String> {
        if self.servers != later.servers {
            return Err(format!(
                "it compares {}, the file before it {}",
                later.servers.join(", "),
                self.servers.join(", ")
            ));
        }
        let is_old = |part: &String| later.runs.iter().any(|run| run.parts.contains(part));
        self.runs.iter_mut().for_each(|run| run.parts.retain(|part| !is_old(part)));
        self.runs.retain(|run| !run.parts.is_empty());
        self.rows.retain(|row| !is_old(&row.part));
        self.runs.extend(later.runs);
        self.rows.extend(later.rows);
        Ok(())
    }

    /// Reads what [`text`](Self::text) writes.
    pub(crate) fn parse(text: &str) -> Result<Results, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let servers = texts(&value, "servers")?;
        let run = |run: &Value| {
            Ok::<_, String>(Run {
                date: text_at(run, "date")?,
                machine: text_at(run, "machine")?,
                settings: text_at(run, "settings")?,
                parts: texts(run, "parts")?,
            })
        };
        let row = |row: &Value| {
            let figures = list(row, "figures")?.iter().filter_map(Value::as_f64).collect::<Vec<_>>();
            if figures.len() != servers.len() {
                return Err(format!("{row} has no figure for each server"));
            }
            let is_less_better = match text_at(row, "better")?.as_str() {
                "less" => true,
                "more" => false,
                other => return Err(format!("better is {other}, neither less nor more")),
            };
            Ok(Row {
                part: text_at(row, "part")?,
                subject: text_at(row, "subject")?,
                unit: text_at(row, "unit")?,
                is_less_better,
                figures,
            })
        };
        Ok(Results {
            runs: list(&value, "runs")?.iter().map(run).collect::<Result<_, _>>()?,
            rows: list(&value, "rows")?.iter().map(row).collect::<Result<_, _>>()?,
            servers,
        })
    }

    /// The file's text, in JSON: one line for each run and each row.
    pub(crate) fn text(&self) -> String {
        let runs = self.runs.iter().map(|Run { date, machine, settings, parts }| {
            json!({"date": date, "machine": machine, "settings": settings, "parts": parts})
        });
        let rows = self.rows.iter().map(|row| {
            let mut fields = Map::new();
            fields.insert("part".to_owned(), json!(row.part));
            fields.insert("subject".to_owned(), json!(row.subject));
            fields.insert("unit".to_owned(), json!(row.unit));
            fields.insert("better".to_owned(), json!(if row.is_less_better { "less" } else { "more" }));
            fields.insert("figures".to_owned(), json!(row.figures));
            Value::Object(fields)
        });
        let lines = |values: &mut dyn Iterator<Item = Value>| {
            values.map(|value| value.to_string()).collect::<Vec<_>>().join(",\n")
        };
        format!(
            "{{\"servers\": {},\n\"runs\": [\n{}\n],\n\"rows\": [\n{}\n]}}\n",
            json!(self.servers),
            lines(&mut { runs }),
            lines(&mut { rows })
        )
    }
}

/// A figure in a table.
pub(crate) fn show(figure: f64) -> String {
    if figure < 100.0 { format!("{figure:.2}") } else { format!("{figure:.0}") }
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], String> {
    value[name].as_array().map(Vec::as_slice).ok_or_else(|| format!("{name} is no list"))
}

fn text_at(value: &Value, name: &str) -> Result<String, String> {
    value[name].as_str().map(str::to_owned).ok_or_else(|| format!("{name} is no text"))
}

fn texts(value: &Value, name: &str) -> Result<Vec<String>, String> {
    let text = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(|| format!("{name} has {item}"));
    list(value, name)?.iter().map(text).collect()
}
