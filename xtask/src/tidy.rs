//! `cargo xtask tidy` checks what the compiler does not. Each check is one file in `tidy/` with tests on small sample trees.

use std::path::Path;

use anyhow::{Result, bail};

use crate::requirements;

mod dependencies;
mod glossary;
mod imports;
mod migrations;
mod reasons;
mod references;
mod siblings;
mod switched_off_tests;
mod tree;
mod words;

pub(crate) use tree::Tree;

/// Checks that a part of the tree does not pass yet, as `check path`. Delete an entry when its part passes; `tidy` prints the
/// entries that are no longer needed.
const NOT_YET: &[&str] = &[];

/// One mistake.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file or folder, relative to the root.
    pub(crate) path: String,
    /// The line, from 1; 0 if the finding is about the whole file or folder.
    pub(crate) line: usize,
    /// What is wrong and how to fix it.
    pub(crate) message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

/// All checks by name.
const CHECKS: &[(&str, Check)] = &[
    ("dependencies", dependencies::check),
    ("imports", imports::check),
    ("migrations", migrations::check),
    ("reasons", reasons::check),
    ("switched-off-tests", switched_off_tests::check),
    ("siblings", siblings::check),
    ("references", references::check),
    ("glossary", glossary::check),
    ("words", words::check),
];

pub(crate) fn check(root: &Path) -> Result<()> {
    println!("==> tidy");
    let tree = Tree::load(root)?;
    let mut wrong = Vec::new();
    let mut needed = vec![false; NOT_YET.len()];
    for (name, check) in CHECKS {
        for finding in check(&tree) {
            match NOT_YET
                .iter()
                .position(|entry| switches_off(entry, name, &finding.path))
            {
                Some(place) => needed[place] = true,
                None if finding.line == 0 => {
                    wrong.push(format!("{}: {} [{name}]", finding.path, finding.message));
                }
                None => wrong.push(format!(
                    "{}:{}: {} [{name}]",
                    finding.path, finding.line, finding.message
                )),
            }
        }
    }
    for (entry, _) in NOT_YET.iter().zip(&needed).filter(|(_, needed)| !**needed) {
        println!("tidy: NOT_YET has \"{entry}\", which is no longer needed");
    }
    wrong.extend(requirements::missing_tests(root, &tree)?);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!(
        "tidy found {} mistake(s):\n  {}",
        wrong.len(),
        wrong.join("\n  ")
    )
}

/// Returns whether a `NOT_YET` entry covers a finding of that check at that path.
fn switches_off(entry: &str, check: &str, path: &str) -> bool {
    let Some((name, part)) = entry.split_once(' ') else {
        return false;
    };
    let inside = path
        .strip_prefix(part)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || part.ends_with('/'));
    name == check && inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        check(root).unwrap();
    }

    #[test]
    fn an_entry_switches_off_one_check_for_one_part() {
        let entry = "words crates/host";
        assert!(switches_off(entry, "words", "crates/host"));
        assert!(switches_off(entry, "words", "crates/host/src/lib.rs"));
        assert!(!switches_off(entry, "words", "crates/hosting/src/lib.rs"));
        assert!(!switches_off(entry, "siblings", "crates/host/src"));
    }

    #[test]
    fn every_entry_names_a_check() {
        for entry in NOT_YET {
            let name = entry.split(' ').next().unwrap();
            assert!(CHECKS.iter().any(|(check, _)| *check == name), "{entry}");
        }
    }
}
