//! Whether this program may use the schema of a database. A program runs beside the next release while servers are upgraded one after
//! another, so a newer schema is not always refused: each migration names the programs that may still use the database after it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;

/// What a database contains about its schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    /// The numbers of the applied migrations.
    pub(crate) applied: BTreeSet<i32>,
    /// The table `schema_compatibility`: by migration, the oldest schema that a program may have been built for.
    pub(crate) oldest_programs: BTreeMap<i32, i32>,
}

/// Whether this program or the database is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// The program knows all migrations of the database and applies those that are missing.
    Newest,
    /// A newer release migrated the database. The program may use it and applies nothing.
    Older,
}

impl Schema {
    /// Compares the database with a program that knows migrations up to number `known`. `place` names the database in the error.
    ///
    /// # Errors
    /// [`Error::NewerSchema`] if a migration that the program does not know excludes it.
    pub(crate) fn age_of_program(&self, known: i32, place: &str) -> Result<Age, Error> {
        let newest = self.applied.last().copied().unwrap_or(0);
        if newest <= known {
            return Ok(Age::Newest);
        }
        let mut unknown = self.applied.iter().filter(|version| **version > known);
        let may_use = unknown.all(|version| {
            let oldest = self.oldest_programs.get(version);
            oldest.is_some_and(|oldest| *oldest <= known)
        });
        if !may_use {
            return Err(Error::NewerSchema(format!(
                "{place} was written by a newer release of longhaul (schema {newest}; this release knows {known} and may not use it): \
                 start that release or a later one, or restore a backup made before the upgrade"
            )));
        }
        tracing::warn!(
            schema = newest,
            known,
            "a newer release migrated the store; this release may still use it, until the upgrade is finished"
        );
        Ok(Age::Older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the age of a program that knows migrations up to 12. The pairs are the later migrations with the oldest program.
    fn age(later: &[(i32, Option<i32>)]) -> Option<Age> {
        let later_versions = later.iter().map(|(version, _)| *version);
        let schema = Schema {
            applied: [10, 12].into_iter().chain(later_versions).collect(),
            oldest_programs: later
                .iter()
                .filter_map(|(version, oldest)| Some((*version, (*oldest)?)))
                .collect(),
        };
        match schema.age_of_program(12, "the database") {
            Ok(age) => Some(age),
            Err(Error::NewerSchema(_)) => None,
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_unknown_migration_must_allow_the_program() {
        assert_eq!(age(&[]), Some(Age::Newest));
        assert_eq!(age(&[(13, Some(12))]), Some(Age::Older));
        assert_eq!(age(&[(13, Some(11)), (15, Some(12))]), Some(Age::Older));
        assert_eq!(age(&[(13, Some(13))]), None);
        assert_eq!(age(&[(13, None)]), None);
        // The newest one allows it, but the one before does not.
        assert_eq!(age(&[(13, Some(13)), (14, Some(12))]), None);
        assert_eq!(age(&[(13, None), (14, Some(12))]), None);
    }
}
