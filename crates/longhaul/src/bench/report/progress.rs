//! One line on the terminal that shows the progress. Nothing is written if standard error is not a terminal.

use std::io::{IsTerminal, Write, stderr};

pub(in super::super) struct Progress {
    shown: bool,
}

impl Progress {
    pub(in super::super) fn new() -> Self {
        Self {
            shown: stderr().is_terminal(),
        }
    }

    /// Replaces the line.
    pub(in super::super) fn show(&self, text: &str) {
        if self.shown {
            let mut out = stderr().lock();
            let _ = write!(out, "\r\x1b[K{text} …");
            let _ = out.flush();
        }
    }

    pub(in super::super) fn clear(&self) {
        if self.shown {
            let mut out = stderr().lock();
            let _ = write!(out, "\r\x1b[K");
            let _ = out.flush();
        }
    }
}
