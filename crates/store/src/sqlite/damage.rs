//! Incomplete files, found when a store is opened. A database that lost its end, or all of it, must not be mistaken for a small or
//! a new one.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::Error;

/// SQLite's header: the page size is at 16, the count of pages at 28, both with the most significant byte first.
const HEADER_BYTES: usize = 100;
const PAGE_SIZE_AT: usize = 16;
const PAGES_AT: usize = 28;

/// A database that is shorter than its header states. The log may hold the rest, if the process died while it was copied.
pub(super) struct Suspicion {
    path: PathBuf,
    length: u64,
    expected: u64,
}

impl Suspicion {
    fn damaged(&self) -> Error {
        Error::Damaged(format!(
            "{} has {} bytes and should have {}; its end is missing",
            self.path.display(),
            self.length,
            self.expected
        ))
    }
}

/// Refuses to create a database beside the log of a missing one.
///
/// # Errors
/// [`Error::Damaged`] if the database is missing or empty and its log is not.
pub(super) fn refuse_missing(path: &Path) -> Result<(), Error> {
    let log = log_of(path);
    let log_length = length(&log)?;
    if length(path)? > 0 || log_length == 0 {
        return Ok(());
    }
    Err(Error::Damaged(format!(
        "{} is missing or empty, but its log {} holds {log_length} bytes. Put the database back or restore a backup; to begin \
         with an empty store, move the log away",
        path.display(),
        log.display()
    )))
}

/// Compares the length of the database, open as `file`, with its header.
///
/// # Errors
/// [`Error::Damaged`] if the end is missing and no log can hold it.
pub(super) fn inspect(path: &Path, file: &File) -> Result<Option<Suspicion>, Error> {
    let length = length(path)?;
    let Some(expected) = expected_length(path, file)?.filter(|expected| *expected > length) else {
        return Ok(None);
    };
    let suspicion = Suspicion {
        path: path.to_owned(),
        length,
        expected,
    };
    if self::length(&log_of(path))? == 0 {
        return Err(suspicion.damaged());
    }
    Ok(Some(suspicion))
}

/// Reads every page of a database that looks too short. Rare, so its cost does not matter.
///
/// # Errors
/// [`Error::Damaged`] if pages are missing.
pub(super) fn check_all(connection: &Connection, suspicion: &Suspicion) -> Result<(), Error> {
    let verdict: Result<String, _> =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match verdict {
        Ok(verdict) if verdict == "ok" => Ok(()),
        Ok(_) | Err(_) => Err(suspicion.damaged()),
    }
}

fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}

/// Returns the length of a file, 0 if it does not exist.
fn length(path: &Path) -> Result<u64, Error> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Returns the length of the file according to its header; `None` if it has no header of this store's kind, which SQLite checks
/// itself.
fn expected_length(path: &Path, file: &File) -> Result<Option<u64>, Error> {
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    }
    let page = u64::from(header[PAGE_SIZE_AT]) << 8 | u64::from(header[PAGE_SIZE_AT + 1]);
    let mut pages = [0; 4];
    pages.copy_from_slice(&header[PAGES_AT..PAGES_AT + 4]);
    if !header.starts_with(b"SQLite format 3\0") || page < 512 {
        return Ok(None);
    }
    Ok(Some(page * u64::from(u32::from_be_bytes(pages))))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("cannot read {}: {error}", path.display()))
}
