//! Migrations of SQLite and PostgreSQL come in pairs: the same number and name in both folders. PostgreSQL began later, so the
//! migrations before its first one have no partner. From [`FIRST_COMPATIBLE`] on, each says which earlier programs may use the database.

use std::collections::BTreeMap;

use super::{Finding, Tree};

const SQLITE: &str = "crates/store/migrations/sqlite/";
const POSTGRES: &str = "crates/store/migrations/postgres/";

/// The migration that creates the table `schema_compatibility`.
const FIRST_COMPATIBLE: u32 = 12;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sqlite = migrations(tree, SQLITE);
    let postgres = migrations(tree, POSTGRES);
    let mut findings = Vec::new();
    for (folder, own) in [(SQLITE, &sqlite), (POSTGRES, &postgres)] {
        let silent = own
            .iter()
            .filter(|(name, number)| !names_programs(tree, &format!("{folder}{name}"), **number));
        findings.extend(silent.map(|(name, number)| {
            let message = format!(
                "must insert ({number}, the oldest schema whose programs may use the database) into schema_compatibility"
            );
            Finding::new(&format!("{folder}{name}"), 0, message)
        }));
    }
    let Some(first) = postgres.values().copied().min() else {
        return findings;
    };
    for (own, other, folder, partner) in [
        (&sqlite, &postgres, SQLITE, POSTGRES),
        (&postgres, &sqlite, POSTGRES, SQLITE),
    ] {
        for (name, number) in own {
            if *number >= first && !other.contains_key(name) {
                let message = format!(
                    "has no partner {partner}{name}; add one, with a comment only if there is nothing to change"
                );
                findings.push(Finding::new(&format!("{folder}{name}"), 0, message));
            }
        }
    }
    findings
}

/// Returns whether a migration says which programs may use the database after it. Earlier ones need not.
fn names_programs(tree: &Tree, path: &str, number: u32) -> bool {
    let row =
        format!("INSERT INTO schema_compatibility (version, oldest_program) VALUES ({number}, ");
    number < FIRST_COMPATIBLE || tree.text(path).is_some_and(|text| text.contains(&row))
}

/// Returns the file names in a folder with their numbers: `V10__name.sql` has 10.
fn migrations<'a>(tree: &'a Tree, folder: &str) -> BTreeMap<&'a str, u32> {
    tree.files()
        .filter_map(|(path, _)| {
            let name = path.strip_prefix(folder)?;
            let (number, _) = name.strip_prefix('V')?.split_once("__")?;
            Some((name, number.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks two folders with these files.
    fn paths(sqlite: &[&str], postgres: &[&str]) -> Vec<String> {
        let files = |folder: &str, names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{folder}{name}")).collect()
        };
        let all = [files(SQLITE, sqlite), files(POSTGRES, postgres)].concat();
        let mut tree = Tree::default();
        all.iter().for_each(|path| tree.insert(path));
        check(&tree).into_iter().map(|found| found.path).collect()
    }

    #[test]
    fn migrations_come_in_pairs_from_the_first_of_postgres() {
        let (old, ten, eleven) = ("V9__old.sql", "V10__shared.sql", "V11__more.sql");
        assert!(paths(&[old], &[]).is_empty());
        assert!(paths(&[old, ten, eleven], &[ten, eleven]).is_empty());
        assert_eq!(
            paths(&[old, ten, eleven], &[ten]),
            [format!("{SQLITE}{eleven}")]
        );
        assert_eq!(paths(&[old], &[ten]), [format!("{POSTGRES}{ten}")]);
        assert_eq!(
            paths(&["V10__other.sql"], &[ten]),
            [
                format!("{SQLITE}V10__other.sql"),
                format!("{POSTGRES}{ten}")
            ]
        );
    }

    #[test]
    fn a_migration_says_which_programs_may_use_the_database() {
        let path = format!("{SQLITE}V13__more.sql");
        let found = |text: &str| check(&Tree::from([(path.as_str(), text)])).len();
        let row = "INSERT INTO schema_compatibility (version, oldest_program) VALUES (13, 12);";
        assert_eq!(found(row), 0);
        assert_eq!(found("CREATE TABLE a (b)"), 1);
        assert_eq!(found(&row.replace("13", "14")), 1);
    }
}
