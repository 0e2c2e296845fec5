//! PostgreSQL for the tests: installed if it is missing, and one cluster for all test binaries of a run.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use longhaul_test_postgres::{Cluster, Setup, is_installed};

use crate::run;

const NEEDED: &str = "PostgreSQL 15 or later is needed for the tests";

/// Installs PostgreSQL if it is missing.
pub(crate) fn install() -> Result<()> {
    if is_installed() {
        return Ok(());
    }
    println!("==> installing PostgreSQL");
    // The list of packages may be old or empty on a fresh machine. If it cannot be read, the installation fails and reports why.
    let _ = run(Command::new("apt-get").arg("update"));
    run(Command::new("apt-get")
        .args(["install", "-y", "--no-install-recommends", "postgresql"])
        // The package asks for a time zone otherwise.
        .env("DEBIAN_FRONTEND", "noninteractive"))
    .context(NEEDED)?;
    ensure!(is_installed(), NEEDED);
    Ok(())
}

/// Starts a cluster. It ends when it is dropped, or with this process.
pub(crate) fn start() -> Result<Cluster> {
    Cluster::start_with(Setup::default()).context("PostgreSQL could not be started for the tests")
}
