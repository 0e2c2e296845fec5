//! Every type that `docs/glossary.md` names exists in the crate that it names.

use super::{Finding, Tree};

const PAGE: &str = "docs/glossary.md";

/// The column of the Rust type, counted from 0.
const TYPE_COLUMN: usize = 2;

/// Words that stand before the name of an item.
const ITEMS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "fn "];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Finding::new(PAGE, 0, "the glossary is missing")];
    };
    let mut findings = Vec::new();
    for (number, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let is_entry =
            line.starts_with('|') && !line.contains("---") && !line.contains("Rust type");
        let Some(cell) = cells.get(TYPE_COLUMN).filter(|_| is_entry) else {
            continue;
        };
        let types: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if types.is_empty() {
            findings.push(Finding::new(
                PAGE,
                number + 1,
                "the entry names no Rust type",
            ));
        }
        for path in types {
            if !exists(tree, path) {
                let message = format!("names `{path}`, which does not exist");
                findings.push(Finding::new(PAGE, number + 1, message));
            }
        }
    }
    findings
}

/// Returns whether the crate defines an item with the last name of the path.
fn exists(tree: &Tree, path: &str) -> bool {
    let mut parts = path.split("::");
    let (Some(krate), Some(name)) = (parts.next(), parts.last()) else {
        return false;
    };
    let Some(folder) = krate.strip_prefix("longhaul_") else {
        return false;
    };
    let source = format!("crates/{}/src/", folder.replace('_', "-"));
    tree.rust_files()
        .filter(|(file, _)| file.starts_with(&source))
        .flat_map(|(_, text)| text.lines())
        .any(|line| defines(line.trim(), name))
}

/// Returns whether a line defines the item. Lists of id types inside a macro have one name per line.
fn defines(line: &str, name: &str) -> bool {
    line == name
        || ITEMS.iter().any(|item| {
            line.split_once(item).is_some_and(|(before, after)| {
                let ends = after.strip_prefix(name).is_some_and(|rest| {
                    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                });
                ends && !before.contains("//")
                    && (before.is_empty() || before.ends_with([' ', ')']))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(cell: &str) -> Vec<String> {
        let page = format!(
            "| word | meaning | Rust type | wire |\n| --- | --- | --- | --- |\n| run | One. | {cell} | |\n"
        );
        let tree = Tree::from([
            (PAGE, page.as_str()),
            (
                "crates/engine/src/run.rs",
                "pub struct Run {\n}\npub(crate) fn start() {}\n// struct Ghost\n    RunId\n",
            ),
        ]);
        check(&tree)
            .into_iter()
            .map(|found| found.message)
            .collect()
    }

    #[test]
    fn types_functions_and_listed_ids_are_found() {
        assert!(messages("`longhaul_engine::Run`").is_empty());
        assert!(messages("`longhaul_engine::run::Run`, `longhaul_engine::start`").is_empty());
        assert!(messages("`longhaul_engine::RunId`").is_empty());
    }

    #[test]
    fn names_that_do_not_exist_are_reported() {
        assert_eq!(messages("`longhaul_engine::Ru`").len(), 1);
        assert_eq!(messages("`longhaul_engine::Ghost`").len(), 1);
        assert_eq!(messages("`longhaul_host::Run`").len(), 1);
        assert_eq!(messages("").len(), 1);
    }
}
