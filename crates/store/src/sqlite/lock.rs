//! The lock against a second server. The database file itself is locked, so that a second server is refused even if another file
//! was removed or the same database is opened under another name; the file beside it is locked too, because earlier releases check
//! that one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::Error;

/// Both locks, held until this is dropped.
///
/// Invariant: dropped after the last connection. SQLite holds locks of another kind on the database file, and the system drops
/// those of the whole process when any handle on the file is closed.
pub(super) struct Lock {
    database: File,
    _beside: File,
}

impl Lock {
    /// Locks the database at `path`. Creates the file if it does not exist; SQLite treats an empty file as a new database.
    pub(super) fn take(path: &Path, beside: File) -> Result<Self, Error> {
        let database = open(path)?;
        if let Err(error) = lock(&database, path, path) {
            // Closing the handle would release the locks of a store in this process. It stays open instead.
            std::mem::forget(database);
            return Err(error);
        }
        Ok(Self {
            database,
            _beside: beside,
        })
    }

    /// Returns the file that is locked.
    pub(super) fn database(&self) -> &File {
        &self.database
    }
}

/// Locks the file beside the database. A second store in this process is refused here, before it has a handle on the database.
pub(super) fn lock_beside(path: &Path) -> Result<File, Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = open(&name)?;
    lock(&file, &name, path)?;
    Ok(file)
}

/// Creates the directory of the database.
pub(super) fn make_directory(path: &Path) -> Result<(), Error> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    fs::create_dir_all(directory).map_err(|error| {
        Error::Unavailable(format!("cannot create {}: {error}", directory.display()))
    })
}

fn open(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path);
    file.map_err(|error| cannot(path, &error))
}

fn lock(file: &File, name: &Path, database: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::Unavailable(format!(
            "{} is in use by another longhaul server; stop that one first, or give this one a data directory of its own",
            database.display()
        ))),
        Err(TryLockError::Error(error)) => Err(cannot(name, &error)),
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("cannot lock {}: {error}", path.display()))
}
