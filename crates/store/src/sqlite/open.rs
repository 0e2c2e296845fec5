//! Opening a database file: the settings of each connection and the migrations. `lock` excludes a second server, `damage` refuses
//! incomplete files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::damage::{self, Suspicion};
use super::lock::{self, Lock};
use super::visibility::index;
use crate::Error;
use crate::schema::{Age, Schema};

mod migrations {
    refinery::embed_migrations!("migrations/sqlite");
}

/// The path of the database and its settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database file; it and its directory are created if missing.
    pub path: PathBuf,
    pub sync: Sync,
}

/// When a commit counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the disk confirms it.
    Full,
    /// When the operating system has it: a power cut loses the newest commits. For tests that need no disk.
    Never,
}

impl Options {
    /// Returns the safe settings for the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            sync: Sync::Full,
        }
    }
}

/// Pages are four kibibytes: a transition rewrites a handful of small rows, and each page it touches goes to the log whole.
const PAGE_BYTES: u32 = 4096;

/// The writer's cache holds the pages that transitions use again and again. Not more: after a page was split, SQLite walks the
/// whole cache at commit, which took a twelfth of the writer's time at 64 MiB. A miss is a copy from the system's cache.
const WRITER_CACHE_KIB: i32 = 16 << 10;

/// A reader's cache is emptied by every commit, so it only serves within one read.
const READER_CACHE_KIB: i32 = 2 << 10;

/// Pages in the write-ahead log before it is copied into the database, inside a commit. Large enough that pages written
/// again and again are copied once, small enough that the pause stays short and the log is quick to read back after a crash.
const CHECKPOINT_PAGES: u32 = 4000;

/// The log file shrinks back to this after a burst.
const LOG_BYTES_KEPT: u32 = 64 << 20;

/// Only a backup tool or a person with the shell can hold the lock.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Statements kept prepared per connection; more than this crate has.
const STATEMENTS_MAX: usize = 64;

/// Locks the database and returns the only connection that writes, with the schema brought up to date. The connection must be closed
/// before the lock is released.
pub(super) fn locked(options: &Options) -> Result<(Connection, Lock), Error> {
    lock::make_directory(&options.path)?;
    // In this order: no handle on the database is opened and closed again while another store of this process may use it.
    let beside = lock::lock_beside(&options.path)?;
    damage::refuse_missing(&options.path)?;
    let lock = Lock::take(&options.path, beside)?;
    let suspicion = damage::inspect(&options.path, lock.database())?;
    let connection = writer(options, suspicion)?;
    Ok((connection, lock))
}

/// Returns a connection that writes. The database must be locked.
pub(super) fn writer(options: &Options, suspicion: Option<Suspicion>) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&options.path, flags)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match options.sync {
        Sync::Full => "FULL",
        Sync::Never => "OFF",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    connection.pragma_update(None, "foreign_keys", false)?;
    common(&connection)?;
    if let Some(suspicion) = suspicion {
        damage::check_all(&connection, &suspicion)?;
    }
    migrate(&mut connection, &options.path)?;
    index::rebuild(&mut connection)?;
    Ok(connection)
}

/// Returns a connection that cannot write. The writer's must be open already.
pub(super) fn reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    common(&connection)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(connection)
}

