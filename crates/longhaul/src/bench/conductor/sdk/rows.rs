//! The results as rows of the table.

use super::{ConductorSdk, Drained};
use crate::bench::report::{Table, p50, p99, per_second, times};

/// Appends the results to the table.
pub(in crate::bench) fn rows(measured: &ConductorSdk, table: &mut Table) {
    table.section("the Rust SDK for Conductor");
    table.row(
        "start to function, idle server",
        p50(&measured.queued_to_started),
        p99(&measured.queued_to_started),
    );
    let (slots, waiting) = (measured.slots, measured.waiting_slots);
    let kinds: [(&str, usize, &Drained); 4] = [
        ("no-op tasks, async worker", slots, &measured.no_op_async),
        ("no-op tasks, sync worker", slots, &measured.no_op_sync),
        (
            "tasks that wait 20 ms, async worker",
            waiting,
            &measured.waiting_async,
        ),
        (
            "tasks that wait 20 ms, sync worker",
            waiting,
            &measured.waiting_sync,
        ),
    ];
    for (name, slots, drained) in kinds {
        table.row(
            &format!("{name}, {slots} slots"),
            per_second(drained.tasks_per_second, "tasks"),
            times(drained.to_echo, "echo"),
        );
    }
    table.row(
        &format!("requests per task, {} slots", measured.counted_slots),
        format!("{:.2}", measured.requests_per_task),
        String::new(),
    );
    let Some(process) = &measured.process else {
        return;
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    table.row(
        &format!("a worker process, {} s idle", process.idle_seconds),
        format!("{:.2} % of a processor", process.idle_processors * 100.0),
        format!("{:.1} MiB", mib(process.idle_bytes)),
    );
    table.row(
        &format!("under load, {} tasks", process.load_tasks),
        format!("{:.2} % of a processor", process.load_processors * 100.0),
        format!(
            "{:.1} MiB after a third, {:.1} MiB at the end",
            mib(process.load_bytes_early),
            mib(process.load_bytes_late)
        ),
    );
}
