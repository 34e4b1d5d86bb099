//! Draws the report's two main figures, CPU per command and bytes per key, as bars beside each other.

use std::fmt::Write as _;
use std::path::Path;

use crate::report::Report;

const BAR_HEIGHT: usize = 14;
const BAR_WIDTH_MAX: f64 = 420.0;
const LABEL_WIDTH: usize = 330;
/// For Keyfast, and for the others in their order.
const COLOURS: [&str; 4] = ["#d9480f", "#868e96", "#adb5bd", "#ced4da"];

/// Writes the chart.
pub(crate) fn write(path: &Path, report: &Report) -> Result<(), String> {
    std::fs::write(path, draw(report)).map_err(|error| format!("could not write {}: {error}", path.display()))
}

fn draw(report: &Report) -> String {
    let mut body = String::new();
    let mut y = 24;
    for (place, server) in report.servers.iter().enumerate() {
        let colour = COLOURS[place.min(COLOURS.len() - 1)];
        let x = 10 + 150 * place;
        let _ = write!(body, r#"<rect x="{x}" y="8" width="12" height="12" fill="{colour}"/>"#);
        let _ = writeln!(body, r#"<text x="{}" y="18">{server}</text>"#, x + 18);
    }
    for (unit, title) in [("CPU µs", "CPU µs per command"), ("bytes per key", "Bytes of memory per key")] {
        y += 30;
        let _ = writeln!(body, r#"<text x="10" y="{y}" font-weight="bold">{title} (less is better)</text>"#);
        y += 10;
        let rows: Vec<_> = report.rows_about(unit);
        let most = rows.iter().flat_map(|(_, figures)| figures.iter().copied()).fold(0.0, f64::max);
        for (label, figures) in rows {
            let _ = writeln!(body, r#"<text x="10" y="{}">{label}</text>"#, y + BAR_HEIGHT);
            for (place, figure) in figures.iter().enumerate() {
                let (colour, width) = (COLOURS[place.min(COLOURS.len() - 1)], BAR_WIDTH_MAX * figure / most);
                let _ = write!(
                    body,
                    r#"<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.0}" height="{BAR_HEIGHT}" fill="{colour}"/>"#
                );
                let x = LABEL_WIDTH as f64 + width + 5.0;
                let _ = writeln!(body, r#"<text x="{x:.0}" y="{}">{figure:.2}</text>"#, y + BAR_HEIGHT - 3);
                y += BAR_HEIGHT + 1;
            }
            y += 6;
        }
    }
    let (width, height) = (LABEL_WIDTH as f64 + BAR_WIDTH_MAX + 70.0, y + 10);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>
{body}</svg>
"#
    )
}
