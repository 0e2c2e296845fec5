//! A server in a process of its own, with its log in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use crate::binary::listening_url;
use crate::waiting::DEADLINE;

/// Lines of a log that are shown when a test fails.
const LOG_LINES_SHOWN: usize = 100;

/// Starts a server that logs to `server.log` in `directory`, and reads its URL from the first line of its output. The error is a
/// text with the reason.
pub(crate) async fn spawn(command: Command, directory: &Path) -> Result<(Child, String), String> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(log_path(directory))
        .expect("a log file");
    let mut child = tokio::process::Command::from(command)
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut output = lines(&mut child);
    let first = timeout(DEADLINE, output.next_line())
        .await
        .map_err(|_| "no line on standard output".to_owned())?;
    // Keep reading, so that the server neither blocks on a full pipe nor fails on a closed one.
    tokio::spawn(async move { while let Ok(Some(_)) = output.next_line().await {} });
    let Ok(Some(first)) = first else {
        let log = fs::read_to_string(log_path(directory)).unwrap_or_default();
        return Err(format!("it ended before it listened; its log:\n{log}"));
    };
    let url = listening_url(&first).ok_or_else(|| format!("unexpected first line: {first}"))?;
    Ok((child, url.to_owned()))
}

/// Returns the path of the log of the server in that directory.
pub(crate) fn log_path(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

/// Returns the lines that a child process prints.
pub(crate) fn lines(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().expect("standard output is piped")).lines()
}

/// Prints the ends of all logs in a directory, for a test that fails.
pub(crate) fn show_logs(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let log = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
            eprintln!("--- end of {} ---\n{}", path.display(), shown.join("\n"));
        }
    }
}
