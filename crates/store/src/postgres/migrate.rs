//! Brings the schema up to date, in one transaction. Several servers may start at once: one of them migrates, the others wait and
//! find nothing to do.

use std::collections::BTreeMap;
use std::time::Duration;

use refinery::Migration;
use tokio_postgres::{Client, Transaction};

use crate::Error;

mod migrations {
    refinery::embed_migrations!("migrations/postgres");
}

/// The lock that migrations take, among all advisory locks of the database: `longhaul` in ASCII. It is a lock of the transaction,
/// so that it is released in every case, and works behind a pooler.
const LOCK: i64 = i64::from_be_bytes(*b"longhaul");

/// A migration may rewrite a large table, and the other servers wait for it.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Applies the missing migrations.
///
/// # Errors
/// [`Error::NewerSchema`] if a newer release migrated the database, [`Error::Corrupt`] if an applied migration is not the one that
/// this release has.
pub async fn migrate(client: &mut Client) -> Result<(), Error> {
    let runner = migrations::migrations::runner();
    let mut known = runner.get_migrations().clone();
    known.sort_by_key(Migration::version);
    let transaction = client.transaction().await?;
    let timeout = TIMEOUT.as_millis();
    transaction
        .batch_execute(&format!(
            "SET LOCAL statement_timeout = {timeout}; SET LOCAL lock_timeout = {timeout}; SELECT pg_advisory_xact_lock({LOCK})"
        ))
        .await?;
    transaction
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations (version int4 PRIMARY KEY, name text NOT NULL, checksum text NOT NULL)",
        )
        .await?;
    let stored = stored(&transaction).await?;
    for migration in missing(&known, &stored)? {
        apply(&transaction, migration).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// An applied migration.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Applied {
    name: String,
    checksum: String,
}

async fn stored(transaction: &Transaction<'_>) -> Result<BTreeMap<i32, Applied>, Error> {
    let sql = "SELECT version, name, checksum FROM schema_migrations";
    let mut stored = BTreeMap::new();
    for row in transaction.query(sql, &[]).await? {
        let applied = Applied {
            name: row.try_get(1)?,
            checksum: row.try_get(2)?,
        };
        stored.insert(row.try_get(0)?, applied);
    }
    Ok(stored)
}

/// Returns the migrations to apply, after comparing the applied ones.
fn missing<'a>(
    known: &'a [Migration],
    stored: &BTreeMap<i32, Applied>,
) -> Result<Vec<&'a Migration>, Error> {
    let newest_known = known.last().map_or(0, Migration::version);
    let newest_stored = stored.keys().next_back().copied().unwrap_or(0);
    if newest_stored > newest_known {
        return Err(Error::NewerSchema(format!(
            "the database was migrated by a newer release of longhaul (schema {newest_stored}; this release knows {newest_known}): \
             start that release or a later one, or restore a backup made before the upgrade"
        )));
    }
    for (version, applied) in stored {
        let same = known.iter().find(|known| known.version() == *version);
        if same.is_none_or(|known| known.checksum().to_string() != applied.checksum) {
            return Err(Error::Corrupt(format!(
                "migration {version} ({}) of the database is not the one of this release",
                applied.name
            )));
        }
    }
    let is_missing = |migration: &&Migration| !stored.contains_key(&migration.version());
    Ok(known.iter().filter(is_missing).collect())
}

async fn apply(transaction: &Transaction<'_>, migration: &Migration) -> Result<(), Error> {
    let (version, name) = (migration.version(), migration.name());
    tracing::info!(version, name, "migrating the schema");
    let sql = migration.sql().unwrap_or_default();
    if let Err(error) = transaction.batch_execute(sql).await {
        tracing::error!(?error, version, name, "the schema cannot be upgraded");
        return Err(error.into());
    }
    transaction
        .execute(
            "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
            &[&version, &name, &migration.checksum().to_string()],
        )
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Migration> {
        [("V2__b", "SELECT 2"), ("V3__c", "SELECT 3")]
            .iter()
            .map(|(name, sql)| Migration::unapplied(name, sql).unwrap())
            .collect()
    }

    fn stored(migrations: &[Migration]) -> BTreeMap<i32, Applied> {
        let applied = |migration: &Migration| Applied {
            name: migration.name().to_owned(),
            checksum: migration.checksum().to_string(),
        };
        migrations
            .iter()
            .map(|migration| (migration.version(), applied(migration)))
            .collect()
    }

    #[test]
    fn only_what_is_missing_is_applied() {
        let known = known();
        for (applied, expected) in [(0, vec![2, 3]), (1, vec![3]), (2, vec![])] {
            let found = missing(&known, &stored(&known[..applied])).unwrap();
            let versions: Vec<i32> = found.iter().map(|found| found.version()).collect();
            assert_eq!(versions, expected);
        }
    }

    #[test]
    fn a_newer_and_a_changed_schema_are_refused() {
        let known = known();
        let error = missing(&known[..1], &stored(&known)).unwrap_err();
        assert!(matches!(error, Error::NewerSchema(_)), "{error:?}");
        let mut changed = stored(&known);
        changed.get_mut(&2).unwrap().checksum = "0".to_owned();
        let error = missing(&known, &changed).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    }
}
