//! Events become numbers, on both surfaces.

use std::sync::Arc;
use std::time::Duration;

use longhaul_protocol::conductor::TaskResult;
use longhaul_transport::{Refusal, RequestError, Response, TransportError};

use super::super::settings::MetricsError;
use super::{MetricsCollector, Surface, samples};
use crate::events::{
    EventDispatcher, PollCompleted, PollFailure, PollStarted, TaskExecutionCompleted,
    TaskExecutionFailure, TaskExecutionStarted, TaskPaused, TaskUpdateCompleted, TaskUpdateError,
    TaskUpdateFailure,
};
use crate::worker::{NonRetryable, TaskFailure};

/// A runner that publishes prepared events.
struct Published(EventDispatcher);

impl Published {
    fn poll(&self, millis: u64) {
        self.0.publish(PollStarted {
            task_type: "t".into(),
            worker_id: "w".to_owned(),
            poll_count: 1,
        });
        self.0.publish(PollCompleted {
            task_type: "t".into(),
            duration: Duration::from_millis(millis),
            tasks_received: 0,
        });
    }

    fn failed_poll(&self, cause: RequestError) {
        self.0.publish(PollFailure {
            task_type: "t".into(),
            duration: Duration::from_millis(3),
            cause: Arc::new(cause),
        });
    }

    fn begin(&self) {
        self.0.publish(TaskExecutionStarted {
            task_type: "t".into(),
            task_id: "a".to_owned(),
            worker_id: "w".to_owned(),
            workflow_instance_id: "i".to_owned(),
        });
    }

    fn complete(&self, millis: u64, output_size_bytes: usize) {
        self.0.publish(TaskExecutionCompleted {
            task_type: "t".into(),
            task_id: "a".to_owned(),
            worker_id: "w".to_owned(),
            workflow_instance_id: "i".to_owned(),
            duration: Duration::from_millis(millis),
            output_size_bytes,
        });
    }

    fn fail(&self, cause: TaskFailure) {
        self.0.publish(TaskExecutionFailure {
            task_type: "t".into(),
            task_id: "a".to_owned(),
            worker_id: "w".to_owned(),
            workflow_instance_id: "i".to_owned(),
            cause: Arc::new(cause),
            duration: Duration::from_millis(30),
        });
    }

    fn reported(&self, millis: u64) {
        self.0.publish(TaskUpdateCompleted {
            task_type: "t".into(),
            task_id: "a".to_owned(),
            worker_id: "w".to_owned(),
            workflow_instance_id: "i".to_owned(),
            duration: Duration::from_millis(millis),
        });
    }

    fn failed_report(&self, attempt: u32) {
        self.0.publish(TaskUpdateError {
            task_type: "t".into(),
            task_id: "a".to_owned(),
            cause: Arc::new(refused(503)),
            attempt,
        });
    }

    fn lost(&self) {
        self.0.publish(TaskUpdateFailure {
            task_type: "t".into(),
            task_id: "a".to_owned(),
            worker_id: "w".to_owned(),
            workflow_instance_id: "i".to_owned(),
            cause: Arc::new(refused(503)),
            retry_count: 4,
            duration: Duration::from_secs(60),
            task_result: Arc::new(TaskResult::default()),
        });
    }
}

fn refused(status: u16) -> RequestError {
    RequestError::Refused(Refusal::read(&Response {
        status,
        body: "{}".into(),
    }))
}

/// Returns a collector that has heard what the function publishes, over a dispatcher.
async fn heard(surface: Surface, publish: impl FnOnce(&Published)) -> MetricsCollector {
    let collector = MetricsCollector::new(surface);
    let (events, dispatching) = EventDispatcher::builder()
        .register(collector.clone())
        .start()
        .unwrap();
    let published = Published(events);
    publish(&published);
    drop(published);
    dispatching.ended().await;
    collector
}

const T: (&str, &str) = ("taskType", "t");

