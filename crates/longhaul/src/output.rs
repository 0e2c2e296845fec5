//! Output for people. A line that cannot be written is dropped: a closed pipe or a full disk behind standard output must not end
//! a server. Commands whose output is their result call [`written`] at the end.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

/// The first failure of standard output, for [`written`].
static FAILURE: OnceLock<String> = OnceLock::new();

/// How long writing a last message may take. A reader that has stopped must not keep the process from ending.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints a line on standard output, as `println!` does, without its panic.
macro_rules! say {
    () => { $crate::output::print(format_args!("\n")) };
    ($($words:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($words)*))) };
}
pub(crate) use say;

/// Prints on standard output. A failure is remembered and otherwise ignored.
pub(crate) fn print(words: Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_fmt(words) {
        FAILURE.get_or_init(|| error.to_string());
    }
}

/// Writes what is still buffered. Programs read the first line of a server through a pipe.
pub(crate) fn flush() {
    if let Err(error) = io::stdout().flush() {
        FAILURE.get_or_init(|| error.to_string());
    }
}

/// Returns an error if a printed line could not be written.
pub(crate) fn written() -> Result<()> {
    flush();
    match FAILURE.get() {
        Some(error) => bail!("standard output cannot be written: {error}"),
        None => Ok(()),
    }
}

/// Writes a last message to standard error. Returns after [`LAST_WORDS_TIMEOUT`] even if the message is not read.
pub(crate) fn complain(message: String) {
    let (done, written) = mpsc::channel();
    let writing = thread::Builder::new().spawn(move || {
        let _unreadable = writeln!(io::stderr(), "{message}");
        let _gone = done.send(());
    });
    if writing.is_ok() {
        let _in_time = written.recv_timeout(LAST_WORDS_TIMEOUT);
    }
}
