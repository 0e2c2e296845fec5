//! Runs `pgbench` on a database of its own, as a measure of what the database server can do with small durable transactions.

use anyhow::{Context, Result, bail};
use longhaul_store::postgres::{Options, Scratch};
use serde::Serialize;
use tokio::process::Command;

const CLIENTS: usize = 16;

/// 1,000,000 accounts, so that clients seldom wait for each other's rows.
const SCALE: usize = 10;

#[derive(Debug, Serialize)]
pub(in super::super) struct Pgbench {
    pub(in super::super) clients: usize,
    /// Transactions of the built-in script `simple-update`.
    pub(in super::super) per_second: f64,
}

/// Returns `None` if pgbench is not installed.
pub(super) async fn measure(beside: &Options, seconds: u64) -> Result<Option<Pgbench>> {
    let is_installed = Command::new("pgbench").arg("--version").output().await;
    if !is_installed.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let database = Scratch::create(beside).await?;
    let measured = run(&database, seconds).await;
    database.drop_database().await?;
    Ok(Some(Pgbench {
        clients: CLIENTS,
        per_second: measured?,
    }))
}

async fn run(database: &Scratch, seconds: u64) -> Result<f64> {
    let scale = SCALE.to_string();
    pgbench(database, &["--initialize", "--quiet", "--scale", &scale]).await?;
    let (clients, seconds) = (CLIENTS.to_string(), seconds.to_string());
    let arguments = [
        "--builtin=simple-update",
        "--protocol=prepared",
        "--jobs=2",
        "--client",
        &clients,
        "--time",
        &seconds,
    ];
    let output = pgbench(database, &arguments).await?;
    transactions_per_second(&output).with_context(|| format!("pgbench printed no rate: {output}"))
}

async fn pgbench(database: &Scratch, arguments: &[&str]) -> Result<String> {
    let output = Command::new("pgbench")
        .args(arguments)
        .envs(database.options().environment())
        .output()
        .await
        .context("pgbench could not be run")?;
    if !output.status.success() {
        bail!("pgbench: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Finds `tps = 1234.5 (without initial connection time)`.
fn transactions_per_second(output: &str) -> Option<f64> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_in_the_output() {
        let output = "scaling factor: 10\nlatency average = 3.1 ms\ntps = 5123.25 (without initial connection time)\n";
        assert_eq!(transactions_per_second(output), Some(5123.25));
        assert_eq!(transactions_per_second("no rate"), None);
    }
}