#[tokio::test]
async fn without_the_collector_nothing_is_counted() {
    let collector = MetricsCollector::new(Surface::Guide);
    let (events, dispatching) = EventDispatcher::builder().start().unwrap();
    Published(events).poll(1);
    dispatching.ended().await;
    assert_eq!(collector.render(), "");
}

#[tokio::test]
async fn a_poll_counts_once() {
    for surface in [Surface::Guide, Surface::Canonical] {
        let collector = heard(surface, |events| {
            (1..=10).for_each(|time| events.poll(time))
        })
        .await;
        let samples = samples(&collector);
        assert_eq!(samples.value("task_poll_total", [T]), Some(10.0));
        assert_eq!(samples.types["task_poll_total"], "counter");
    }
}

#[tokio::test]
async fn the_guides_surface_has_quantiles_of_successes() {
    let collector = heard(Surface::Guide, |events| {
        (1..=100).for_each(|time| events.poll(time));
        events.failed_poll(refused(500));
        for size in [10, 20] {
            events.begin();
            events.complete(250, size);
        }
        events.begin();
        events.fail(TaskFailure::new("no"));
        events.reported(40);
        events.lost();
    })
    .await;
    let samples = samples(&collector);
    for name in [
        "task_poll_time_seconds",
        "task_execute_time_seconds",
        "task_update_time_seconds",
        "task_result_size_bytes",
    ] {
        assert_eq!(samples.types[name], "summary");
    }
    let poll = |quantile| samples.value("task_poll_time_seconds", [T, ("quantile", quantile)]);
    let polls = ["0.5", "0.75", "0.9", "0.95", "0.99"].map(poll);
    assert_eq!(polls, [0.05, 0.075, 0.09, 0.095, 0.099].map(Some));
    assert_eq!(
        samples.value("task_poll_time_seconds_count", [T]),
        Some(100.0)
    );
    let sum = samples.value("task_poll_time_seconds_sum", [T]).unwrap();
    assert!((sum - 5.05).abs() < 1e-9, "{sum}");
    assert_eq!(
        samples.value("task_execute_time_seconds_count", [T]),
        Some(2.0)
    );
    assert_eq!(
        samples.value("task_execute_time_seconds_sum", [T]),
        Some(0.5)
    );
    let size = samples.value("task_result_size_bytes", [T, ("quantile", "0.99")]);
    assert_eq!(size, Some(20.0));
    assert_eq!(
        samples.value("task_update_time_seconds_count", [T]),
        Some(1.0)
    );
}

#[tokio::test]
async fn the_canonical_surface_has_histograms_of_successes_and_failures() {
    let collector = heard(Surface::Canonical, |events| {
        // Exactly at a bound, between two, and above the last one.
        for millis in [1, 30, 11_000] {
            events.poll(millis);
        }
        events.failed_poll(refused(500));
        events.begin();
        events.complete(250, 1000);
        events.begin();
        events.fail(TaskFailure::new("no"));
        events.reported(40);
        events.lost();
    })
    .await;
    let samples = samples(&collector);
    let (ok, failed) = (("status", "SUCCESS"), ("status", "FAILURE"));
    let name = "task_poll_time_seconds_bucket";
    for (bound, count) in [
        ("0.001", 1.0),
        ("0.025", 1.0),
        ("0.05", 2.0),
        ("10", 2.0),
        ("+Inf", 3.0),
    ] {
        let value = samples.value(name, [T, ok, ("le", bound)]);
        assert_eq!(value, Some(count), "{bound}");
    }
    assert_eq!(samples.all(name).len(), 2 * 13);
    for name in [
        "task_poll_time_seconds",
        "task_execute_time_seconds",
        "task_update_time_seconds",
    ] {
        assert_eq!(samples.types[name], "histogram");
        let count = samples.value(&format!("{name}_count"), [T, failed]);
        assert_eq!(count, Some(1.0), "{name}");
    }
    let bounds = samples.all("task_result_size_bytes_bucket");
    let mut bounds: Vec<_> = bounds.iter().map(|(labels, _)| &*labels["le"]).collect();
    bounds.sort_by_key(|bound| bound.len());
    assert_eq!(
        bounds,
        [
            "100", "+Inf", "1000", "10000", "100000", "1000000", "10000000"
        ]
    );
    let small = [T, ("le", "1000")];
    assert_eq!(
        samples.value("task_result_size_bytes_bucket", small),
        Some(1.0)
    );
}

