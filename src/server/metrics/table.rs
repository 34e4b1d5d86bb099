//! The fields of INFO that are metrics, under the names of redis_exporter.
//!
//! Existing dashboards and alerts use these names. So each metric has the same type as there, even if another
//! type would fit better. Metrics that Redis does not have begin with `keyfast_`. They count seconds and
//! bytes, as Prometheus wants it.
//!
//! `table.txt` has them in the order of INFO. A line is a type, the field in INFO, the metric's name and its
//! help text. A number behind the type says how many of the field's units make one of the metric's.

use super::page::MetricKind;

/// A field of INFO that is a metric.
#[derive(Debug)]
pub(super) struct Metric {
    /// The field's name in INFO.
    pub(super) field: &'static str,
    pub(super) kind: MetricKind,
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// How many of the field's units make one of the metric's.
    pub(super) units: u32,
}

/// All these metrics, in the order of INFO.
pub(super) fn metrics() -> impl Iterator<Item = Metric> {
    let lines = include_str!("table.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(metric)
}

/// The metric of a line.
fn metric(line: &'static str) -> Option<Metric> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next();
    let (kind, field, name, help) = (word()?, word()?, word()?, word()?);
    let (kind, units) = kind.split_once('/').unwrap_or((kind, "1"));
    let kind = match kind {
        "counter" => MetricKind::Counter,
        "gauge" => MetricKind::Gauge,
        _ => return None,
    };
    Some(Metric { field, kind, name, help, units: units.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_metric_or_a_comment() {
        let lines = include_str!("table.txt").lines();
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("# "));
        assert_eq!(
            lines.inspect(|line| assert!(metric(line).is_some(), "{line}")).count(),
            metrics().count()
        );
    }
}
