//! The binary: flags, wiring and output. What it starts lives in the crates below it.

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
mod stop;

/// Requests are many short-lived allocations on several threads, which the system's allocator spends a tenth of the time on.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One durable-execution server for Durable Workflow and Conductor workers: work that is accepted is finished, once, whatever
/// crashes.
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
    /// Start a server with sample workers and a few runs, so that there is something to look at.
    Demo(demo::Args),
    /// Replay exported histories: against the example workflows, or for their soundness alone.
    Replay(replay::Args),
    /// Measure this machine: workflows per second and latencies, beside an echo server and the disk.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Bench(args) => bench::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain says what was tried and why it failed; a stack trace would help nobody.
            output::complain(format!("longhaul: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
