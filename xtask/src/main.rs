//! Chores written in Rust: `cargo xtask ci` is all of it, and what CI runs. A fresh machine needs cargo, a C compiler and
//! Python; everything else is installed by name.

#![expect(clippy::print_stdout, reason = "a chore says what it does")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

mod requirements;
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
    Ci,
    /// Installs what the tests need, then runs all of them
    Test,
    /// What compilers do not check: dependency directions, documented reasons, requirements
    Tidy,
    /// Licences, bans and sources of dependencies; needs cargo-deny
    Deny,
}

fn main() -> Result<()> {
    let root = root()?;
    match Cli::parse().chore {
        Chore::Ci => {
            cargo(&root, &["fmt", "--all", "--check"])?;
            tidy::check(&root)?;
            cargo(
                &root,
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--quiet",
                    "--",
                    "-D",
                    "warnings",
                ],
            )?;
            deny_if_installed(&root)?;
            test(&root)
        }
        Chore::Test => test(&root),
        Chore::Tidy => tidy::check(&root),
        Chore::Deny => cargo(&root, &["deny", "check", "licenses", "bans", "sources"]),
    }
}

fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .map(Path::to_path_buf)
        .context("xtask lives one folder below the workspace")
}

fn test(root: &Path) -> Result<()> {
    let python = python_environment(root)?;
    println!("==> cargo test --workspace");
    let began = Instant::now();
    let status = plain_cargo()
        .args(["test", "--workspace"])
        .env("LONGHAUL_TEST_PYTHON", &python)
        .current_dir(root)
        .status()
        .context("cargo could not be run")?;
    println!("==> tests took {} s", began.elapsed().as_secs());
    if !status.success() {
        bail!("tests failed");
    }
    Ok(())
}

/// A private environment with the published Python client; made once and kept.
fn python_environment(root: &Path) -> Result<PathBuf> {
    let folder = root.join(".test-env/python");
    let python = folder.join("bin/python");
    let stamp = folder.join(format!("durable-workflow-{DURABLE_WORKFLOW}"));
    if stamp.exists() {
        return Ok(python);
    }
    println!(
        "==> making {} with durable-workflow {DURABLE_WORKFLOW}",
        folder.display()
    );
    if run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&folder))
    .is_err()
    {
        // Debian keeps venv in a package of its own.
        run(Command::new("apt-get").args(["install", "-y", "python3-venv"]))
            .context("python3 with its venv module is needed for the client tests")?;
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder))?;
    }
    let pip = |arguments: &[&str]| {
        run(Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(arguments))
    };
    // The package asks for a newer certifi than some indexes have, so its dependencies are named here and not resolved.
    pip(&["httpx", "certifi", "fastavro"])?;
    pip(&[
        "--no-deps",
        &format!("durable-workflow=={DURABLE_WORKFLOW}"),
    ])?;
    std::fs::write(&stamp, "").context("the environment could not be marked as complete")?;
    Ok(python)
}

/// The Python client the suite is written for.
const DURABLE_WORKFLOW: &str = "2.12.0";

/// cargo-deny takes minutes to build, so it is used where it is there and its absence is said.
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

/// Cargo as a person would call it: `cargo run` tells chores about their package in the environment, some build scripts look at
/// these variables, and dependencies would be built again whenever chores and plain cargo take turns.
fn plain_cargo() -> Command {
    let mut command = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let told_by_cargo = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_"];
        if told_by_cargo.iter().any(|start| text.starts_with(start)) {
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
