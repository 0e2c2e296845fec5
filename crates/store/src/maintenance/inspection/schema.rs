//! The tables, columns and indexes that migrations make, read from their text. Enough for the statements of our own migrations.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::inspection::{Problem, ProblemKind};

/// Tables with their columns, and indexes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) tables: BTreeMap<String, BTreeSet<String>>,
    pub(crate) indexes: BTreeSet<String>,
}

impl Tables {
    /// Adds what the statements of a migration create. A primary key is an index of the table's name with `_pkey`.
    pub(crate) fn add(&mut self, migration: &str) {
        let mut table: Option<String> = None;
        for line in migration.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("CREATE"), Some("TABLE"), Some(name)) => {
                    self.tables.entry(name.to_owned()).or_default();
                    table = Some(name.to_owned());
                }
                (Some("CREATE"), Some("UNLOGGED"), Some("TABLE")) => {
                    let name = words.next().map(str::to_owned);
                    if let Some(name) = &name {
                        self.tables.entry(name.clone()).or_default();
                    }
                    // A partition has the columns of its table.
                    table = name.filter(|_| line.ends_with('('));
                }
                (Some("ALTER"), Some("TABLE"), Some(name)) => {
                    if let (Some("ADD"), Some("COLUMN"), Some(column)) =
                        (words.next(), words.next(), words.next())
                    {
                        let columns = self.tables.entry(name.to_owned()).or_default();
                        columns.insert(column.to_owned());
                    }
                }
                (Some("CREATE"), Some("INDEX"), Some(name)) => {
                    self.indexes.insert(name.to_owned());
                }
                (Some("CREATE"), Some("UNIQUE"), Some("INDEX")) => {
                    self.indexes.extend(words.next().map(str::to_owned));
                }
                (Some(first), ..) if first.starts_with(')') => table = None,
                (Some(first), ..) if !first.starts_with("--") => {
                    self.add_column(table.as_deref(), first, line);
                }
                _ => {}
            }
        }
    }

    fn add_column(&mut self, table: Option<&str>, first: &str, line: &str) {
        let Some(table) = table else {
            return;
        };
        if line.contains("PRIMARY KEY") {
            self.indexes.insert(format!("{table}_pkey"));
        }
        if first != "PRIMARY"
            && let Some(columns) = self.tables.get_mut(table)
        {
            columns.insert(first.to_owned());
        }
    }

    /// Returns what is missing in another schema.
    pub(crate) fn missing_in(&self, found: &Self) -> Vec<Problem> {
        let mut missing = Vec::new();
        for (table, columns) in &self.tables {
            match found.tables.get(table) {
                None => missing.push(format!("table {table}")),
                Some(present) => missing.extend(
                    columns
                        .difference(present)
                        .map(|column| format!("column {column} of table {table}")),
                ),
            }
        }
        let indexes = self.indexes.difference(&found.indexes);
        missing.extend(indexes.map(|index| format!("index {index}")));
        missing
            .into_iter()
            .map(|what| {
                Problem::new(
                    ProblemKind::SchemaDiffers,
                    format!("{what} is missing or not valid"),
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_read() {
        let mut schema = Tables::default();
        schema.add(
            "-- A comment.\nCREATE TABLE t (\n    a text PRIMARY KEY,\n    -- Why.\n    b bigint\n) WITH (fillfactor = 80);\n\
             CREATE UNLOGGED TABLE u (\n    c text,\n    PRIMARY KEY (c)\n);\nALTER TABLE u ADD COLUMN d text;\n\
             CREATE UNIQUE INDEX i ON t (b)\n    WHERE b IS NOT NULL;\nCREATE INDEX j ON t (a);",
        );
        let columns: Vec<_> = schema.tables["t"].iter().map(String::as_str).collect();
        assert_eq!(columns, ["a", "b"]);
        assert_eq!(schema.tables["u"].len(), 2);
        let indexes: Vec<_> = schema.indexes.iter().map(String::as_str).collect();
        assert_eq!(indexes, ["i", "j", "t_pkey", "u_pkey"]);
        assert_eq!(schema.missing_in(&schema), []);
        assert_eq!(schema.missing_in(&Tables::default()).len(), 6);
    }
}
