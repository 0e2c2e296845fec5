//! Removes the folder of a cluster after its process has ended. Destructors do not run for a static cluster or after a signal.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Waits for the end of its input, which is the end of the process that has the other side. Then it removes the folder. Processes
/// of the server may still be ending and writing, so a removal that failed is repeated a few times.
const SCRIPT: &str = r#"trap "" HUP INT TERM; cat >/dev/null; for _ in 1 2 3 4 5; do rm -rf -- "$1" && exit; sleep 1; done"#;

/// A small process that outlives this one.
#[derive(Debug)]
pub(crate) struct Reaper(Child);

impl Reaper {
    pub(crate) fn watch(folder: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let child = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(folder)
            .stdin(Stdio::piped())
            // An inherited stream would keep a reader of the test's output waiting.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt from the keyboard reaches the whole group.
            .process_group(0)
            .spawn()
            .context("sh could not be run")?;
        Ok(Self(child))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Without the process, the folder stays behind. Nothing else is lost.
        let _ = self.0.wait();
    }
}
