//! Numbers from events, the text that Prometheus reads, and how both leave the process.

mod collected;
mod exposition;
mod reported;
mod served;

use std::collections::BTreeMap;

use exposition::Exposition;

use super::{MetricsCollector, Surface};

/// Returns the samples of a collector, which are valid text.
fn samples(collector: &MetricsCollector) -> Exposition {
    Exposition::parse(&collector.render()).unwrap()
}

/// Returns labels as the parser has them.
fn labels<const N: usize>(labels: [(&str, &str); N]) -> BTreeMap<String, String> {
    let labels = labels.into_iter();
    labels
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
