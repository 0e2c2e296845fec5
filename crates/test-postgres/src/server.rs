//! One process of `postgres` and its log.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What the server logs, in the C locale, when it serves.
const READY: &str = "database system is ready to accept";

/// Lines of the log that are kept for an error message.
const LINES_MAX: usize = 40;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Reads the log until its end. Every process of the server has the other side open, so the end means that all are gone.
    log: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the server and waits until it accepts connections. The error has the end of the log.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let (reader, writer) = std::io::pipe().context("a pipe could not be made")?;
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone().context("a pipe could not be shared")?)
            .stderr(writer)
            // An interrupt from the keyboard ends this process, and that ends the server.
            .process_group(0);
        let child = spawn_from_lasting_thread(command).context("postgres could not be run")?;
        let (ready, is_ready) = channel();
        let log = std::thread::spawn(move || follow(reader, &ready));
        let mut server = Self {
            child,
            log: Some(log),
        };
        match is_ready.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(lines)) => {
                server.finish();
                bail!("postgres did not start:\n{lines}")
            }
            Err(_) => bail!("the log of postgres could not be read"),
        }
    }

    /// Stops the server as an operator would: sessions are ended, everything is written.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::SIGINT);
        self.finish();
    }

    /// Stops the server without writing anything, as an operator in haste would. The next start recovers from the log.
    pub(crate) fn stop_immediately(&mut self) {
        self.signal(Signal::SIGQUIT);
        self.finish();
    }

    /// Kills every process of the server at once, as a power cut would.
    pub(crate) fn kill(&mut self) {
        // Stopped, it cannot replace or clean up after the processes that are killed before it.
        self.signal(Signal::SIGSTOP);
        for process in self.processes() {
            let _ = kill(process, Signal::SIGKILL);
        }
        self.signal(Signal::SIGKILL);
        self.finish();
    }

    /// Waits until no process of the server is left.
    fn finish(&mut self) {
        let _ = self.child.wait();
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
    }

    fn signal(&self, signal: Signal) {
        // The process may have ended by itself. Its id is not used again before `wait`.
        let _ = kill(self.pid(), signal);
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn processes(&self) -> Vec<Pid> {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        children
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|id| Some(Pid::from_raw(id.parse().ok()?)))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.log.is_some() {
            self.kill();
        }
    }
}

/// Reads the log to its end. Reports once whether the server became ready; if not, with the last lines.
fn follow(log: PipeReader, ready: &Sender<Result<(), String>>) {
    let mut last = VecDeque::new();
    let mut is_ready = false;
    for line in BufReader::new(log).split(b'\n').map_while(Result::ok) {
        if is_ready {
            continue;
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        is_ready = line.contains(READY);
        if is_ready {
            // The starter is gone if it was interrupted.
            let _ = ready.send(Ok(()));
        }
        last.push_back(line);
        if last.len() > LINES_MAX {
            last.pop_front();
        }
    }
    if !is_ready {
        let lines: Vec<String> = last.into();
        let _ = ready.send(Err(lines.join("\n")));
    }
}

type Started = std::io::Result<Child>;

/// A command to spawn, and where the child goes.
type Order = (Command, Sender<Started>);

/// Spawns from a thread that lives as long as this process. The kernel sends the death signal of a child when the thread that made
/// it ends, and the thread of a test ends with the test.
fn spawn_from_lasting_thread(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, commands): (_, Receiver<Order>) = channel();
        std::thread::spawn(move || {
            for (mut command, reply) in commands {
                let started = command.spawn();
                // The command has ends of the pipe of the log.
                drop(command);
                let _ = reply.send(started);
            }
        });
        Mutex::new(sender)
    });
    let (reply, started) = channel();
    spawner
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, reply))
        .map_err(|_| anyhow!("the thread that starts servers has ended"))?;
    let child = started
        .recv()
        .context("the thread that starts servers has ended")?;
    child.context("setpriv could not be run; it is a part of util-linux")
}
