//! Metrics of workers, in the text format of Prometheus.
//!
//! [`MetricsCollector`] is a listener like any other: register it with an [`EventDispatcher`](crate::events::EventDispatcher) and read
//! [`MetricsCollector::render`]. [`TaskHandlerBuilder::metrics`](crate::handler::TaskHandlerBuilder::metrics) does both for all workers
//! of a program: each worker process writes its numbers to a file, and the first process adds them up and serves them.
//!
//! There are two surfaces with the same names, one at a time: [`Surface`].

mod collector;
mod exchange;
mod metric;
mod reporting;
mod server;
mod settings;
mod snapshot;
mod text;
mod window;

#[cfg(test)]
mod tests;

pub use collector::MetricsCollector;
pub(crate) use exchange::Exchange;
pub(crate) use reporting::{Place, Reporting};
pub use settings::{MetricsError, MetricsSettings, Surface};
pub use text::CONTENT_TYPE;
