//! Measures servers on one PostgreSQL, beside `pgbench` on the same database server and one server on SQLite: one-activity workflows
//! per second with one server and with several, what they cost the database, how long a task takes from one server to a poll at
//! another, what idle servers send, and how long a server takes to start beside many open runs.
//!
//! Each request of the load goes to the next server, as behind a balancer without affinity.

mod delivery;
mod idle;
mod pgbench;
mod rows;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use longhaul_store::Stats;
use serde::Serialize;

use super::load::{Driven, Load, Until};
use super::measure::{Spread, ratio};
use super::progress::Progress;
use super::stored::{TRANSITIONS_PER_WORKFLOW, fill};
use super::target::Target;
use super::{Args, Home};

pub(super) use delivery::Delivery;
pub(super) use idle::Idle;
pub(super) use pgbench::Pgbench;
pub(super) use rows::rows;

#[derive(Debug, Serialize)]
pub(super) struct Cluster {
    pub(super) servers: usize,
    pub(super) in_flight: u64,
    /// `None` if the program is not installed.
    pub(super) pgbench: Option<Pgbench>,
    pub(super) sqlite: Side,
    pub(super) one: Side,
    pub(super) several: Side,
    /// Transitions per second of one server to transactions per second of pgbench.
    pub(super) one_to_pgbench: Option<f64>,
    /// Workflows per second of one server to those of SQLite.
    pub(super) one_to_sqlite: Option<f64>,
    /// Workflows per second of several servers to those of one.
    pub(super) several_to_one: Option<f64>,
    pub(super) delivery: Delivery,
    pub(super) idle: Idle,
    pub(super) start: Start,
}

/// The load with one choice of store and servers.
#[derive(Debug, Serialize)]
pub(super) struct Side {
    pub(super) servers: usize,
    pub(super) workflows_per_second: f64,
    pub(super) transitions_per_second: f64,
    pub(super) latency: Spread,
    pub(super) processor_us_per_workflow: Option<f64>,
    pub(super) commits_per_batch: Option<f64>,
    /// Commits that another one preceded, to all commits.
    pub(super) conflicts: Option<f64>,
    /// BEGIN and COMMIT included. `None` for SQLite.
    pub(super) statements_per_workflow: Option<f64>,
}

/// The start of a server beside open runs.
#[derive(Debug, Serialize)]
pub(super) struct Start {
    pub(super) open_runs: u64,
    /// From opening the store until the first request is answered.
    pub(super) seconds: f64,
}

pub(super) async fn measure(home: &Home, args: &Args, progress: &Progress) -> Result<Cluster> {
    let (options, servers) = home
        .database()
        .context("the cluster scenario needs --store postgres://…")?;
    let seconds = Duration::from_secs(args.seconds);
    progress.show("cluster: pgbench");
    let pgbench = pgbench::measure(options, args.seconds).await?;
    let target = home.open_sqlite("cluster").await?;
    let sqlite = drive(target, 1, args, "SQLite", seconds, progress).await?;
    let target = Target::on_postgres(options, 1).await?;
    let one = drive(target, 1, args, "one server", seconds, progress).await?;
    let target = Target::on_postgres(options, servers).await?;
    let several = drive(target, servers, args, "several servers", seconds, progress).await?;

    let target = Target::on_postgres(options, servers.max(2)).await?;
    let delivery = delivery::measure(&target, progress).await?;
    target.stop().await;
    let target = Target::on_postgres(options, servers).await?;
    let idle = idle::measure(&target, servers, args.in_flight, progress).await?;
    target.stop().await;
    let start = start(Target::on_postgres(options, 1).await?, args, progress).await?;
    let to =
        |side: &Side, other: &Side| ratio(side.workflows_per_second, other.workflows_per_second);
    Ok(Cluster {
        servers,
        in_flight: args.in_flight,
        one_to_pgbench: pgbench
            .as_ref()
            .and_then(|pgbench| ratio(one.transitions_per_second, pgbench.per_second)),
        one_to_sqlite: to(&one, &sqlite),
        several_to_one: to(&several, &one),
        pgbench,
        sqlite,
        one,
        several,
        delivery,
        idle,
        start,
    })
}

/// Drives the load and stops the servers.
async fn drive(
    target: Target,
    servers: usize,
    args: &Args,
    name: &str,
    seconds: Duration,
    progress: &Progress,
) -> Result<Side> {
    let load = Load::prepare(&target, args.in_flight).await?;
    let show = |completed| progress.show(&format!("cluster: {name}, {completed} workflows"));
    // Connections, statements and pages are prepared by the first workflows.
    load.drive(Until::Workflows(2 * args.in_flight), show)
        .await?;
    let before = sum(&target.stats());
    let driven = load.drive(Until::Elapsed(seconds), show).await?;
    let after = sum(&target.stats());
    load.leave().await?;
    let mut connection = target.connect().await?;
    for workflow_id in &driven.sample {
        connection.check_result(workflow_id).await?;
    }
    drop(connection);
    target.stop().await;
    side(servers, driven, &before, &after)
}

fn side(servers: usize, driven: Driven, before: &Stats, after: &Stats) -> Result<Side> {
    let workflows = driven.latencies.len() as f64;
    ensure!(workflows > 0.0, "no workflow was completed");
    let per_second = workflows / driven.elapsed.as_secs_f64();
    let (written, refused) = (
        (after.writes - before.writes) as f64,
        (after.refused - before.refused) as f64,
    );
    let batches = (after.batches - before.batches) as f64;
    let statements = after
        .remote
        .zip(before.remote)
        .map(|(after, before)| (after.statements - before.statements) as f64);
    Ok(Side {
        servers,
        workflows_per_second: per_second,
        transitions_per_second: per_second * TRANSITIONS_PER_WORKFLOW,
        processor_us_per_workflow: driven
            .processor
            .map(|time| time.as_secs_f64() * 1e6 / workflows),
        latency: Spread::of(driven.latencies),
        commits_per_batch: ratio(written + refused, batches),
        conflicts: ratio(refused, written + refused),
        statements_per_workflow: statements.map(|count| count / workflows),
    })
}

/// Adds up the counters of all servers.
fn sum(servers: &[Stats]) -> Stats {
    let mut all = Stats::default();
    for stats in servers {
        all.writes += stats.writes;
        all.refused += stats.refused;
        all.batches += stats.batches;
        if let Some(remote) = stats.remote {
            all.remote.get_or_insert_default().statements += remote.statements;
        }
    }
    all
}

/// Opens runs, then starts one more server.
async fn start(mut target: Target, args: &Args, progress: &Progress) -> Result<Start> {
    fill(&target, args.in_flight, args.stored_runs, progress).await?;
    progress.show("cluster: start of a server");
    let began = std::time::Instant::now();
    let mut connection = target.add_server().await?;
    connection.list("").await?;
    let seconds = began.elapsed().as_secs_f64();
    drop(connection);
    target.stop().await;
    Ok(Start {
        open_runs: args.stored_runs,
        seconds,
    })
}
