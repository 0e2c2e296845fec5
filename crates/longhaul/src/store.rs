//! `longhaul store`: checks the data of a server, and copies it to another store. The work is done by the store crate.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use longhaul_store::inspection::{self, Finding, Report, Totals};
use longhaul_store::transfer::{self, Progress, Stage, Table};
use serde_json::json;

use crate::config::{StoreArgs, parse_place};
use crate::output::{self, say};

/// Between two lines about the progress. A short command writes none.
const PROGRESS_PAUSE: Duration = Duration::from_secs(3);

/// Between two changes of the line on a terminal.
const TERMINAL_PAUSE: Duration = Duration::from_millis(200);

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
        Report::Progress(totals) => pace.show(|| counts(&totals)),
        Report::Finding(finding) => {
            pace.end();
            if args.json {
                say!("{}", as_json(&finding));
            } else {
                show(&finding);
            }
        }
    };
    let runtime = crate::runtime::start()?;
    let totals = runtime
        .block_on(inspection::check(&address, &mut report))
        .with_context(|| format!("the store {address} cannot be checked"))?;
    pace.end();
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
        .block_on(unless_stopped(transfer::copy(&from, &to, progress)))
        .with_context(|| format!("{from} was not copied to {to}"))?;
    pace.end();
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

/// Ends a copy if this process is asked to stop. Its transaction is dropped, so the target has no rows.
async fn unless_stopped<T>(
    copy: impl Future<Output = Result<T, longhaul_store::Error>>,
) -> Result<T> {
    tokio::select! {
        copied = copy => Ok(copied?),
        () = crate::signals::asked_to_stop() => bail!(STOPPED),
    }
}

const STOPPED: &str = "stopped by a signal: the target has no rows, the source is unchanged, and the copy can be started again";

/// Shows the progress on standard error: on a terminal in one line that changes, elsewhere in lines, not too often.
struct Pace {
    pause: Duration,
    next: Instant,
    is_terminal: bool,
    has_line: bool,
}

impl Default for Pace {
    fn default() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let pause = if is_terminal {
            TERMINAL_PAUSE
        } else {
            PROGRESS_PAUSE
        };
        Self {
            pause,
            next: Instant::now() + pause,
            is_terminal,
            has_line: false,
        }
    }
}

impl Pace {
    fn show(&mut self, line: impl FnOnce() -> String) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + self.pause;
        // A line that cannot be written is dropped.
        let _unread = if self.is_terminal {
            self.has_line = true;
            write!(io::stderr(), "\r{CLEAR_LINE}{} …", line())
        } else {
            writeln!(io::stderr(), "{} …", line())
        };
    }

    /// Removes the line, before other output.
    fn end(&mut self) {
        if std::mem::take(&mut self.has_line) {
            let _unread = write!(io::stderr(), "\r{CLEAR_LINE}");
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.end();
    }
}

/// Clears a terminal from the cursor to the end of the line.
const CLEAR_LINE: &str = "\x1b[K";
