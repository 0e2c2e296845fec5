//! Brings the schema up to date, in one transaction. Several servers may start at once: one of them migrates, the others wait and
//! find nothing to do.

use std::collections::BTreeMap;
use std::time::Duration;

use refinery::Migration;
use tokio_postgres::{Client, Transaction};

use crate::Error;
use crate::inspection::schema::Tables;
use crate::schema::{Age, Schema};

mod migrations {
    refinery::embed_migrations!("migrations/postgres");
}

/// The lock that migrations take, among all advisory locks of the database: `longhaul` in ASCII. It is a lock of the transaction,
/// so that it is released in every case, and works behind a pooler.
const LOCK: i64 = i64::from_be_bytes(*b"longhaul");

/// A migration may rewrite a large table, and the other servers wait for it.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Applies the missing migrations, unless a newer release migrated the database and allows this one to use it.
///
/// # Errors
/// [`Error::NewerSchema`] if a newer release migrated the database and this one may not use it, [`Error::Corrupt`] if an applied
/// migration is not the one that this release has.
pub async fn migrate(client: &mut Client) -> Result<(), Error> {
    migrate_to(client, &known()).await
}

/// As [`migrate`], by a program with these migrations.
pub(super) async fn migrate_to(client: &mut Client, known: &[Migration]) -> Result<(), Error> {
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
    let oldest_programs = oldest_programs(&transaction).await?;
    for migration in missing(known, &stored, oldest_programs)? {
        apply(&transaction, migration).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Returns the migrations of a later release: those of this one, and one more with this name, as `V13__name`.
///
/// # Errors
/// [`Error::Settings`] if the name is not that of a migration.
#[cfg(feature = "conformance")]
pub(super) fn of_later_release(name: &str, sql: &str) -> Result<Vec<Migration>, Error> {
    let mut known = known();
    let later = Migration::unapplied(name, sql);
    known.push(later.map_err(|error| Error::Settings(error.to_string()))?);
    Ok(known)
}

/// Returns the migrations of this release, oldest first.
pub(super) fn known() -> Vec<Migration> {
    let runner = migrations::migrations::runner();
    let mut known = runner.get_migrations().clone();
    known.sort_by_key(Migration::version);
    known
}

/// Returns the tables and indexes that the migrations of this release make.
pub(super) fn expected_schema() -> Tables {
    let mut schema = Tables::default();
    for migration in known() {
        schema.add(migration.sql().unwrap_or_default());
    }
    schema
}

/// Refuses a database whose schema is not that of this release. Writes nothing.
pub(super) async fn refuse_other_schema(client: &mut Client) -> Result<(), Error> {
    if !has_schema(client).await? {
        return Err(Error::Settings(
            "the database has no tables of longhaul: check the name of the database".to_owned(),
        ));
    }
    let known = known();
    let transaction = client.transaction().await?;
    let stored = stored(&transaction).await?;
    let programs = oldest_programs(&transaction).await?;
    let missing = missing(&known, &stored, programs)?;
    match missing.first() {
        None => Ok(()),
        Some(migration) => Err(Error::Settings(format!(
            "the database was made by an earlier release and lacks migration {}: start a server of this release on it first",
            migration.version()
        ))),
    }
}

/// Returns whether a release has made tables in the database.
pub(super) async fn has_schema(client: &Client) -> Result<bool, Error> {
    let sql = "SELECT to_regclass('schema_migrations') IS NOT NULL";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
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

/// Returns what migrations contain about earlier programs. An older schema has nothing about them.
async fn oldest_programs(transaction: &Transaction<'_>) -> Result<BTreeMap<i32, i32>, Error> {
    let sql = "SELECT to_regclass('schema_compatibility') IS NOT NULL";
    if !transaction.query_one(sql, &[]).await?.try_get(0)? {
        return Ok(BTreeMap::new());
    }
    let sql = "SELECT version, oldest_program FROM schema_compatibility";
    let rows = transaction.query(sql, &[]).await?;
    let pairs = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    pairs.collect()
}

/// Returns the migrations to apply, after comparing the applied ones.
fn missing<'a>(
    known: &'a [Migration],
    stored: &BTreeMap<i32, Applied>,
    oldest_programs: BTreeMap<i32, i32>,
) -> Result<Vec<&'a Migration>, Error> {
    let newest = known.last().map_or(0, Migration::version);
    let schema = Schema {
        applied: stored.keys().copied().collect(),
        oldest_programs,
    };
    let age = schema.age_of_program(newest, "the database")?;
    for (version, applied) in stored.range(..=newest) {
        let same = known.iter().find(|known| known.version() == *version);
        if same.is_none_or(|known| known.checksum().to_string() != applied.checksum) {
            return Err(Error::Corrupt(format!(
                "migration {version} ({}) of the database is not the one of this release",
                applied.name
            )));
        }
    }
    let is_missing = |migration: &&Migration| !stored.contains_key(&migration.version());
    match (age, known.iter().find(is_missing)) {
        (Age::Newest, _) => Ok(known.iter().filter(is_missing).collect()),
        (Age::Older, None) => Ok(Vec::new()),
        (Age::Older, Some(migration)) => Err(Error::Corrupt(format!(
            "migration {} ({}) of this release is not in the database, although later ones are",
            migration.version(),
            migration.name()
        ))),
    }
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
            let found = missing(&known, &stored(&known[..applied]), BTreeMap::new()).unwrap();
            let versions: Vec<i32> = found.iter().map(|found| found.version()).collect();
            assert_eq!(versions, expected);
        }
    }

    #[test]
    fn a_changed_schema_is_refused() {
        let known = known();
        let mut changed = stored(&known);
        changed.get_mut(&2).unwrap().checksum = "0".to_owned();
        let error = missing(&known, &changed, BTreeMap::new()).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    }

    #[test]
    fn a_newer_schema_is_refused_unless_it_allows_this_program() {
        let known = known();
        let older = |oldest_programs: &[(i32, i32)]| {
            let oldest_programs = oldest_programs.iter().copied().collect();
            missing(&known[..1], &stored(&known), oldest_programs)
        };
        for excluded in [older(&[]), older(&[(3, 3)])] {
            let error = excluded.unwrap_err();
            assert!(matches!(error, Error::NewerSchema(_)), "{error:?}");
        }
        assert!(older(&[(3, 2)]).unwrap().is_empty());
        // The newer release does not have migration 2, so it is no later release of this program.
        let error = missing(&known[..1], &stored(&known[1..]), BTreeMap::from([(3, 2)]));
        assert!(matches!(error, Err(Error::Corrupt(_))), "{error:?}");
    }
}
