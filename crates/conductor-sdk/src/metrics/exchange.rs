//! How worker processes hand over their numbers: each process replaces a file of its own, and the first process reads all of them.
//!
//! The directory is new for each program, so files of an earlier one do not count. When a worker is started again, the last numbers
//! of its former process are added to those of all processes that ended, so that counters never fall and files do not accumulate.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::Surface;
use super::snapshot::Snapshot;

/// The files of all worker processes of a program.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Removed when it is dropped.
    directory: TempDir,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many processes were begun. It makes the names of files unique.
    begun: u64,
    /// The numbers of processes that were replaced.
    ended: Snapshot,
    /// The newest process of each worker.
    newest: BTreeMap<usize, Process>,
}

#[derive(Debug)]
struct Process {
    file: PathBuf,
    /// What was last read. It stays if the file cannot be read.
    numbers: Snapshot,
}

impl Exchange {
    /// Creates a directory inside another one, by default that of the system for temporary files.
    pub(super) fn new(inside: &Path, surface: Surface) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        Ok(Self {
            directory: builder
                .prefix("longhaul-conductor-metrics-")
                .tempdir_in(inside)?,
            state: Mutex::new(State {
                begun: 0,
                ended: Snapshot::new(surface),
                newest: BTreeMap::new(),
            }),
        })
    }

    /// Returns the file for a new process of a worker, whose former process has ended.
    pub(crate) fn begin(&self, worker: usize) -> PathBuf {
        let mut state = self.state.lock();
        if let Some(mut former) = state.newest.remove(&worker) {
            former.read();
            former.numbers.remove_gauges();
            state.ended.merge(&former.numbers);
            // It goes with the directory if it cannot be removed now.
            let _ = std::fs::remove_file(&former.file);
        }
        let name = format!("{worker}-{}.json", state.begun);
        state.begun += 1;
        let file = self.directory.path().join(name);
        let process = Process {
            file: file.clone(),
            numbers: Snapshot::new(state.ended.surface()),
        };
        state.newest.insert(worker, process);
        file
    }

    /// Returns the numbers of all processes. Gauges count only for the processes that live.
    pub(super) fn gather(&self, lives: impl Fn(usize) -> bool) -> Snapshot {
        let mut state = self.state.lock();
        let mut all = state.ended.clone();
        for (worker, process) in &mut state.newest {
            process.read();
            if lives(*worker) {
                all.merge(&process.numbers);
            } else {
                let mut numbers = process.numbers.clone();
                numbers.remove_gauges();
                all.merge(&numbers);
            }
        }
        all
    }
}

impl Process {
    fn read(&mut self) {
        match std::fs::read(&self.file) {
            Ok(text) => match Snapshot::from_json(&text) {
                Ok(numbers) => self.numbers = numbers,
                Err(error) => {
                    tracing::warn!(file = ?self.file, %error, "metrics of a worker are not valid");
                }
            },
            // The process has not written yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(file = ?self.file, %error, "metrics of a worker cannot be read");
            }
        }
    }
}

/// Replaces a file. A reader sees the old content or the new one, never a part.
pub(super) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let directory = file.parent().unwrap_or_else(|| Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".metrics-");
    // The reader of the file may be another user, such as that of an exporter.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let mut next = builder.tempfile_in(directory)?;
    next.write_all(content)?;
    next.persist(file).map_err(|error| error.error)?;
    Ok(())
}
