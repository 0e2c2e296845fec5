//! `cargo xtask ci --fresh`: runs the checks as on a machine that has never built the project.
//!
//! A warm cache hides missing install steps: crates of other platforms, wheels, packages. So the newest commit is cloned into a
//! temporary folder and checked there with empty caches. Settings of cargo (a mirror, credentials) are kept: they belong to the
//! machine, not to the project.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{plain_cargo, run};

/// Files of `CARGO_HOME` that are settings and not caches.
const CARGO_SETTINGS: [&str; 4] = ["config.toml", "config", "credentials.toml", "credentials"];

pub(crate) fn check(root: &Path) -> Result<()> {
    let began = Instant::now();
    let folder = std::env::temp_dir().join(format!("longhaul-fresh-{}", std::process::id()));
    println!("==> fresh check in {}", folder.display());
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    warn_about_uncommitted_changes(root)?;
    let checkout = folder.join("checkout");
    run(Command::new("git")
        .args(["clone", "--quiet"])
        .arg(root)
        .arg(&checkout))?;
    let cargo_home = folder.join("cargo-home");
    copy_cargo_settings(&cargo_home)?;
    let outcome = run(plain_cargo()
        .args(["xtask", "ci", "--one-build"])
        .current_dir(&checkout)
        .env("CARGO_HOME", &cargo_home)
        .env("PIP_CACHE_DIR", folder.join("pip-cache"))
        .env("npm_config_cache", folder.join("npm-cache"))
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("LONGHAUL_TEST_PYTHON")
        .env_remove("LONGHAUL_TEST_NODE"));
    println!("==> the fresh check took {} s", began.elapsed().as_secs());
    outcome.with_context(|| format!("the fresh check in {} failed", folder.display()))?;
    fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be removed", folder.display()))
}

/// Prints a warning if there are uncommitted changes, because only commits are cloned.
fn warn_about_uncommitted_changes(root: &Path) -> Result<()> {
    let output = Command::new("git")
        .args(["status", "--porcelain"])
        .current_dir(root)
        .output()
        .context("git could not be run")?;
    if !output.stdout.is_empty() {
        println!("==> there are uncommitted changes, which are NOT checked");
    }
    Ok(())
}

fn copy_cargo_settings(to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("{} cannot be made", to.display()))?;
    let Some(from) = cargo_home() else {
        return Ok(());
    };
    for name in CARGO_SETTINGS {
        let file = from.join(name);
        if file.is_file() {
            fs::copy(&file, to.join(name))
                .with_context(|| format!("{} cannot be copied", file.display()))?;
        }
    }
    Ok(())
}

fn cargo_home() -> Option<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Some(home.into());
    }
    std::env::home_dir().map(|home| home.join(".cargo"))
}
