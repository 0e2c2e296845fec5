//! Renders a snapshot in the text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

use super::metric::{Metric, QUANTILES};
use super::snapshot::{Histogram, Snapshot, Value};
use super::window::Window;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders all metrics that have a value.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let surface = snapshot.surface();
    let mut text = String::new();
    for (metric, family) in snapshot.families() {
        let name = metric.name();
        let type_word = metric.type_word(surface);
        let help = metric.help();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {type_word}");
        for (task_type, series) in family {
            for (second, value) in series {
                let mut labels = format!("taskType=\"{}\"", escaped(task_type));
                if let Some(label) = metric.second_label(surface) {
                    let _ = write!(labels, ",{label}=\"{}\"", escaped(second));
                }
                render_value(&mut text, metric, &labels, value);
            }
        }
    }
    text
}

fn render_value(text: &mut String, metric: Metric, labels: &str, value: &Value) {
    let name = metric.name();
    let _ = match value {
        Value::Counter(value) => writeln!(text, "{name}{{{labels}}} {value}"),
        Value::Gauge(value) => writeln!(text, "{name}{{{labels}}} {value}"),
        Value::Summary(window) => render_summary(text, name, labels, window),
        Value::Histogram(histogram) => {
            render_histogram(text, name, labels, histogram, metric.bounds())
        }
    };
}

fn render_summary(
    text: &mut String,
    name: &str,
    labels: &str,
    window: &Window,
) -> std::fmt::Result {
    if let Some(values) = window.quantiles(QUANTILES) {
        for (quantile, value) in QUANTILES.into_iter().zip(values) {
            writeln!(text, "{name}{{{labels},quantile=\"{quantile}\"}} {value}")?;
        }
    }
    writeln!(text, "{name}_sum{{{labels}}} {}", window.sum)?;
    writeln!(text, "{name}_count{{{labels}}} {}", window.count)
}

fn render_histogram(
    text: &mut String,
    name: &str,
    labels: &str,
    histogram: &Histogram,
    bounds: &[f64],
) -> std::fmt::Result {
    let bounds = bounds.iter().map(f64::to_string);
    let bounds = bounds.chain(std::iter::once("+Inf".to_owned()));
    // Each bucket contains those before it.
    let mut count = 0;
    for (bound, inside) in bounds.zip(&histogram.buckets) {
        count += inside;
        writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}")?;
    }
    writeln!(text, "{name}_sum{{{labels}}} {}", histogram.sum)?;
    writeln!(text, "{name}_count{{{labels}}} {count}")
}

/// Returns the value of a label as the format has it.
fn escaped(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
