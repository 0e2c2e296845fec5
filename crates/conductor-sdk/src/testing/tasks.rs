//! Tasks of the test: polls and updates get prepared answers, and are recorded with their times.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_protocol::conductor::{Task, TaskResult};
use longhaul_transport::{RequestError, TransportError};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::refused;
use crate::client::Poll;
use crate::runner::{RunnerControl, TaskApi};

/// How a fake answers an update.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FakeUpdate {
    /// The result is accepted.
    Accepted,
    /// The result is accepted, and this task is the next one.
    Next(Box<Task>),
    /// The update is refused with this status.
    Refused(u16),
    /// The connection breaks before the answer.
    Broken,
}

/// A poll that a fake got.
#[derive(Clone, Debug)]
pub struct SentPoll {
    /// When it came, since the fake was made.
    pub at: Duration,
    /// What it asked for.
    pub poll: Poll,
}

/// A result that a fake got.
#[derive(Clone, Debug)]
pub struct SentResult {
    /// When it came, since the fake was made.
    pub at: Duration,
    /// The request: `tasks`, or `update-v2` for an update that returns the next task.
    pub by: &'static str,
    /// The result.
    pub result: TaskResult,
}

/// The part of a server that a runner needs, with prepared answers. Its times are those of tokio, so a test with `start_paused` sees
/// the exact waits of a runner at once. Cheap to clone: clones are one fake.
#[derive(Clone, Debug)]
pub struct FakeTasks {
    state: Arc<Mutex<State>>,
    begun: Instant,
}

#[derive(Debug, Default)]
struct State {
    polls: VecDeque<Result<Vec<Task>, u16>>,
    updates: VecDeque<FakeUpdate>,
    /// The server knows no update that returns the next task.
    is_old: bool,
    /// The runner that is stopped while the server answers an update.
    stops: Option<RunnerControl>,
    /// How long every answer takes.
    slow: Duration,
    polled: Vec<SentPoll>,
    sent: Vec<SentResult>,
}

impl Default for FakeTasks {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeTasks {
    /// All polls return nothing, and all updates are accepted.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            begun: Instant::now(),
        }
    }

    /// The next polls return these tasks; all further ones return none.
    #[must_use]
    pub fn returning(polls: Vec<Vec<Task>>) -> Self {
        let fake = Self::new();
        fake.state.lock().polls = polls.into_iter().map(Ok).collect();
        fake
    }

    /// The next polls are refused with this status; all further ones return none.
    #[must_use]
    pub fn refusing(status: u16, count: usize) -> Self {
        let fake = Self::new();
        fake.state.lock().polls = std::iter::repeat_n(Err(status), count).collect();
        fake
    }

    /// A further poll returns these tasks, or is refused with this status.
    pub fn push_poll(&self, poll: Result<Vec<Task>, u16>) {
        self.state.lock().polls.push_back(poll);
    }

    /// The next updates are answered so; all further ones are accepted.
    #[must_use]
    pub fn updates(self, updates: impl IntoIterator<Item = FakeUpdate>) -> Self {
        self.state.lock().updates = updates.into_iter().collect();
        self
    }

    /// Stops a runner while the server answers its next updates.
    pub fn stop_at_update(&self, control: RunnerControl) {
        self.state.lock().stops = Some(control);
    }

    /// Every answer takes this long.
    #[must_use]
    pub fn slow(self, slow: Duration) -> Self {
        self.state.lock().slow = slow;
        self
    }

    /// The server knows no update that returns the next task.
    #[must_use]
    pub fn without_update_v2(self) -> Self {
        self.state.lock().is_old = true;
        self
    }

    /// Returns the polls, in order.
    #[must_use]
    pub fn polls(&self) -> Vec<SentPoll> {
        self.state.lock().polled.clone()
    }

    /// Returns the results, in order. A result that was sent again is there again.
    #[must_use]
    pub fn results(&self) -> Vec<SentResult> {
        self.state.lock().sent.clone()
    }

    fn answer(&self, by: &'static str, result: &TaskResult) -> Result<Option<Task>, RequestError> {
        let mut state = self.state.lock();
        let at = self.begun.elapsed();
        state.sent.push(SentResult {
            at,
            by,
            result: result.clone(),
        });
        if let Some(control) = &state.stops {
            control.stop();
        }
        if by == "update-v2" && state.is_old {
            return Err(refused(404));
        }
        match state.updates.pop_front().unwrap_or(FakeUpdate::Accepted) {
            FakeUpdate::Accepted => Ok(None),
            FakeUpdate::Next(task) => Ok(Some(*task).filter(|_| by == "update-v2")),
            FakeUpdate::Refused(status) => Err(refused(status)),
            FakeUpdate::Broken => Err(TransportError::Interrupted("reset".to_owned()).into()),
        }
    }
}

/// Waits, without a step of the clock if there is nothing to wait for.
async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

impl TaskApi for FakeTasks {
    fn batch_poll<'a>(&'a self, poll: &'a Poll) -> BoxFuture<'a, Result<Vec<Task>, RequestError>> {
        let mut state = self.state.lock();
        let at = self.begun.elapsed();
        state.polled.push(SentPoll {
            at,
            poll: poll.clone(),
        });
        let answer = state.polls.pop_front().unwrap_or_else(|| Ok(Vec::new()));
        let slow = state.slow;
        Box::pin(async move {
            wait(slow).await;
            answer.map_err(refused)
        })
    }

    fn update<'a>(&'a self, result: &'a TaskResult) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async move {
            let slow = self.state.lock().slow;
            wait(slow).await;
            self.answer("tasks", result).map(drop)
        })
    }

    fn update_and_poll<'a>(
        &'a self,
        result: &'a TaskResult,
    ) -> BoxFuture<'a, Result<Option<Task>, RequestError>> {
        Box::pin(async move {
            let slow = self.state.lock().slow;
            wait(slow).await;
            self.answer("update-v2", result)
        })
    }
}
