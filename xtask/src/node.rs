//! The JavaScript environment of the client tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// The client that the suite is written for.
const CONDUCTOR: &str = "4.0.0";

/// The oldest node that the client runs on.
const NODE_MAJOR_MIN: u32 = 18;

/// Installs the published client into a folder, once. Returns the folder.
pub(crate) fn environment(root: &Path) -> Result<PathBuf> {
    let folder = root.join(".test-env/node");
    let stamp = folder.join(format!("conductor-{CONDUCTOR}"));
    if stamp.exists() && has_node() {
        return Ok(folder);
    }
    println!(
        "==> making {} with @io-orkes/conductor-javascript {CONDUCTOR}",
        folder.display()
    );
    if !has_node() {
        install_node()?;
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("{} cannot be removed", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("{} cannot be made", folder.display()))?;
    run(Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund"])
        .arg(format!("@io-orkes/conductor-javascript@{CONDUCTOR}"))
        // Without it npm looks for a package in the folders above.
        .arg("--prefix")
        .arg(&folder)
        .current_dir(&folder))?;
    std::fs::write(&stamp, "").context("the environment could not be marked as complete")?;
    Ok(folder)
}

/// Returns whether node is new enough and npm is installed.
fn has_node() -> bool {
    let npm = Command::new("npm").arg("--version").output();
    node_major().is_some_and(|major| major >= NODE_MAJOR_MIN)
        && npm.is_ok_and(|output| output.status.success())
}

fn node_major() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok()?;
    parse_major(&String::from_utf8_lossy(&output.stdout))
}

/// `v20.20.2` → 20.
fn parse_major(version: &str) -> Option<u32> {
    version
        .trim()
        .strip_prefix('v')?
        .split('.')
        .next()?
        .parse()
        .ok()
}

fn install_node() -> Result<()> {
    // The list of packages may be old or empty on a fresh machine. If it cannot be read, the installation fails and reports why.
    let _ = run(Command::new("apt-get").arg("update"));
    run(Command::new("apt-get").args([
        "install",
        "-y",
        "--no-install-recommends",
        "nodejs",
        "npm",
    ]))
    .with_context(|| {
        format!("node {NODE_MAJOR_MIN} or later with npm is needed for the client tests")
    })?;
    if !has_node() {
        bail!("node {NODE_MAJOR_MIN} or later with npm is needed for the client tests");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number() {
        for (version, major) in [
            ("v20.20.2\n", Some(20)),
            ("v18.0.0", Some(18)),
            ("20.1.0", None),
            ("", None),
        ] {
            assert_eq!(parse_major(version), major, "{version}");
        }
    }
}
