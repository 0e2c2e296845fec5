//! `longhaul bench`: measures workflows on this machine, beside an echo server and the disk alone.
//!
//! Every run also measures an echo server and `fdatasync` with the same client on the same runtime and disk, because ratios vary
//! less than absolute numbers. A slow result never fails the command; a refused request or a wrong result always does. Each
//! scenario is one file; `docs/performance.md` explains it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, ValueEnum};
use longhaul_store::{StoreAddress, postgres};

mod baseline;
mod client;
mod cluster;
mod conductor;
mod dispatch;
mod load;
mod long_run;
mod measure;
mod memory;
mod report;
mod sdk;
mod stored;
mod target;
mod throughput;
mod wire;

use report::Report;
use report::progress::{self, Progress};
use target::Home;

use crate::output::{self, say};

/// File descriptors of the process besides one for each end of a connection.
const DESCRIPTORS_SPARE: u64 = 100;

/// The longest echo measurement. The result is stable after one or two seconds.
const ECHO_SECONDS_MAX: f64 = 3.0;

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// What to measure [default: all]
    #[arg(value_enum, value_name = "SCENARIO")]
    scenarios: Vec<Scenario>,

    /// Measure this server instead of one in this process, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Measure servers on new databases beside this one: postgres://user:password@host/database
    #[arg(long, value_name = "URL", conflicts_with = "url")]
    store: Option<String>,

    /// Servers on that database
    #[arg(long, value_name = "N", requires = "store", value_parser = clap::value_parser!(u64).range(1..=16))]
    servers: Option<u64>,

    /// Token for that server
    #[arg(
        long,
        env = "LONGHAUL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<String>,

    /// Directory on the disk to measure; its files are removed afterwards [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Workflows open at a time under load
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    in_flight: u64,

    /// How long a scenario measures
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// End the throughput scenario after this many workflows instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    workflows: Option<u64>,

    /// Runs that the memory scenario opens
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    open_runs: u64,

    /// Runs in the large store of the stored scenario; the small one has 1,000
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    stored_runs: u64,

    /// Events of the long run in the long-run scenario
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=40_000))]
    events: u64,

    /// Be the worker process of a bench for this task type
    #[arg(long, hide = true, requires = "url", value_name = "TASK_TYPE")]
    conductor_worker: Option<String>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// One-activity workflows per second with many in flight
    Throughput,
    /// Time until the next task is delivered, on an idle server
    Dispatch,
    /// Memory per open run
    Memory,
    /// Cost per transition with few and with many stored runs
    Stored,
    /// Cost per transition early and late in one run
    LongRun,
    /// The Rust SDK: one-activity workflows and durable local steps per second
    Sdk,
    /// Conductor definitions: tasks per second, delivery, empty polls, memory, long runs, forks, scripts
    Conductor,
    /// The Rust SDK for Conductor: delivery, tasks per second, requests per task, cost of a worker process
    ConductorSdk,
    /// Servers on one PostgreSQL beside pgbench and SQLite; needs --store
    Cluster,
}

pub(crate) fn run(args: Args) -> Result<()> {
    // The server in this process logs only problems.
    let _log = crate::logs::start(crate::logs::Format::Text, "warn")?;
    let runtime = crate::runtime::start()?;
    if let (Some(url), Some(task_type)) = (&args.url, &args.conductor_worker) {
        return runtime.block_on(conductor::sdk::process::work(url, task_type));
    }
    let report = runtime.block_on(async {
        tokio::select! {
            report = Box::pin(measure_all(&args)) => report,
            // The data directory is removed on the way out.
            () = crate::signals::asked_to_stop() => bail!("interrupted"),
        }
    })?;
    if args.json {
        say!(
            "{}",
            serde_json::to_string_pretty(&report)
                .context("the report could not be written as JSON")?
        );
    } else {
        output::print(format_args!("{}", report.table()));
    }
    output::written()
}

