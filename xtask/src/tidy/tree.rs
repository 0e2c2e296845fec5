//! The text files of the project in memory, so that checks are functions of text and their tests need no disk.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

/// Kinds of files that are read.
const EXTENSIONS: [&str; 6] = ["rs", "md", "sql", "py", "txt", "toml"];

/// Published documents that the wire format is tested against. They are not ours to change.
const PUBLISHED: &str = "crates/protocol/contract/";

/// Text by path relative to the root, with `/` between the folders.
#[derive(Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the documents at the root, and everything below `crates`, `docs`, `fuzz` and `xtask`.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        for entry in std::fs::read_dir(root)? {
            let path = entry?.path();
            if path.is_file() {
                tree.read(root, &path)?;
            }
        }
        let mut folders: Vec<_> = ["crates", "docs", "fuzz", "xtask"]
            .iter()
            .map(|name| root.join(name))
            .filter(|folder| folder.is_dir())
            .collect();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if !path.is_dir() {
                    tree.read(root, &path)?;
                } else if !["target", "corpus", "artifacts", "__pycache__"].contains(&&*name) {
                    folders.push(path);
                }
            }
        }
        Ok(tree)
    }

    fn read(&mut self, root: &Path, path: &Path) -> Result<()> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
            return Ok(());
        }
        let inside = path.strip_prefix(root).unwrap_or(path);
        let name = inside.to_string_lossy().replace('\\', "/");
        if !name.starts_with(PUBLISHED) {
            self.files.insert(name, std::fs::read_to_string(path)?);
        }
        Ok(())
    }

    /// All files with their text, sorted by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The Rust files.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// The text of a file, if it is part of the tree.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

/// A tree for tests, from pairs of path and text.
#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        Self {
            files: files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
                .collect(),
        }
    }
}

#[cfg(test)]
impl Tree {
    /// Adds an empty file.
    pub(crate) fn insert(&mut self, path: &str) {
        self.files.insert(path.to_owned(), String::new());
    }
}
