//! The Python environment of the client tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

/// The Python clients that the suites are written for.
const DURABLE_WORKFLOW: &str = "2.12.0";
const CONDUCTOR: &str = "2.0.0";

/// Creates an environment with the published Python clients, once. Returns its interpreter.
pub(crate) fn environment(root: &Path) -> Result<PathBuf> {
    let folder = root.join(".test-env/python");
    let python = folder.join("bin/python");
    let stamp = folder.join(format!(
        "durable-workflow-{DURABLE_WORKFLOW}-conductor-{CONDUCTOR}"
    ));
    if stamp.exists() {
        return Ok(python);
    }
    println!(
        "==> making {} with durable-workflow {DURABLE_WORKFLOW} and conductor-python {CONDUCTOR}",
        folder.display()
    );
    let make = || {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder))
    };
    if make().is_err() {
        // Debian has venv in a separate package.
        run(Command::new("apt-get").args(["install", "-y", "python3-venv"]))
            .context("python3 with its venv module is needed for the client tests")?;
        make()?;
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
    // The package requires a newer certifi than some indexes have, so its dependencies are listed here and not resolved.
    pip(&["httpx", "certifi", "fastavro"])?;
    pip(&[
        "--no-deps",
        &format!("durable-workflow=={DURABLE_WORKFLOW}"),
    ])?;
    pip(&[&format!("conductor-python=={CONDUCTOR}")])?;
    std::fs::write(&stamp, "").context("the environment could not be marked as complete")?;
    Ok(python)
}
