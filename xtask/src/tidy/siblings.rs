//! No folder of code has so many entries that a reader cannot take them in at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Tree};

/// The most files and folders in one folder. Larger folders are split by subject.
const SIBLINGS_MAX: usize = 15;

/// Folders of data, where each file is one case and a reader looks for one by its name.
const DATA: [&str; 2] = [
    // One scenario of the engine per file.
    "tests/scenarios",
    // One program for the published Python SDK per file.
    "tests/clients/python",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, _) in tree.files() {
        let in_code = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once('/'))
            .is_some_and(|(_, rest)| rest.starts_with("src/") || rest.starts_with("tests/"));
        if !in_code || DATA.iter().any(|data| path.contains(data)) {
            continue;
        }
        // `x.rs` and `x/` are one module.
        let mut entry = path.strip_suffix(".rs");
        let mut rest = path;
        while let Some((folder, name)) = rest.rsplit_once('/') {
            if let Some(entry) = entry {
                let stem = entry.rsplit('/').next().unwrap_or(name);
                folders.entry(folder).or_default().insert(stem);
            }
            entry = Some(folder);
            rest = folder;
        }
    }
    folders
        .iter()
        .filter(|(folder, entries)| {
            let depth = folder.split('/').count();
            depth > 2 && entries.len() > SIBLINGS_MAX
        })
        .map(|(folder, entries)| {
            let message = format!(
                "has {} entries, more than {SIBLINGS_MAX}; group them",
                entries.len()
            );
            Finding::new(folder, 0, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[String]) -> Vec<Finding> {
        let mut tree = Tree::default();
        for path in paths {
            tree.insert(path);
        }
        check(&tree)
    }

    fn files(folder: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("{folder}/f{n}.rs")).collect()
    }

    #[test]
    fn fifteen_entries_are_allowed_and_sixteen_are_not() {
        assert!(tree(&files("crates/a/src", 15)).is_empty());
        let found = tree(&files("crates/a/src/b", 16));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "crates/a/src/b");
    }

    #[test]
    fn a_module_and_its_folder_count_once_and_folders_count() {
        let mut paths = files("crates/a/src", 15);
        paths.push("crates/a/src/f3/inner.rs".to_owned());
        assert!(tree(&paths).is_empty());
        paths.push("crates/a/src/other/inner.rs".to_owned());
        assert_eq!(tree(&paths).len(), 1);
    }

    #[test]
    fn data_and_other_files_do_not_count() {
        let mut paths = files("crates/a/tests/scenarios", 20);
        paths.extend((0..20).map(|n| format!("crates/a/src/data{n}.sql")));
        assert!(tree(&paths).is_empty());
    }
}