#[derive(Debug, thiserror::Error)]
#[error("charging failed")]
struct ChargeError(#[source] Option<NonRetryable>);

#[tokio::test]
async fn failures_are_told_apart_by_their_type() {
    let collector = heard(Surface::Guide, |events| {
        events.fail(NonRetryable::new("no such order").into());
        events.fail(ChargeError(None).into());
        events.fail(ChargeError(Some(NonRetryable::new("blocked"))).into());
        events.fail(TaskFailure::new("one"));
        events.fail(TaskFailure::new("two"));
        events.failed_poll(refused(401));
        events.failed_poll(TransportError::Unreachable("no".to_owned()).into());
        events.failed_poll(RequestError::Malformed("no".to_owned()));
    })
    .await;
    let samples = samples(&collector);
    for (exception, count) in [
        ("NonRetryable", 1.0),
        ("ChargeError", 1.0),
        ("NonRetryable(ChargeError)", 1.0),
        ("TaskFailure", 2.0),
    ] {
        let labels = [T, ("exception", exception)];
        let value = samples.value("task_execute_error_total", labels);
        assert_eq!(value, Some(count), "{exception}");
    }
    for exception in ["Refused401", "Unreachable", "Malformed"] {
        let labels = [T, ("exception", exception)];
        let value = samples.value("task_poll_error_total", labels);
        assert_eq!(value, Some(1.0), "{exception}");
    }
}

#[tokio::test]
async fn failed_reports_count_each_and_a_lost_result_once() {
    for surface in [Surface::Guide, Surface::Canonical] {
        let collector = heard(surface, |events| {
            (1..=4).for_each(|attempt| events.failed_report(attempt));
            events.lost();
            (1..=3).for_each(|attempt| events.failed_report(attempt));
            events.reported(60_000);
        })
        .await;
        let samples = samples(&collector);
        let labels = [T, ("exception", "Refused503")];
        assert_eq!(samples.value("task_update_error_total", labels), Some(7.0));
        assert_eq!(samples.value("task_update_failed_total", [T]), Some(1.0));
    }
}

#[tokio::test]
async fn active_tasks_rise_and_fall_and_pauses_count() {
    let collector = heard(Surface::Guide, |events| {
        for _ in 0..3 {
            events.begin();
        }
        events.complete(1, 2);
        events.fail(TaskFailure::new("no"));
        events.0.publish(TaskPaused {
            task_type: "t".into(),
        });
    })
    .await;
    let samples_now = samples(&collector);
    assert_eq!(samples_now.value("active_workers", [T]), Some(1.0));
    assert_eq!(samples_now.types["active_workers"], "gauge");
    assert_eq!(
        samples_now.value("task_execution_started_total", [T]),
        Some(3.0)
    );
    assert_eq!(samples_now.value("task_paused_total", [T]), Some(1.0));
    // An end whose beginning was dropped does not make it negative.
    let collector = heard(Surface::Guide, |events| events.complete(1, 2)).await;
    assert_eq!(samples(&collector).value("active_workers", [T]), Some(0.0));
}

#[test]
fn the_variable_selects_the_surface() {
    let read = |value: &str| Surface::read(Some(value.to_owned()));
    assert_eq!(read("true").unwrap(), Some(Surface::Canonical));
    assert_eq!(read(" YES ").unwrap(), Some(Surface::Canonical));
    assert_eq!(read("0").unwrap(), Some(Surface::Guide));
    assert_eq!(read("").unwrap(), None);
    assert_eq!(Surface::read(None).unwrap(), None);
    let error = read("maybe").unwrap_err();
    assert!(matches!(error, MetricsError::Variable { .. }));
    assert!(
        error
            .to_string()
            .contains("`WORKER_CANONICAL_METRICS` has the value \"maybe\"; it must be one of true"),
        "{error}"
    );
}
