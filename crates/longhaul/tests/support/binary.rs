//! The built binary as a command.

use std::process::Command;

/// The start of the first line that a server prints; its address follows.
const LISTENING: &str = "listening on ";

/// Returns a command that runs the built binary.
pub(crate) fn longhaul() -> Command {
    without_settings(Command::new(env!("CARGO_BIN_EXE_longhaul")))
}

/// Removes the settings of this machine from the environment of a command, so that they do not affect tests.
pub(crate) fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LONGHAUL_")) {
        command.env_remove(name);
    }
    command
}

/// Returns the URL in the first line that a server printed.
pub(crate) fn listening_url(first_line: &str) -> Option<&str> {
    first_line.trim().strip_prefix(LISTENING)
}
