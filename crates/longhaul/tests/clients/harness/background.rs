//! Programs of the Conductor clients that work until the test ends.

use std::fs::File;
use std::process::Stdio;

use tokio::io::{BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::node::node_command;
use super::python::command_in;
use super::{DEADLINE, Server};
use crate::server_process::lines;

/// A running program, killed when it is dropped. Its errors go to a log in the directory of the server.
pub(crate) struct Background {
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Background {
    /// Starts `tests/clients/conductor/{program}`.
    pub(crate) fn python(program: &str, server: &Server) -> Self {
        Self::start(program, server, command_in("conductor", program, server))
    }

    /// Starts `tests/clients/conductor_js/{program}`.
    pub(crate) fn node(program: &str, server: &Server, arguments: &[&str]) -> Self {
        let mut command = node_command(program, server);
        command.args(arguments);
        Self::start(program, server, command)
    }

    fn start(program: &str, server: &Server, mut command: Command) -> Self {
        let path = server.directory.path().join(format!("{program}.log"));
        let log = File::create(path).expect("a log file");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        Self {
            output: lines(&mut child),
            _child: child,
        }
    }

    /// Returns the next line that the program prints, however long that takes, or `None` if it ended.
    pub(crate) async fn next_line_of_any_time(&mut self) -> Option<String> {
        self.output.next_line().await.expect("readable output")
    }

    /// Returns the next line that the program prints, or `None` if it ended.
    pub(crate) async fn next_line(&mut self) -> Option<String> {
        let line = timeout(DEADLINE, self.output.next_line()).await;
        line.expect("the program prints or ends")
            .expect("readable output")
    }
}
