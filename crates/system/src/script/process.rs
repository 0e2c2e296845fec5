//! One script process, seen from its parent.
//!
//! Pipes are not blocking on this side, and every wait has an end, so a process that stopped for any reason cannot hold its keeper.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Limits, frame};
use crate::hook;

/// How long a new process may take until it is ready. It takes milliseconds; a loaded machine takes longer.
const START_MAX: Duration = Duration::from_secs(10);

/// The name that lists of processes show.
const NAME: &str = "longhaul-script";

/// Variables that the loader needs to start the program again.
const PASSED_ON: &[&str] = &[
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
];

/// A child process. It is killed and reaped when this is dropped.
pub(super) struct Process {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    reply_bytes: usize,
}

/// Why a process gave no answer.
#[derive(Debug)]
pub(super) enum Lost {
    /// It did not answer in time.
    Late,
    /// It closed its pipes, or sent what is no frame.
    Ended(io::Error),
}

impl Process {
    /// Starts a process, gives it its limits, and waits until it is ready.
    pub(super) fn start(limits: &Limits) -> Result<Self, String> {
        if !hook::is_present() {
            return Err(
                "this program was linked without the start-up hook of script processes".to_owned(),
            );
        }
        let mut process = Self::spawn(limits)
            .map_err(|error| format!("the script process does not start: {error}"))?;
        let first = serde_json::to_vec(limits).map_err(|error| error.to_string())?;
        match process.exchange(&first, Instant::now() + START_MAX) {
            Ok(answer) if answer == frame::READY => Ok(process),
            Ok(_) => Err("the script process sent an unknown first answer".to_owned()),
            Err(Lost::Late) => Err("the script process is not ready in time".to_owned()),
            Err(Lost::Ended(error)) => Err(format!(
                "the script process ended at its start ({error}, {})",
                process
                    .end()
                    .map_or_else(|| "unknown status".to_owned(), |status| status.to_string())
            )),
        }
    }

    fn spawn(limits: &Limits) -> io::Result<Self> {
        let mut command = Command::new(program()?);
        command
            .arg0(NAME)
            .env_clear()
            .env(hook::MARKER, "1")
            // Scripts see the same local time on every machine.
            .env("TZ", "UTC")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let mut child = command.spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the pipes are missing"));
        };
        let process = Self {
            child,
            to,
            from,
            reply_bytes: limits.reply_bytes(),
        };
        do_not_block(process.to.as_fd())?;
        do_not_block(process.from.as_fd())?;
        Ok(process)
    }

    /// Returns the process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a frame and returns the frame that answers it. After an error the process is of no more use.
    pub(super) fn exchange(&mut self, request: &[u8], until: Instant) -> Result<Vec<u8>, Lost> {
        let header = frame::header(request.len()).map_err(Lost::Ended)?;
        // A small frame goes out in one piece, so that the process wakes once.
        let joined: Vec<u8>;
        let parts: &[&[u8]] = if request.len() < SMALL_FRAME {
            joined = [&header, request].concat();
            &[&joined]
        } else {
            &[&header, request]
        };
        for part in parts {
            self.send(part, until)?;
        }
        let mut header = [0; frame::HEADER_BYTES];
        self.receive(&mut header, until)?;
        let length = frame::length(header, self.reply_bytes).map_err(Lost::Ended)?;
        let mut reply = vec![0; length];
        self.receive(&mut reply, until)?;
        Ok(reply)
    }

    fn send(&mut self, mut bytes: &[u8], until: Instant) -> Result<(), Lost> {
        while !bytes.is_empty() {
            match self.to.write(bytes) {
                Ok(0) => return Err(Lost::Ended(io::ErrorKind::WriteZero.into())),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(self.to.as_fd(), PollFlags::POLLOUT, until)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Ended(error)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8], until: Instant) -> Result<(), Lost> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.from.read(&mut bytes[filled..]) {
                Ok(0) => return Err(Lost::Ended(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(self.from.as_fd(), PollFlags::POLLIN, until)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Ended(error)),
            }
        }
        Ok(())
    }

    /// Ends the process and returns how it ended. A process that ended before by itself keeps its own status.
    pub(super) fn end(mut self) -> Option<ExitStatus> {
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both do nothing if `end` was called. Without `wait`, the kernel would keep an entry for the dead process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Frames below this size are copied behind their header.
const SMALL_FRAME: usize = 32 << 10;

/// Returns the path of this program. The link of the kernel also works after the file was replaced by a new release.
fn program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        Ok("/proc/self/exe".into())
    } else {
        std::env::current_exe()
    }
}

fn do_not_block(pipe: BorrowedFd<'_>) -> io::Result<()> {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Waits until the pipe is ready, or closed by the other side.
fn wait(pipe: BorrowedFd<'_>, flags: PollFlags, until: Instant) -> Result<(), Lost> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Lost::Late);
    }
    // A part of a millisecond counts as a whole one, so that the loop above does not spin at the end.
    let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(pipe, flags)], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(Lost::Ended(error.into())),
    }
}
