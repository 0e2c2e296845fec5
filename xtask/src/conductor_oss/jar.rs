//! The server as a file. Maven downloads it, once.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The version that the scenarios are compared with.
pub(crate) const VERSION: &str = "3.32.3";

/// Returns the server in this folder. Downloads it if it is not there yet.
pub(crate) fn download(folder: &Path) -> Result<PathBuf> {
    let name = format!("conductor-server-{VERSION}-boot.jar");
    let jar = folder.join(&name);
    if jar.exists() {
        return Ok(jar);
    }
    let artifact = format!("org.conductoross:conductor-server:{VERSION}:jar:boot");
    println!("==> Maven downloads {artifact} (460 MB)");
    // A file in its final place is complete, also after a download that was interrupted.
    let unfinished = folder.join("unfinished");
    let status = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "dependency:copy"])
        .arg(format!("-Dartifact={artifact}"))
        .arg(format!("-DoutputDirectory={}", unfinished.display()))
        // A repeated copy must replace a part of the file.
        .arg("-Dmdep.overWriteReleases=true")
        .current_dir(folder)
        .status();
    let by_hand = format!("or get {name} in another way and name it with --jar");
    match status {
        Ok(status) if status.success() => {}
        Ok(_) => bail!("Maven could not download {artifact}: see above, {by_hand}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("Maven is not installed: install the package `maven`, {by_hand}")
        }
        Err(error) => return Err(error).context("mvn could not be run"),
    }
    std::fs::rename(unfinished.join(&name), &jar)
        .with_context(|| format!("Maven made no file {name}"))?;
    Ok(jar)
}
