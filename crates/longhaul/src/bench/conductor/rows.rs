//! The results as rows of the table.

use super::Conductor;
use crate::bench::report::{Table, grouped, p50, p99, per_second, times};

/// Appends the results to the table.
pub(in crate::bench) fn rows(measured: &Conductor, table: &mut Table) {
    let load = &measured.load;
    table.section(&format!(
        "conductor: three-task workflows, {} in flight, batch polls and update-v2",
        load.in_flight
    ));
    table.row(
        "workflows",
        per_second(load.workflows_per_second, "workflows"),
        per_second(load.tasks_per_second, "tasks"),
    );
    table.row(
        "requests per workflow",
        format!("{:.1}", load.requests_per_workflow),
        times(load.requests_to_echo, "echo"),
    );
    table.row(
        "start to completion",
        p50(&load.latency),
        p99(&load.latency),
    );
    if let Some(cost) = load.processor_us_per_workflow {
        table.row(
            "processor time per workflow",
            format!("{cost:.0} µs"),
            "server and load".to_owned(),
        );
    }
    table.row(
        "update to next task, idle server",
        p50(&measured.delivery),
        p99(&measured.delivery),
    );
    table.row(
        "fdatasync between rounds",
        p50(&measured.fdatasync),
        p99(&measured.fdatasync),
    );
    let idle = &measured.idle;
    table.row(
        &format!("{} workers on empty queues", grouped(idle.workers as f64)),
        per_second(idle.requests_per_second, "requests"),
        idle.processors_busy
            .map_or_else(String::new, |busy| format!("{busy:.2} processors busy")),
    );
    if let Some(bytes) = measured.bytes_per_open_run {
        table.row(
            "per open run with a waiting task",
            format!("{:.2} KiB", bytes / 1024.0),
            format!("{} runs", grouped(measured.open_runs as f64)),
        );
    }
    let long = &measured.long_run;
    table.row(
        &format!("task 10 and task {}", grouped(long.tasks as f64)),
        format!(
            "{:.2} ms, {:.2} ms p50",
            long.early.p50_ms, long.late.p50_ms
        ),
        times(long.processor_ratio, "early in processor time"),
    );
    if let (Some(early), Some(late)) = (long.early_processor_us, long.late_processor_us) {
        table.row(
            "processor time of a task",
            format!("{early:.0} µs, {late:.0} µs"),
            "server and load".to_owned(),
        );
    }
    table.row(
        "a fork of 4,000 branches",
        format!("{:.1} s", measured.fork_seconds),
        String::new(),
    );
    table.row(
        "scripts",
        per_second(measured.scripts_per_second, "evaluations"),
        String::new(),
    );
}
