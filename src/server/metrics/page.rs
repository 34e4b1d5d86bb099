//! The text format of Prometheus, version 0.0.4: families of samples, each with a help text and a type.

use std::fmt::{Display, Write as _};

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// Numbers that only grow, until they are reset.
    Counter,
    /// Numbers that grow and shrink.
    Gauge,
    /// Counts per upper limit, and their sum.
    Histogram,
    /// Limits per quantile, and their sum.
    Summary,
}

/// A page that is being written.
#[derive(Debug, Default)]
pub(super) struct Page(String);

/// One family of the page. Without samples it writes nothing.
#[derive(Debug)]
pub(super) struct Family<'p> {
    text: &'p mut String,
    name: &'p str,
    kind: MetricKind,
    help: &'p str,
    has_begun: bool,
}

/// The labels that distinguish a sample from the others of its family.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// Begins a family. All its samples must be written before the next family begins.
    pub(super) fn family<'p>(&'p mut self, name: &'p str, kind: MetricKind, help: &'p str) -> Family<'p> {
        Family { text: &mut self.0, name, kind, help, has_begun: false }
    }

    /// Writes a family of one sample.
    pub(super) fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// The text of the page.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// Writes a sample of the family.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.part("", labels, value);
    }

    /// Writes a sample of a histogram or a summary: `_bucket`, `_sum`, `_count`.
    pub(super) fn part(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        if !self.has_begun {
            self.has_begun = true;
            self.write_header();
        }
        self.text.extend([self.name, suffix]);
        for (number, (name, value)) in labels.iter().enumerate() {
            self.text.extend([if number == 0 { "{" } else { "," }, name, "=\""]);
            escape(self.text, value, true);
            self.text.push('"');
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn write_header(&mut self) {
        let kind = match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Summary => "summary",
        };
        self.text.extend(["# HELP ", self.name, " "]);
        escape(self.text, self.help, false);
        self.text.extend(["\n# TYPE ", self.name, " ", kind, "\n"]);
    }
}

/// Escapes a text, so that it stays on its line and, in a label, within its quotes.
fn escape(text: &mut String, value: &str, is_quoted: bool) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if is_quoted => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_help_and_type_once() {
        let mut page = Page::default();
        let mut family = page.family("keys", MetricKind::Gauge, "How many\nkeys \"there\" are.");
        family.sample(&[("db", "db0")], 3);
        family.sample(&[("db", "db1"), ("kind", "all")], 0.5);
        page.single("up", MetricKind::Counter, "Back\\slash.", 1);
        assert_eq!(
            page.into_text(),
            "# HELP keys How many\\nkeys \"there\" are.\n# TYPE keys gauge\nkeys{db=\"db0\"} 3\n\
             keys{db=\"db1\",kind=\"all\"} 0.5\n# HELP up Back\\\\slash.\n# TYPE up counter\nup 1\n"
        );
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.family("errors", MetricKind::Counter, "").sample(&[("err", "a\"b\\c\nd\r\u{fffd}")], 1);
        assert!(page.into_text().ends_with("errors{err=\"a\\\"b\\\\c\\nd\r\u{fffd}\"} 1\n"));
    }

    #[test]
    fn a_family_without_samples_leaves_no_trace() {
        let mut page = Page::default();
        page.family("none", MetricKind::Histogram, "Nothing.");
        assert_eq!(page.into_text(), "");
    }
}
