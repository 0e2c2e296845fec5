//! `longhaul store`: checks the data of a server, and copies it to another store. The work is done by the store crate.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use longhaul_store::inspection::{self, Finding, Report, Totals};
use longhaul_store::transfer::{self, Progress, Stage, Table};
use serde_json::json;

use crate::config::{StoreArgs, parse_place};
use crate::output::{self, say};

/// Between two lines about the progress. A short command writes none.
const PROGRESS_PAUSE: Duration = Duration::from_secs(3);

/// The check found problems.
const PROBLEMS: u8 = 1;

/// The store could not be checked.
const NOT_CHECKED: u8 = 2;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check the schema and the rows of a store; works beside a running server, and only reads
    Check(CheckArgs),
    /// Copy everything of a stopped server into an empty store, of the same kind or the other
    Copy(CopyArgs),
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Print a JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct CopyArgs {
    /// The store to read: a data directory, sqlite:PATH or postgres://user:password@host/database
    from: String,

    /// The store to fill, in the same form; it must be empty
    to: String,
}

/// Runs the command. A check ends with 0 if the store is right, with 1 if there are problems and with 2 if it could not be checked. A
/// copy ends with 0 or 1.
pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::Check(args) => crate::ended(check(args), ExitCode::from(NOT_CHECKED)),
        Command::Copy(args) => crate::ended(copy(args), ExitCode::FAILURE),
    }
}

fn check(args: &CheckArgs) -> Result<ExitCode> {
    let address = args.store.address()?;
    let mut pace = Pace::default();
    let mut report = |report: Report| match report {
        Report::Finding(finding) if args.json => say!("{}", as_json(&finding)),
        Report::Finding(finding) => show(&finding),
        Report::Progress(totals) => pace.show(|| counts(&totals)),
    };
    let runtime = crate::runtime::start()?;
    let totals = runtime
        .block_on(inspection::check(&address, &mut report))
        .with_context(|| format!("the store {address} cannot be checked"))?;
    if args.json {
        say!(
            "{}",
            json!({
                "runs": totals.runs,
                "tasks": totals.tasks,
                "sessions": totals.sessions,
                "documents": totals.documents,
                "problems": totals.problems,
            })
        );
    } else {
        say!("{}: {} problems", counts(&totals), totals.problems);
    }
    output::written()?;
    Ok(if totals.problems == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(PROBLEMS)
    })
}

fn counts(totals: &Totals) -> String {
    format!(
        "checked {} runs, {} tasks, {} sessions, {} documents",
        totals.runs, totals.tasks, totals.sessions, totals.documents
    )
}

/// Prints a problem on one line: its kind, its run, its row and a sentence. Control characters of stored text are escaped.
fn show(finding: &Finding) {
    let run_id = finding.run_id.as_deref().unwrap_or("-");
    let line = format!(
        "{} run={run_id} {}: {}",
        finding.problem.kind, finding.row, finding.problem.detail
    );
    let shown: String = line
        .chars()
        .flat_map(|character| {
            let escaped = character.is_control().then(|| character.escape_default());
            let plain = (!character.is_control()).then_some(character);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect();
    say!("{shown}");
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({
        "problem": finding.problem.kind.as_str(),
        "run_id": finding.run_id,
        "row": finding.row,
        "detail": finding.problem.detail,
    })
}

fn copy(args: &CopyArgs) -> Result<ExitCode> {
    let from = parse_place(&args.from).context("the source")?;
    let to = parse_place(&args.to).context("the target")?;
    let mut pace = Pace::default();
    let progress = |progress: Progress| {
        pace.show(|| {
            let word = match progress.stage {
                Stage::Copy => "copied",
                Stage::Verify => "verified",
            };
            format!("{word} {} {}", progress.rows, progress.table)
        });
    };
    let runtime = crate::runtime::start()?;
    let copied = runtime
        .block_on(transfer::copy(&from, &to, progress))
        .with_context(|| format!("{from} was not copied to {to}"))?;
    for table in Table::ALL {
        let checksum = copied.of(table);
        say!("{} {table}, checksum {:032x}", checksum.rows, checksum.sum);
    }
    say!(
        "copied {} rows from {from} to {to} and verified them",
        copied.rows()
    );
    output::written()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes lines about the progress to standard error, not too often.
struct Pace {
    next: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            next: Instant::now() + PROGRESS_PAUSE,
        }
    }
}

impl Pace {
    fn show(&mut self, line: impl FnOnce() -> String) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + PROGRESS_PAUSE;
            // A line that cannot be written is dropped.
            let _unread = writeln!(io::stderr(), "{} …", line());
        }
    }
}
