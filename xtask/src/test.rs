//! Runs all tests and ends with one line for each failed test.
//!
//! The output of cargo is printed as it arrives. All test binaries run, also after one has failed; the failures are repeated at
//! the end, where a reader looks first.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{node, plain_cargo, postgres, python};

/// The published clients that the tests run, installed like everything else that the tests need.
pub(crate) struct Clients {
    python: PathBuf,
    node: PathBuf,
}

impl Clients {
    /// Installs what is missing.
    pub(crate) fn install(root: &Path) -> Result<Self> {
        postgres::install()?;
        Ok(Self {
            python: python::environment(root)?,
            node: node::environment(root)?,
        })
    }
}

/// What compiles the crates of the workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compiler {
    Rustc,
    /// The compiler of clippy. It lints and generates code in one pass, so that no dependency is read a second time for clippy alone.
    Clippy,
}

impl Compiler {
    fn set(self, command: &mut Command) {
        if self == Self::Rustc {
            return;
        }
        command
            .env(
                "RUSTC_WORKSPACE_WRAPPER",
                Path::new(env!("CARGO")).with_file_name("clippy-driver"),
            )
            // `-D warnings`, in the form that `cargo clippy` hands its arguments on.
            .env(
                "CLIPPY_ARGS",
                "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
            )
            // What a second build could reuse costs time in the first.
            .env("CARGO_INCREMENTAL", "0");
    }
}

pub(crate) fn run(root: &Path, clients: &Clients, compiler: Compiler) -> Result<()> {
    // One for all test binaries: making a cluster takes seconds.
    let cluster = postgres::start()?;
    println!("==> cargo test --workspace --no-fail-fast");
    let mut command = plain_cargo();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .env("LONGHAUL_TEST_PYTHON", &clients.python)
        .env("LONGHAUL_TEST_NODE", &clients.node)
        .env(longhaul_test_postgres::SHARED_VARIABLE, cluster.url())
        // Some programs behave differently where this is set, as it is on most CI machines. Tests must not.
        .env("CI", "true")
        .current_dir(root);
    compiler.set(&mut command);
    if !observe(command)?.print() {
        bail!("tests failed");
    }
    Ok(())
}

/// Runs `cargo test` and prints its output as it arrives.
pub(crate) fn observe(mut command: Command) -> Result<Outcome> {
    let began = Instant::now();
    // One pipe for both streams: cargo names the binary on one and the binary its tests on the other, and their order counts.
    let (reader, writer) = std::io::pipe().context("a pipe could not be made")?;
    command
        .stdout(writer.try_clone().context("a pipe could not be shared")?)
        .stderr(writer);
    let mut child = command.spawn().context("cargo could not be run")?;
    // The command keeps its ends of the pipe open until it is dropped, and the reader waits for the last of them.
    drop(command);
    let summary = pass_on(BufReader::new(reader), &mut std::io::stdout().lock())?;
    let status = child.wait().context("cargo could not be waited for")?;
    println!("==> tests took {} s", began.elapsed().as_secs());
    Ok(Outcome {
        passed: status.success(),
        summary,
    })
}

/// How a run of tests ended.
pub(crate) struct Outcome {
    passed: bool,
    summary: Summary,
}

impl Outcome {
    /// Prints one line for each failure and the counts. Returns whether all tests passed.
    pub(crate) fn print(&self) -> bool {
        for line in self.summary.failures() {
            println!("FAILED {line}");
        }
        let (passed, failed) = (self.summary.passed, self.summary.failed.len());
        println!("{passed} passed, {failed} failed");
        self.passed
    }
}

/// Writes every line to `out` and reads the results of tests from it.
fn pass_on(mut output: impl BufRead, out: &mut impl Write) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = output
            .read_until(b'\n', &mut line)
            .context("the output of cargo could not be read")?;
        if read == 0 {
            return Ok(summary);
        }
        out.write_all(&line)
            .and_then(|()| out.flush())
            .context("the output of cargo could not be passed on")?;
        summary.read(String::from_utf8_lossy(&line).trim_end());
    }
}

/// The results in the output of `cargo test`.
#[derive(Debug, Default)]
struct Summary {
    /// The test binary that runs now.
    binary: String,
    passed: u64,
    failed: Vec<String>,
    /// Binaries that cargo reports as failed, including those that ended without naming a test.
    failed_targets: Vec<String>,
}

impl Summary {
    fn read(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix("Running ") {
            self.binary = binary_name(rest);
        } else if let Some(name) = trimmed.strip_prefix("Doc-tests ") {
            self.binary = format!("{name} (doc tests)");
        } else if let Some(test) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failed.push(format!("{}: {test}", self.binary));
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            self.passed += count_before(rest, " passed").unwrap_or(0);
        } else if let Some(target) = trimmed
            .strip_prefix('`')
            .and_then(|rest| rest.strip_suffix('`'))
            .filter(|target| target.starts_with("-p "))
        {
            self.failed_targets.push(target.to_owned());
        }
    }

    /// One line per failed test, then one per failed binary: a binary can fail without naming a test.
    fn failures(&self) -> impl Iterator<Item = &str> {
        let all = self.failed.iter().chain(&self.failed_targets);
        all.map(String::as_str)
    }
}

/// `unittests src/lib.rs (target/debug/deps/longhaul_engine-0123)` → `longhaul_engine`, `tests/it/main.rs (…/it-0123)` → `it`
/// with the path before it, because every crate has an `it`.
fn binary_name(rest: &str) -> String {
    let Some((source, file)) = rest.rsplit_once(" (") else {
        return rest.to_owned();
    };
    let file = file.trim_end_matches(')');
    let stem = Path::new(file)
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let stem = stem
        .rsplit_once('-')
        .map_or(stem.as_str(), |(name, _)| name);
    format!("{stem} ({source})")
}

/// The number before a word: `ok. 12 passed; 0 failed`.
fn count_before(text: &str, word: &str) -> Option<u64> {
    let before = text.split(word).next()?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failed_test_and_every_failed_binary_gets_a_line() {
        let output = "\
     Running unittests src/lib.rs (target/debug/deps/longhaul_engine-01ab)
test run::a ... ok
test run::b ... FAILED
test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s
     Running tests/it/main.rs (target/debug/deps/it-02cd)
   Doc-tests longhaul_sdk
test crates/sdk/src/lib.rs - (line 3) ... FAILED
test result: FAILED. 2 passed; 1 failed; 0 ignored
error: 2 targets failed:
    `-p longhaul-engine --lib`
    `-p longhaul-server --test it`
";
        // If these lines were printed, they would count as failures of this run.
        let summary = pass_on(output.as_bytes(), &mut std::io::sink()).unwrap();
        assert_eq!(summary.passed, 14);
        assert_eq!(
            summary.failures().collect::<Vec<_>>(),
            [
                "longhaul_engine (unittests src/lib.rs): run::b",
                "longhaul_sdk (doc tests): crates/sdk/src/lib.rs - (line 3)",
                "-p longhaul-engine --lib",
                "-p longhaul-server --test it",
            ]
        );
    }

    #[test]
    fn a_test_whose_name_has_the_word_did_not_fail() {
        let mut summary = Summary::default();
        summary.read("test it_says_FAILED ... ok");
        summary.read("  test inner ... FAILED in a message");
        assert_eq!(summary.failures().count(), 0);
    }
}
