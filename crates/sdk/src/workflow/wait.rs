//! Waits for conditions and signals. On the wire they are condition waits, which the worker evaluates.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use serde_json::json;

use super::call::{CallKind, Outcome};
use super::replay::journal::Journal;
use crate::error::Cancelled;

/// Waits until `check` returns a value, at most until the timeout.
pub(crate) struct Wait<T> {
    journal: Arc<Journal>,
    key: String,
    timeout_seconds: Option<u64>,
    check: Box<dyn FnMut() -> Option<T> + Send>,
    sequence: Option<u64>,
}

impl<T> Wait<T> {
    pub(crate) fn new(
        journal: Arc<Journal>,
        key: String,
        check: impl FnMut() -> Option<T> + Send + 'static,
    ) -> Self {
        Self {
            journal,
            key,
            timeout_seconds: None,
            check: Box::new(check),
            sequence: None,
        }
    }

    pub(crate) fn timeout_seconds(mut self, seconds: u64) -> Self {
        self.timeout_seconds = Some(seconds);
        self
    }

    pub(crate) fn key(mut self, key: String) -> Self {
        self.key = key;
        self
    }

    /// Opens the wait without a check.
    pub(crate) fn open(mut self) -> Self {
        self.make();
        self
    }

    fn make(&mut self) -> bool {
        if self.sequence.is_none() {
            let mut command = json!({"type": "open_condition_wait", "condition_key": self.key});
            if let Some(seconds) = self.timeout_seconds {
                command["timeout_seconds"] = json!(seconds);
            }
            self.sequence = self
                .journal
                .make(CallKind::Condition(self.key.clone()), command);
        }
        self.sequence.is_some()
    }

    fn close(&mut self) {
        if let Some(sequence) = self.sequence.take() {
            self.journal.abandon(sequence);
        }
    }
}

impl<T> Future for Wait<T> {
    /// `None` after the timeout.
    type Output = Result<Option<T>, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if let Some(found) = (self.check)() {
            self.close();
            return Poll::Ready(Ok(Some(found)));
        }
        if !self.make() {
            return Poll::Ready(Err(Cancelled));
        }
        let sequence = self.sequence.unwrap_or_default();
        match self.journal.outcome(sequence, context.waker()) {
            Some(Outcome::Interrupted) => Poll::Ready(Err(Cancelled)),
            Some(_) => Poll::Ready(Ok(None)),
            None => {
                self.journal.watch(context.waker());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        self.close();
    }
}
