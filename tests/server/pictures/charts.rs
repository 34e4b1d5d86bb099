//! The chart of the benchmarks is drawn from the results that lie beside it, by the code of the benchmark.
//!
//! Both are written by `cargo bench --bench compare`; here a change of the drawing shows.

#[path = "../../../benches/compare/chart.rs"]
mod chart;
#[path = "../../../benches/compare/results.rs"]
pub(super) mod results;

use std::path::PathBuf;

use super::is_kept;
use super::svg::{self, Theme};
use results::{Results, Row, Run};

/// The results that are kept in the repository.
pub(super) fn kept() -> Results {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/compare.json");
    Results::read(&[file]).expect("results that the benchmark has written")
}

/// Results of a run that compared one part.
fn run_of(part: &str, subject: &str, figures: [f64; 2]) -> Results {
    Results {
        servers: vec!["Keyfast 1.0".to_owned(), "Redis <8>".to_owned()],
        runs: vec![Run {
            date: "2026-01-31".to_owned(),
            machine: "a machine".to_owned(),
            settings: format!("settings of {part}"),
            parts: vec![part.to_owned()],
        }],
        rows: vec![Row {
            part: part.to_owned(),
            subject: subject.to_owned(),
            unit: "CPU µs per command".to_owned(),
            is_less_better: true,
            figures: figures.to_vec(),
        }],
    }
}

#[test]
fn the_kept_charts_show_the_kept_results() {
    for theme in Theme::ALL {
        let chart = chart::draw(&kept(), theme).expect("a chart");
        is_kept(&format!("benches/compare-{}.svg", theme.name()), &chart);
    }
}

#[test]
fn results_are_read_as_they_were_written() {
    let results = kept();
    assert_eq!(Results::parse(&results.text()), Ok(results));
}

#[test]
fn a_later_run_replaces_the_parts_that_it_has_measured() {
    let mut all = run_of("cpu", "SET at depth 1", [5.0, 6.0]);
    all.add(run_of("collections", "LPUSH, at depth 16", [1.0, 2.0])).expect("the same servers");
    all.add(run_of("cpu", "SET at depth 1", [3.0, 4.0])).expect("the same servers");
    let figures: Vec<f64> = all.rows.iter().flat_map(|row| row.figures.clone()).collect();
    assert_eq!(figures, [1.0, 2.0, 3.0, 4.0]);
    let settings: Vec<&str> = all.runs.iter().map(|run| run.settings.as_str()).collect();
    assert_eq!(settings, ["settings of collections", "settings of cpu"]);

    let mut others = run_of("cpu", "SET at depth 1", [5.0, 6.0]);
    others.servers[1] = "Valkey 9".to_owned();
    assert!(all.add(others).is_err());
}

#[test]
fn a_row_in_which_another_server_is_better_has_a_colour_of_its_own() {
    let draw = |figures| {
        let results = run_of("cpu", "SET at depth 16", figures);
        chart::draw(&results, Theme::Light).expect("a chart")
    };
    let (better, worse) = (draw([1.0, 2.0]), draw([2.2, 2.0]));
    // One is in the legend.
    let wrong = |chart: &str| chart.matches("#c81e2b").count();
    assert_eq!((wrong(&better), wrong(&worse)), (1, 2));
    for text in ["SET, 16 in a pipeline", ">2.20<", ">2.00<", "Redis &lt;8&gt;", "settings of cpu"] {
        assert!(worse.contains(text), "{text} is not in {worse}");
    }
}

#[test]
fn results_without_a_figure_that_a_chart_shows_are_refused() {
    let results = run_of("durable", "SET at depth 1, appendfsync always", [1.0, 2.0]);
    assert!(chart::draw(&results, Theme::Dark).is_err());
}
