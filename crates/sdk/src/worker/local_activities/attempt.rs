//! One attempt of a local activity: the function and its deadline.

use std::sync::Arc;
use std::time::Duration;

use longhaul_protocol::Payload;
use tokio::time::Instant;

use super::super::activities::call;
use super::super::shared::Shared;
use super::super::wire::WorkflowTask;
use crate::activity::{ActivityContext, ActivityInfo, HeartbeatSink};
use crate::error::Failure;

/// The pause between two renewals of the lease while a function runs. Less than a third of the shortest lease of a server.
pub(super) const RENEWAL: Duration = Duration::from_secs(20);

/// The arguments and the identity of an attempt.
pub(super) struct Attempt {
    pub(super) activity_type: String,
    pub(super) arguments: Payload,
    pub(super) idempotency_key: String,
    pub(super) attempt_id: String,
    pub(super) attempt_number: u64,
    /// The time when the function is dropped.
    pub(super) deadline: Option<Instant>,
}

/// The outcome of a function.
#[derive(Debug)]
pub(super) enum Ran {
    Returned(Result<Payload, Failure>),
    /// It was dropped at its deadline.
    DeadlinePassed,
}

impl Attempt {
    /// Returns the context for the function.
    pub(super) fn context(
        &self,
        shared: &Arc<Shared>,
        task: &WorkflowTask,
        heartbeats: Box<dyn HeartbeatSink>,
    ) -> ActivityContext {
        let info = ActivityInfo {
            workflow_id: task.workflow_id.clone(),
            run_id: task.run_id.clone(),
            activity_type: self.activity_type.clone(),
            idempotency_key: self.idempotency_key.clone(),
            task_id: String::new(),
            attempt_id: self.attempt_id.clone(),
            attempt_number: self.attempt_number,
            task_queue: String::new(),
            namespace: shared.api.connection.namespace.to_string(),
            deadline: None,
            local: true,
        };
        ActivityContext::new(info, heartbeats, None, shared.data.clone())
    }

    /// Runs the function until it returns or its deadline passes.
    pub(super) async fn run(&self, shared: &Arc<Shared>, context: ActivityContext) -> Ran {
        shared.counters.local_activities.add();
        let Some(definition) = super::definition(shared, &self.activity_type) else {
            let problem = format!(
                "this worker has no activity `{}`; a local activity runs where its workflow runs",
                self.activity_type
            );
            let failure = Failure::of_type("UnknownActivityType", problem).non_retryable();
            return Ran::Returned(Err(failure));
        };
        let running = call(&definition.run, context, self.arguments.clone());
        match self.deadline {
            None => Ran::Returned(running.await),
            Some(deadline) => match tokio::time::timeout_at(deadline, running).await {
                Ok(outcome) => Ran::Returned(outcome),
                Err(_) => Ran::DeadlinePassed,
            },
        }
    }
}