async fn measure_all(args: &Args) -> Result<Report> {
    let wants = |scenario| args.scenarios.is_empty() || args.scenarios.contains(&scenario);
    check_descriptors(args)?;
    let progress = Progress::new();
    let home = Home::new(
        args.data.as_deref(),
        args.url.as_deref(),
        args.token.as_deref(),
        database(args)?,
    )?;
    let mut report = Report::new(&home);

    progress.show("fdatasync");
    report.fdatasync = baseline::fdatasync(home.disk()).await?;
    // The two scenarios that need a fresh process come first: nothing is cached and no freed memory is reused.
    if wants(Scenario::Dispatch) {
        report.dispatch =
            Some(dispatch::measure(&home, args.seconds, &report.fdatasync, &progress).await?);
    }
    if wants(Scenario::Memory) {
        if home.is_in_process() {
            report.memory =
                Some(memory::measure(&home, args.in_flight, args.open_runs, &progress).await?);
        } else {
            report.skip("memory", "the server is another process; run without --url");
        }
    }
    if wants(Scenario::Conductor) {
        if report.echo.is_none() {
            report.echo = Some(echo(args, &progress).await?);
        }
        let echo = report.echo.as_ref();
        report.conductor = Some(conductor::measure(&home, args, echo, &progress).await?);
    }
    if wants(Scenario::ConductorSdk) {
        if report.echo.is_none() {
            report.echo = Some(echo(args, &progress).await?);
        }
        let echo = report.echo.as_ref();
        let measured = conductor::sdk::measure(&home, args, echo, &progress).await?;
        report.conductor_sdk = Some(measured);
    }
    if wants(Scenario::Throughput) {
        // Directly before the scenario that it is compared with: on a shared machine a minute makes a difference.
        report.echo = Some(echo(args, &progress).await?);
        report.throughput =
            Some(throughput::measure(&home, args, report.echo.as_ref(), &progress).await?);
    }
    if wants(Scenario::Sdk) {
        if report.echo.is_none() {
            report.echo = Some(echo(args, &progress).await?);
        }
        report.sdk = Some(sdk::measure(&home, args, report.echo.as_ref(), &progress).await?);
    }
    if wants(Scenario::Stored) {
        if home.is_in_process() {
            report.stored =
                Some(stored::measure(&home, args.in_flight, args.stored_runs, &progress).await?);
        } else {
            report.skip(
                "stored",
                "it compares two stores of its own; run without --url",
            );
        }
    }
    if wants(Scenario::LongRun) {
        report.long_run =
            Some(long_run::measure(&home, args.seconds, args.events, &progress).await?);
    }
    if wants(Scenario::Cluster) {
        if home.database().is_some() {
            report.cluster = Some(cluster::measure(&home, args, &progress).await?);
        } else if !args.scenarios.is_empty() {
            bail!("the cluster scenario needs a database: --store postgres://user@host/database");
        }
    }
    progress.clear();
    Ok(report)
}

/// Servers of the cluster scenario unless set.
const SERVERS_DEFAULT: u64 = 3;

/// Returns the address of the database and the number of servers on it. Other scenarios than `cluster` have one server unless the
/// number is set.
fn database(args: &Args) -> Result<Option<(postgres::Options, usize)>> {
    let Some(url) = &args.store else {
        return Ok(None);
    };
    let StoreAddress::Postgres(options) = crate::config::parse_place(url)? else {
        bail!("--store takes the address of a PostgreSQL database; without it, SQLite is measured");
    };
    let is_cluster = args.scenarios == [Scenario::Cluster];
    let default = if is_cluster { SERVERS_DEFAULT } else { 1 };
    let servers = usize::try_from(args.servers.unwrap_or(default)).unwrap_or(1);
    Ok(Some((*options, servers)))
}

async fn echo(args: &Args, progress: &Progress) -> Result<baseline::Echo> {
    progress.show("echo server");
    let seconds = Duration::from_secs_f64((args.seconds as f64 / 2.0).min(ECHO_SECONDS_MAX));
    baseline::echo(args.in_flight, seconds).await
}

/// Checks the limit on open files first. Both ends of each connection are in this process.
fn check_descriptors(args: &Args) -> Result<()> {
    let Some(limit) = crate::descriptors::limit() else {
        return Ok(());
    };
    let servers = args.servers.unwrap_or(SERVERS_DEFAULT);
    let servers = args.store.as_ref().map_or(1, |_| servers);
    let mut connections = load::CONNECTIONS_PER_WORKFLOW * args.in_flight * servers;
    if args.scenarios.is_empty() || args.scenarios.contains(&Scenario::Conductor) {
        connections = connections.max(conductor::IDLE_WORKERS);
    }
    let needed = 2 * connections + DESCRIPTORS_SPARE;
    if needed > limit {
        bail!(
            "this bench with {} in flight needs about {needed} open files and this process may have {limit}: lower --in-flight or raise `ulimit -n`",
            args.in_flight
        );
    }
    Ok(())
}

/// The address of servers in this process.
const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
