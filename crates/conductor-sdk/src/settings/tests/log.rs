//! The log line of a worker.

use super::super::*;
use super::{from, resolved, variables};
use crate::testing::capture::Log;

#[test]
fn one_line_is_logged_with_the_value_and_the_source_of_each_property() {
    let code = CodeSettings::new().domain("eu\nrope").worker_id("worker-7");
    let environment = variables([
        ("CONDUCTOR_WORKER_ORDER_THREAD_COUNT", "50"),
        ("conductor.worker.all.strict_schema", "YES"),
    ]);
    let resolved = resolved("order", &code, &environment).unwrap();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || resolved.log());
    assert_eq!(
        log.text(),
        " INFO worker settings task_name=\"order\" settings=\
         poll_interval_millis=100 (default), \
         thread_count=50 (worker variable CONDUCTOR_WORKER_ORDER_THREAD_COUNT), \
         domain=\"eu\\nrope\" (code), \
         worker_id=\"worker-7\" (code), \
         poll_timeout=100 (default), \
         register_task_def=false (default), \
         overwrite_task_def=true (default), \
         strict_schema=true (global variable conductor.worker.all.strict_schema), \
         paused=false (default), \
         lease_extend_enabled=false (default), \
         register_schema=true (default)\n"
    );
}

#[test]
fn the_line_without_a_domain_shows_none_and_stays_one_line_for_any_task_name() {
    let task_name = "two\nlines";
    let variable = format!("conductor.worker.{task_name}.thread_count");
    let text = from(task_name, [(&variable, "2")]).to_string();
    assert!(text.contains("domain=none (default)"), "{text}");
    assert!(
        text.contains("(worker variable conductor.worker.two\\nlines.thread_count)"),
        "{text}"
    );
    assert!(!text.contains('\n'), "{text}");
}
