//! The rows of the report.

use super::super::report::{Table, grouped, p50, p99, per_second, times};
use super::{Cluster, Side};

pub(in super::super) fn rows(cluster: &Cluster, table: &mut Table) {
    table.section(&format!(
        "cluster: one-activity workflows on PostgreSQL, {} in flight",
        cluster.in_flight
    ));
    match &cluster.pgbench {
        Some(pgbench) => table.row(
            &format!("pgbench simple-update, {} clients", pgbench.clients),
            per_second(pgbench.per_second, "transactions"),
            String::new(),
        ),
        None => table.row("pgbench", "not installed".to_owned(), String::new()),
    }
    side("SQLite, one server", &cluster.sqlite, String::new(), table);
    let compared = [
        times(cluster.one_to_sqlite, "SQLite"),
        times(cluster.one_to_pgbench, "pgbench in transitions"),
    ];
    side("one server", &cluster.one, compared.join(", "), table);
    let several = format!("{} servers", cluster.several.servers);
    let compared = times(cluster.several_to_one, "one server");
    side(&several, &cluster.several, compared, table);
    for (label, spread) in [
        (
            "task to a poll at another server",
            &cluster.delivery.from_stored,
        ),
        ("the same, with the commit", &cluster.delivery.from_sent),
    ] {
        table.row(label, p50(spread), p99(spread));
    }
    let idle = &cluster.idle;
    table.row(
        "idle, each server",
        format!("{:.2} statements/s", idle.statements_per_second),
        format!(
            "{} polls, {} workers, {} sleeping runs{}",
            grouped(idle.polls as f64),
            idle.workers,
            grouped(idle.sleeping_runs as f64),
            idle.processors_busy
                .map_or_else(String::new, |busy| format!(", {busy:.3} processors busy")),
        ),
    );
    table.row(
        "start of one more server",
        format!("{:.2} s", cluster.start.seconds),
        format!("{} open runs", grouped(cluster.start.open_runs as f64)),
    );
}

fn side(name: &str, side: &Side, compared: String, table: &mut Table) {
    table.row(
        name,
        per_second(side.workflows_per_second, "workflows"),
        compared,
    );
    table.row(
        "  start to completion",
        p50(&side.latency),
        p99(&side.latency),
    );
    let mut costs = Vec::new();
    if let Some(count) = side.statements_per_workflow {
        costs.push(format!("{count:.1} statements per workflow"));
    }
    if let Some(share) = side.conflicts {
        costs.push(format!("{:.2} % conflicts", share * 100.0));
    }
    if let Some(time) = side.processor_us_per_workflow {
        costs.push(format!("{time:.0} µs of processor time per workflow"));
    }
    let batch = side.commits_per_batch.unwrap_or_default();
    table.row(
        "  commits per batch",
        format!("{batch:.1}"),
        costs.join(", "),
    );
}
