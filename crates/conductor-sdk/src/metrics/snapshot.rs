//! The numbers of all metrics at a moment: of one process, or of several together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Surface;
use super::metric::{Kind, Metric};
use super::window::Window;

/// How many task types a metric has at most. A program has a few.
const TASK_TYPES_MAX: usize = 1000;

/// How many values the second label of a metric has for one task type at most. A worker has a few kinds of errors, and each one
/// costs memory here and in Prometheus.
pub(super) const SECOND_VALUES_MAX: usize = 50;

/// The bytes of the value of a label.
const LABEL_BYTES_MAX: usize = 200;

/// The label of everything above a limit.
pub(super) const OTHER: &str = "other";

/// The values of the two labels. The second one is empty if the metric has one label.
type Labels<'a> = (&'a str, &'a str);

/// The series of a metric, by task type and then by the second label.
pub(super) type Family = BTreeMap<String, BTreeMap<String, Value>>;

/// The numbers of all metrics.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    surface: Surface,
    families: BTreeMap<Metric, Family>,
}

/// The number of one series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Value {
    Counter(u64),
    Gauge(i64),
    Summary(Window),
    Histogram(Histogram),
}

/// Observations in buckets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Histogram {
    /// How many observations are in each bucket and in none before it. The last one has no bound.
    pub(super) buckets: Vec<u64>,
    pub(super) sum: f64,
}

/// A snapshot as it is written to a file.
#[derive(Serialize, Deserialize)]
struct Stored {
    surface: Surface,
    series: Vec<(Metric, String, String, Value)>,
}

impl Snapshot {
    pub(super) fn new(surface: Surface) -> Self {
        Self {
            surface,
            families: BTreeMap::new(),
        }
    }

    pub(super) fn surface(&self) -> Surface {
        self.surface
    }

    pub(super) fn families(&self) -> impl Iterator<Item = (Metric, &Family)> {
        let families = self.families.iter();
        families.map(|(metric, family)| (*metric, family))
    }

    /// Adds to a counter.
    pub(super) fn count(&mut self, metric: Metric, labels: Labels<'_>, by: u64) {
        if let Value::Counter(value) = self.value(metric, labels) {
            *value = value.saturating_add(by);
        }
    }

    /// Changes a gauge. It does not fall below zero: the event of a beginning may have been dropped.
    pub(super) fn shift(&mut self, metric: Metric, labels: Labels<'_>, by: i64) {
        if let Value::Gauge(value) = self.value(metric, labels) {
            *value = value.saturating_add(by).max(0);
        }
    }

    /// Adds an observation to a summary or a histogram.
    pub(super) fn observe(&mut self, metric: Metric, labels: Labels<'_>, value: f64, millis: u64) {
        match self.value(metric, labels) {
            Value::Summary(window) => window.observe(value, millis),
            Value::Histogram(histogram) => {
                let bounds = metric.bounds();
                let bucket = bounds.partition_point(|bound| *bound < value);
                histogram.buckets[bucket] += 1;
                histogram.sum += value;
            }
            Value::Counter(_) | Value::Gauge(_) => {}
        }
    }

    /// Adds the numbers of another process. A snapshot of the other surface has other types and adds nothing where they differ.
    pub(super) fn merge(&mut self, other: &Self) {
        for (metric, family) in other.families() {
            for (task_type, series) in family {
                for (second, value) in series {
                    self.value(metric, (task_type, second)).merge(value);
                }
            }
        }
    }

    /// Removes what is true only while the process lives.
    pub(super) fn remove_gauges(&mut self) {
        self.families
            .retain(|metric, _| metric.kind() != Kind::Gauge);
    }

    /// Returns the value of a series, which begins at zero. Above the limits it is the series with the label `other`.
    fn value(&mut self, metric: Metric, (task_type, second): Labels<'_>) -> &mut Value {
        let family = self.families.entry(metric).or_default();
        let task_type = admitted(family, task_type, TASK_TYPES_MAX);
        let series = family.entry(task_type).or_default();
        let second = admitted(series, second, SECOND_VALUES_MAX);
        let surface = self.surface;
        series
            .entry(second)
            .or_insert_with(|| Value::zero(metric, surface))
    }

    pub(super) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let mut series = Vec::new();
        for (metric, family) in self.families() {
            for (task_type, values) in family {
                for (second, value) in values {
                    series.push((metric, task_type.clone(), second.clone(), value.clone()));
                }
            }
        }
        serde_json::to_vec(&Stored {
            surface: self.surface,
            series,
        })
    }

    pub(super) fn from_json(text: &[u8]) -> serde_json::Result<Self> {
        let stored: Stored = serde_json::from_slice(text)?;
        let mut snapshot = Self::new(stored.surface);
        for (metric, task_type, second, value) in stored.series {
            snapshot.value(metric, (&task_type, &second)).merge(&value);
        }
        Ok(snapshot)
    }
}

/// Returns the key for a label: the label itself if it is known or there is room for it.
fn admitted<V>(known: &BTreeMap<String, V>, label: &str, max: usize) -> String {
    let label = shortened(label);
    if known.len() < max || known.contains_key(label) {
        label.to_owned()
    } else {
        OTHER.to_owned()
    }
}

fn shortened(label: &str) -> &str {
    let mut end = label.len().min(LABEL_BYTES_MAX);
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    &label[..end]
}

impl Value {
    fn zero(metric: Metric, surface: Surface) -> Self {
        match (metric.kind(), surface) {
            (Kind::Counter, _) => Self::Counter(0),
            (Kind::Gauge, _) => Self::Gauge(0),
            (Kind::Seconds | Kind::Bytes, Surface::Guide) => Self::Summary(Window::default()),
            (Kind::Seconds | Kind::Bytes, Surface::Canonical) => Self::Histogram(Histogram {
                buckets: vec![0; metric.bounds().len() + 1],
                sum: 0.0,
            }),
        }
    }

    fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Counter(value), Self::Counter(by)) => *value = value.saturating_add(*by),
            (Self::Gauge(value), Self::Gauge(by)) => *value = value.saturating_add(*by),
            (Self::Summary(window), Self::Summary(by)) => window.merge(by),
            (Self::Histogram(histogram), Self::Histogram(by)) => {
                for (bucket, by) in histogram.buckets.iter_mut().zip(&by.buckets) {
                    *bucket += by;
                }
                histogram.sum += by.sum;
            }
            (Self::Counter(_) | Self::Gauge(_) | Self::Summary(_) | Self::Histogram(_), _) => {}
        }
    }
}