fn common(connection: &Connection) -> Result<(), Error> {
    connection.busy_timeout(BUSY_WAIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans do not depend on bound values, so a statement is never planned again because of them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(())
}

/// Applies the missing migrations, unless a newer release migrated the file and allows this one to use it.
fn migrate(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let runner = migrations::migrations::runner();
    let known = known_version(&runner);
    let stored = schema(connection)?;
    if stored.age_of_program(known, &path.display().to_string())? == Age::Older {
        return Ok(());
    }
    // Grouped, because otherwise a migration and its record are two transactions, and a crash between them leaves a file that no
    // release opens.
    runner.set_grouped(true).run(connection).map_err(|error| {
        // The error quotes the whole migration.
        tracing::error!(%error, path = %path.display(), "the schema cannot be upgraded");
        Error::Unavailable(format!(
            "cannot upgrade the schema of {}; see the log",
            path.display()
        ))
    })?;
    Ok(())
}

/// Returns the version of the schema of this release.
fn known_version(runner: &refinery::Runner) -> i32 {
    let migrations = runner.get_migrations().iter();
    let newest = migrations.map(refinery::Migration::version).max();
    newest.unwrap_or(0)
}

/// Refuses a database whose schema is not that of this release.
pub(super) fn refuse_other_schema(connection: &Connection, path: &Path) -> Result<(), Error> {
    let known = known_version(&migrations::migrations::runner());
    let schema = schema(connection)?;
    schema.age_of_program(known, &path.display().to_string())?;
    let stored = schema.applied.last().copied().unwrap_or(0);
    if stored == known {
        return Ok(());
    }
    Err(Error::Settings(format!(
        "{} has schema {stored}, and this release has {known}: if an earlier release wrote it, start a server of this release on it \
         first; if a newer one did, check it with that",
        path.display()
    )))
}

/// Returns a database in memory with the schema of this release.
pub(super) fn empty() -> Result<Connection, Error> {
    let mut connection = Connection::open_in_memory()?;
    migrate(&mut connection, Path::new("memory"))?;
    Ok(connection)
}

/// Returns the schema of a file. That of a new file is empty.
fn schema(connection: &Connection) -> Result<Schema, Error> {
    let mut schema = Schema::default();
    if has_table(connection, "refinery_schema_history")? {
        let mut select = connection.prepare("SELECT version FROM refinery_schema_history")?;
        let versions = select.query_map([], |row| row.get(0))?;
        schema.applied = versions.collect::<Result<_, _>>()?;
    }
    if has_table(connection, "schema_compatibility")? {
        let sql = "SELECT version, oldest_program FROM schema_compatibility";
        let mut select = connection.prepare(sql)?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        schema.oldest_programs = rows.collect::<Result<_, _>>()?;
    }
    Ok(schema)
}

fn has_table(connection: &Connection, name: &str) -> Result<bool, Error> {
    let found: Option<i64> = connection
        .query_row(
            "SELECT 1 FROM sqlite_schema WHERE name = ?1",
            [name],
            |row| row.get(0),
        )
        .optional()?;
    Ok(found.is_some())
}

#[cfg(test)]
mod tests {
    use longhaul_engine::rollout::Rollout;
    use longhaul_engine::visibility::Type;
    use refinery::Target;

    use super::*;
    use crate::conformance::registry::worker;
    use crate::sqlite::table::document;
    use crate::{DocumentKey, DocumentKind, NamespaceRow, Record, SearchAttributeRow, WorkerRow};

    fn records<R: Record>(connection: &Connection) -> Vec<(DocumentKey, R)> {
        let found = document::documents(connection, R::KIND, None).unwrap();
        found
            .into_iter()
            .map(|document| {
                let record = serde_json::from_str(&document.body).unwrap();
                (document.key, record)
            })
            .collect()
    }

    #[test]
    fn registry_rows_of_earlier_releases_become_documents() {
        let mut connection = Connection::open_in_memory().unwrap();
        let runner = migrations::migrations::runner();
        runner
            .set_target(Target::Version(5))
            .run(&mut connection)
            .unwrap();
        let space = r#"{"name":"shop","retention_days":7,"created_at":"2026-01-01T00:00:00.000000Z","updated_at":"2026-01-01T00:00:00.000000Z"}"#;
        let row = worker("shop", "w1");
        let rollout = Rollout::new("shop".into(), "q".into(), None);
        let insert = |sql: &str, columns: &[&str]| {
            let parameters = rusqlite::params_from_iter(columns);
            connection.execute(sql, parameters).unwrap();
        };
        insert("INSERT INTO namespaces VALUES (?1, ?2)", &["shop", space]);
        insert(
            "INSERT INTO search_attributes VALUES (?1, ?2, ?3)",
            &["shop", "Tags", "keyword_list"],
        );
        insert(
            "INSERT INTO workers VALUES (?1, ?2, ?3)",
            &["shop", "w1", &serde_json::to_string(&row).unwrap()],
        );
        insert(
            "INSERT INTO rollouts VALUES (?1, ?2, ?3, ?4)",
            &["shop", "q", "", &serde_json::to_string(&rollout).unwrap()],
        );

        migrate(&mut connection, Path::new("test.db")).unwrap();

        let spaces = records::<NamespaceRow>(&connection);
        assert_eq!(spaces[0].1.retention_days, Some(7));
        assert_eq!(spaces[0].0.kind, DocumentKind::Namespace);
        let attributes = records::<SearchAttributeRow>(&connection);
        assert_eq!(
            attributes[0].1,
            SearchAttributeRow {
                namespace: "shop".into(),
                name: "Tags".to_owned(),
                attribute_type: Type::KeywordList,
            }
        );
        assert_eq!(records::<WorkerRow>(&connection)[0].1, row);
        assert_eq!(records::<Rollout>(&connection)[0].1, rollout);
        for (key, record) in records::<WorkerRow>(&connection) {
            let (namespace, name, qualifier) = record.key_parts();
            assert_eq!(
                (&*key.namespace, &*key.name, &*key.qualifier),
                (&*namespace, &*name, &*qualifier)
            );
        }
    }
}
