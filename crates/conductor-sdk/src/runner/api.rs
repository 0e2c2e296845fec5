//! The part of the server that a runner needs. Tests give it one of their own.

use std::fmt;

use futures::future::BoxFuture;
use longhaul_protocol::conductor::{Task, TaskResult};
use longhaul_transport::RequestError;

use crate::client::{Poll, TaskClient};

/// Polls for tasks and reports them.
pub trait TaskApi: fmt::Debug + Send + Sync + 'static {
    /// Takes up to [`Poll::count`] tasks.
    fn batch_poll<'a>(&'a self, poll: &'a Poll) -> BoxFuture<'a, Result<Vec<Task>, RequestError>>;

    /// Reports a task.
    fn update<'a>(&'a self, result: &'a TaskResult) -> BoxFuture<'a, Result<(), RequestError>>;

    /// Reports a task and takes the next one of its type.
    fn update_and_poll<'a>(
        &'a self,
        result: &'a TaskResult,
    ) -> BoxFuture<'a, Result<Option<Task>, RequestError>>;
}

impl TaskApi for TaskClient {
    fn batch_poll<'a>(&'a self, poll: &'a Poll) -> BoxFuture<'a, Result<Vec<Task>, RequestError>> {
        Box::pin(self.batch_poll(poll))
    }

    fn update<'a>(&'a self, result: &'a TaskResult) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(self.update(result))
    }

    fn update_and_poll<'a>(
        &'a self,
        result: &'a TaskResult,
    ) -> BoxFuture<'a, Result<Option<Task>, RequestError>> {
        Box::pin(self.update_and_poll(result))
    }
}
