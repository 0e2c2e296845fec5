//! The built binary under a limit of the system.

use std::process::Command;

use crate::binary::without_settings;

/// Returns a command that runs the built binary under a limit of the shell, such as `ulimit -n 100`.
pub(crate) fn longhaul_with_limit(limit: &str) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("{limit} && exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_longhaul")]);
    without_settings(shell)
}
