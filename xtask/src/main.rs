//! Chores written in Rust. `cargo xtask ci` runs all checks, and CI runs the same. A fresh machine needs cargo, a C compiler and
//! Python; everything else is installed by the chores, node and PostgreSQL too.

#![expect(clippy::print_stdout, reason = "a chore reports what it does")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

mod conductor_oss;
mod fresh;
mod node;
mod postgres;
mod python;
mod requirements;
mod test;
mod tidy;

#[derive(Parser)]
#[command(name = "xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything CI checks: format, tidy, clippy, tests with the published clients
    Ci {
        /// Check a clone of the newest commit with empty cargo, pip and npm caches and no build directory
        #[arg(long)]
        fresh: bool,
        /// Run clippy as a part of the test build: quicker with an empty build directory, slower with a full one
        #[arg(long)]
        one_build: bool,
    },
    /// Installs what the tests need, then runs all of them
    Test,
    /// Attacks the built server with mutated requests, like the tests, with a number of requests of your choice
    Attack {
        /// How many requests to send
        #[arg(long, default_value_t = 20_000)]
        requests: u64,
        /// Repeats the run that printed this seed
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Runs scenarios of the Rust Conductor SDK against Conductor OSS 3.32.3; needs Java 21 and Maven, downloads 460 MB
    ConductorOss(conductor_oss::Options),
    /// Checks what the compiler does not: dependencies, references, words, folders, the glossary, requirements
    Tidy,
    /// Licences, bans and sources of dependencies; needs cargo-deny
    Deny,
}

fn main() -> ExitCode {
    match run_chore(&Cli::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line. A backtrace of this program would not help.
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_chore(chore: &Chore) -> Result<()> {
    let root = root()?;
    match chore {
        Chore::Ci { fresh: true, .. } => fresh::check(&root),
        Chore::Ci { one_build, .. } => check(&root, *one_build),
        Chore::Test => test::run(
            &root,
            &test::Clients::install(&root)?,
            test::Compiler::Rustc,
        ),
        Chore::Attack { requests, seed } => attack(&root, *requests, *seed),
        Chore::ConductorOss(options) => conductor_oss::check(&root, options),
        Chore::Tidy => tidy::check(&root),
        Chore::Deny => cargo(&root, &["deny", "check", "licenses", "bans", "sources"]),
    }
}

fn check(root: &Path, one_build: bool) -> Result<()> {
    // Installing waits for the network while the other checks use the processors.
    let folder = root.to_path_buf();
    let clients = std::thread::spawn(move || test::Clients::install(&folder));
    cargo(root, &["fmt", "--all", "--check"])?;
    tidy::check(root)?;
    let compiler = if one_build {
        test::Compiler::Clippy
    } else {
        clippy(root)?;
        test::Compiler::Rustc
    };
    deny_if_installed(root)?;
    let clients = match clients.join() {
        Ok(clients) => clients?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    test::run(root, &clients, compiler)
}

fn clippy(root: &Path) -> Result<()> {
    cargo(
        root,
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ],
    )
}

fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .map(Path::to_path_buf)
        .context("xtask lives one folder below the workspace")
}

fn attack(root: &Path, requests: u64, seed: Option<u64>) -> Result<()> {
    let mut command = plain_cargo();
    command
        .args(["test", "--workspace", "--test", "attack"])
        .args(["--", "--nocapture", "mutations::"])
        .env("LONGHAUL_ATTACK_REQUESTS", requests.to_string())
        .current_dir(root);
    if let Some(seed) = seed {
        command.env("LONGHAUL_ATTACK_SEED", seed.to_string());
    }
    run(&mut command)
}

/// Runs cargo-deny if it is installed, and otherwise reports that it did not run. Building it takes minutes.
fn deny_if_installed(root: &Path) -> Result<()> {
    let installed = Command::new(env!("CARGO"))
        .args(["deny", "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if installed {
        cargo(root, &["deny", "check", "licenses", "bans", "sources"])
    } else {
        println!(
            "==> cargo-deny is not installed: licences were NOT checked (cargo install cargo-deny, then cargo xtask deny)"
        );
        Ok(())
    }
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    println!("==> cargo {}", arguments.join(" "));
    run(plain_cargo().args(arguments).current_dir(root))
}

/// Returns cargo with the environment of a shell. `cargo run` describes the package of the chore in variables that some build
/// scripts read, so dependencies would be built again whenever chores and plain cargo alternate.
fn plain_cargo() -> Command {
    let mut command = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let set_by_cargo = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_"];
        if set_by_cargo.iter().any(|start| text.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command
}

fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command
        .status()
        .with_context(|| format!("{shown} could not be run"))?;
    if !status.success() {
        bail!("{shown} failed");
    }
    Ok(())
}
