//! Checks `docs/internal/requirements.md`, which names the test of each founding requirement: every named test exists, no row
//! occurs twice, and no row that this release must satisfy is missing.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tidy::Tree;

/// The groups of requirements that this release must satisfy, with their number of rows.
const ROWS: [(&str, usize); 5] = [("S1", 30), ("S2", 169), ("S3", 90), ("S4", 57), ("S5", 241)];

/// Returns the mistakes of the page.
pub(crate) fn missing_tests(root: &Path, tree: &Tree) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join("docs/internal/requirements.md"))
        .context("docs/internal/requirements.md names the test of every requirement")?;
    let known = test_names(root, tree)?;
    let mut wrong = Vec::new();
    let mut rows = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| S")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(row), Some(tests)) = (cells.first(), cells.get(1)) else {
            continue;
        };
        if !rows.insert((*row).to_owned()) {
            wrong.push(format!("docs/internal/requirements.md names {row} twice"));
        }
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && !tests.starts_with("open") {
            wrong.push(format!(
                "docs/internal/requirements.md names no test for {row}"
            ));
        }
        for test in named {
            let name = test.rsplit("::").next().unwrap_or(test);
            if !known.contains(name) {
                wrong.push(format!(
                    "docs/internal/requirements.md: {row} names `{test}`, which does not exist"
                ));
            }
        }
    }
    for (group, count) in ROWS {
        for number in 1..=count {
            let row = format!("{group}.{number}");
            if !rows.contains(&row) {
                wrong.push(format!(
                    "docs/internal/requirements.md does not mention {row}"
                ));
            }
        }
    }
    Ok(wrong)
}

/// Returns the names of all test functions, and of the scenarios and client programs that tests run.
fn test_names(root: &Path, tree: &Tree) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (path, text) in tree.rust_files() {
        // A test without a harness is a program: its functions are its tests.
        let is_program = path.contains("/tests/") && text.contains("fn main()");
        let mut is_test = false;
        let mut in_scenarios = false;
        for line in text.lines().map(str::trim) {
            if line == "scenarios!(" {
                in_scenarios = true;
            } else if in_scenarios {
                // A scenario is a test per transport.
                names.extend(line.strip_suffix(',').map(str::to_owned));
                in_scenarios = line != ");";
            } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some(name) = line
                .strip_prefix("async fn ")
                .or_else(|| line.strip_prefix("fn "))
            {
                if is_test || is_program {
                    names.insert(name.split(['(', '<']).next().unwrap_or_default().to_owned());
                }
                is_test = false;
            } else if !line.starts_with("#[") && !line.is_empty() {
                is_test = false;
            }
        }
    }
    for (folder, extension) in [
        ("crates/engine/tests/scenarios", "txt"),
        ("crates/longhaul/tests/clients/python", "py"),
    ] {
        for entry in std::fs::read_dir(root.join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|found| found == extension) {
                names.insert(
                    path.file_name()
                        .and_then(|name| name.to_str())
                        .unwrap_or_default()
                        .to_owned(),
                );
            }
        }
    }
    Ok(names)
}
