//! The binary: flags, wiring and output. The work is done by the crates below it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod config;
mod demo;
mod descriptors;
mod logs;
mod output;
mod replay;
mod runtime;
mod serve;
mod signals;
mod store;

/// Requests make many short-lived allocations on several threads. The system's allocator used a tenth of the time for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable-execution server for Durable Workflow workers: accepted work is finished, also after a crash.
#[derive(Parser)]
#[command(name = "longhaul", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    Serve(Box<config::ServeArgs>),
    /// Start a server with example workers and a few runs.
    Demo(demo::Args),
    /// Replay exported histories with the example workflows, or check that they are valid.
    Replay(replay::Args),
    /// Check the data of a server, or copy it to another store.
    #[command(subcommand)]
    Store(store::Command),
    /// Measure workflows per second and latencies, compared with an echo server and the disk.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Store(command) => return store::run(&command),
    };
    ended(outcome.map(|()| ExitCode::SUCCESS), ExitCode::FAILURE)
}

/// Returns the code of the process, after writing why it failed.
fn ended(outcome: anyhow::Result<ExitCode>, failed: ExitCode) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // The error chain names the step and the cause. A stack trace would add nothing.
            output::complain(format!("longhaul: {error:#}"));
            failed
        }
    }
}
