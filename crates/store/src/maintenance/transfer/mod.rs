//! Copies everything from one store to another, of the same kind or not.
//!
//! A store is read and written in the neutral form of `row`, in pages. Everything is written in one transaction of the target, which is
//! committed only after the target was read again and has the same checksums as the source. So an interrupted copy leaves the target
//! empty. `sqlite::transfer` and `postgres::transfer` are the two kinds of [`Side`]s.

mod checksum;
mod new_run;
mod row;

pub use checksum::{Checksum, Checksums};
pub use row::Table;

pub(crate) use new_run::NewRun;
pub(crate) use row::{EventRow, Row};

use crate::postgres::transfer as postgres;
use crate::sqlite::transfer as sqlite;
use crate::{Error, PAGE_BYTES_MAX, StoreAddress};

/// Rows that are read and written at once. More gain almost nothing.
const PAGE_ROWS_MAX: usize = 1000;

/// What a copy has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    pub table: Table,
    /// Rows of the table so far.
    pub rows: u64,
}

/// A step of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Copy,
    /// Reading the target again.
    Verify,
}

/// A store that is read in whole.
pub(crate) trait Side {
    /// Reads a table and hands it over in pages.
    async fn scan(
        &self,
        table: Table,
        each: &mut impl AsyncFnMut(Vec<Row>) -> Result<(), Error>,
    ) -> Result<(), Error>;
}

/// A store that is written in whole. Nothing is stored before [`Target::commit`].
pub(crate) trait Target: Side {
    async fn write(&self, rows: &[Row]) -> Result<(), Error>;
    async fn commit(&self) -> Result<(), Error>;
}

/// Copies everything of a stopped server. Returns what was copied.
///
/// # Errors
/// [`Error::Settings`] if there is nothing to copy from or the target is not empty, [`Error::Corrupt`] if a row cannot be read or the
/// target does not have what was copied. Then the target has no rows.
pub async fn copy(
    from: &StoreAddress,
    to: &StoreAddress,
    progress: impl FnMut(Progress),
) -> Result<Checksums, Error> {
    use StoreAddress::{Postgres, Sqlite};
    // Boxed: each has the futures of two stores.
    match (from, to) {
        (Sqlite(from), Sqlite(to)) if from == to => Err(Error::Settings(
            "the source and the target are the same file".to_owned(),
        )),
        (Sqlite(from), Sqlite(to)) => {
            let source = sqlite::SqliteSide::source(from)?;
            let target = sqlite::SqliteSide::target(to)?;
            Box::pin(copy_between(&source, &target, progress)).await
        }
        (Sqlite(from), Postgres(to)) => {
            let source = sqlite::SqliteSide::source(from)?;
            let target = postgres::PostgresSide::target(to).await?;
            Box::pin(copy_between(&source, &target, progress)).await
        }
        (Postgres(from), Sqlite(to)) => {
            let source = postgres::PostgresSide::source(from).await?;
            let target = sqlite::SqliteSide::target(to)?;
            Box::pin(copy_between(&source, &target, progress)).await
        }
        (Postgres(from), Postgres(to)) => {
            let source = postgres::PostgresSide::source(from).await?;
            let target = postgres::PostgresSide::target(to).await?;
            Box::pin(copy_between(&source, &target, progress)).await
        }
    }
}

/// Returns the checksums of a stopped server's data.
///
/// # Errors
/// As [`copy`].
pub async fn checksums(of: &StoreAddress) -> Result<Checksums, Error> {
    let mut ignore = |_| {};
    match of {
        StoreAddress::Sqlite(path) => {
            let source = sqlite::SqliteSide::source(path)?;
            read_all(&source, Stage::Verify, &mut ignore).await
        }
        StoreAddress::Postgres(options) => {
            let source = postgres::PostgresSide::source(options).await?;
            read_all(&source, Stage::Verify, &mut ignore).await
        }
    }
}

async fn copy_between(
    source: &impl Side,
    target: &impl Target,
    mut progress: impl FnMut(Progress),
) -> Result<Checksums, Error> {
    let mut copied = Checksums::default();
    for table in Table::ALL {
        let mut each = async |rows: Vec<Row>| {
            target.write(&rows).await?;
            copied.add(table, &rows);
            // SQLite never waits, and the caller may have stopped the copy.
            tokio::task::yield_now().await;
            progress(Progress {
                stage: Stage::Copy,
                table,
                rows: copied.of(table).rows,
            });
            Ok(())
        };
        source.scan(table, &mut each).await?;
    }
    let stored = read_all(target, Stage::Verify, &mut progress).await?;
    if let Some(table) = copied.first_difference(&stored) {
        let (copied, stored) = (copied.of(table).rows, stored.of(table).rows);
        return Err(Error::Corrupt(format!(
            "the copy is wrong and was discarded: {copied} {table} were copied, and the {stored} that the target has are not the same"
        )));
    }
    target.commit().await?;
    Ok(copied)
}

async fn read_all(
    side: &impl Side,
    stage: Stage,
    progress: &mut impl FnMut(Progress),
) -> Result<Checksums, Error> {
    let mut checksums = Checksums::default();
    for table in Table::ALL {
        let mut each = async |rows: Vec<Row>| {
            checksums.add(table, &rows);
            tokio::task::yield_now().await;
            let rows = checksums.of(table).rows;
            progress(Progress { stage, table, rows });
            Ok(())
        };
        side.scan(table, &mut each).await?;
    }
    Ok(checksums)
}

/// Rows on their way, until there are enough for a page.
#[derive(Default)]
pub(crate) struct Page {
    rows: Vec<Row>,
    bytes: usize,
}

impl Page {
    /// Adds a row. Returns the page if it is full.
    pub(crate) fn push(&mut self, row: Row) -> Option<Vec<Row>> {
        self.bytes += row.bytes();
        self.rows.push(row);
        let is_full = self.rows.len() >= PAGE_ROWS_MAX || self.bytes >= PAGE_BYTES_MAX;
        is_full.then(|| std::mem::take(self).rows)
    }

    /// Returns the rows that are left, if any.
    pub(crate) fn rest(self) -> Option<Vec<Row>> {
        (!self.rows.is_empty()).then_some(self.rows)
    }
}

/// Returns the error for a target that has rows.
pub(crate) fn not_empty(table: &str) -> Error {
    Error::Settings(format!(
        "the target is not empty: its table {table} has rows. Copy into a new database or directory, and do not start a server there first"
    ))
}
