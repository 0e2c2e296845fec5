//! What compilers do not check: which crate may depend on which, that every reason is explained, that no test is switched off.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::requirements;

/// Arrows point one way: `longhaul → server → host → store → engine → protocol`. The SDK stands beside the server on the
/// protocol alone; `embedded` joins the two in one process.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("engine", &["protocol"]),
    ("store", &["engine", "protocol"]),
    ("host", &["engine", "store", "protocol"]),
    ("server", &["host", "protocol"]),
    (
        "longhaul",
        &["store", "host", "server", "protocol", "sdk", "examples"],
    ),
    ("macros", &[]),
    ("sdk", &["protocol", "macros"]),
    ("examples", &["sdk"]),
    ("embedded", &["sdk", "server", "host", "store", "protocol"]),
];

pub(crate) fn check(root: &Path) -> Result<()> {
    println!("==> tidy");
    let mut wrong = Vec::new();
    dependency_directions(root, &mut wrong)?;
    documented_reasons(root, &mut wrong)?;
    switched_off_tests(root, &mut wrong)?;
    wrong.extend(requirements::missing_tests(root)?);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!(
        "tidy found {} thing(s):\n  {}",
        wrong.len(),
        wrong.join("\n  ")
    )
}

fn dependency_directions(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let allowed: BTreeMap<&str, &[&str]> = MAY_DEPEND_ON.iter().copied().collect();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml"))?;
        let Some(allowed) = allowed.get(name.as_str()) else {
            wrong.push(format!(
                "crates/{name} is not in tidy's table of dependency directions"
            ));
            continue;
        };
        // Tests may reach further down than the product.
        let product = manifest
            .split("[dev-dependencies]")
            .next()
            .unwrap_or_default();
        for line in product
            .lines()
            .filter_map(|line| line.strip_prefix("longhaul-"))
        {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if !allowed.contains(&dependency) {
                wrong.push(format!(
                    "crates/{name} must not depend on longhaul-{dependency}"
                ));
            }
        }
    }
    Ok(())
}

fn documented_reasons(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let source = std::fs::read_to_string(root.join("crates/protocol/src/reason.rs"))?;
    let documents = std::fs::read_to_string(root.join("docs/reasons.md"))
        .context("docs/reasons.md explains every reason")?;
    for line in source
        .lines()
        .filter(|line| line.trim_end().ends_with(" retry,") || line.trim_end().ends_with(" fatal,"))
    {
        let reason = line.split('"').nth(1).unwrap_or_default();
        if !documents.contains(&format!("`{reason}`")) {
            wrong.push(format!("docs/reasons.md does not explain `{reason}`"));
        }
    }
    Ok(())
}

fn switched_off_tests(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    // Spelt in two halves, so that this line does not find itself.
    let attribute = concat!("#[", "ignore");
    for file in rust_files(root)? {
        if std::fs::read_to_string(&file)?.contains(attribute) {
            wrong.push(format!(
                "{} switches a test off",
                file.strip_prefix(root).unwrap_or(&file).display()
            ));
        }
    }
    Ok(())
}

/// Every Rust file of the project.
pub(crate) fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        check(root).unwrap();
    }
}
