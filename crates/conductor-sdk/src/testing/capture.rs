//! Collects log lines, for tests.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

/// What was logged. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// This thread logs JSON lines here, with all levels, until the guard is dropped.
    pub(crate) fn begin(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }

    /// Returns the lines, each of which is JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Returns the lines with this text in their message.
    pub(crate) fn with(&self, text: &str) -> Vec<Value> {
        let mut lines = self.json();
        lines.retain(|line| line["message"].as_str().unwrap().contains(text));
        lines
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
