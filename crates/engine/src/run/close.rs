//! Closing a run. The first committed close wins; afterwards nothing is open in it.
//!
//! A workflow that ends by itself closes its open work without events, because they would change what a later replay sees. A run
//! that is stopped from outside records the end of every activity and timer.

use longhaul_protocol::history::{
    ActivityCancelled, EventPayload, LimitBreach, WorkflowFailed, WorkflowTimedOut,
};
use longhaul_protocol::id::{CommandId, RunId};
use longhaul_protocol::workflow_command::FailWorkflow;
use serde_json::{Map, Value, json};

use crate::change::{ActivityEnd, TaskStatus};
use crate::run::draft::Draft;
use crate::run::family::outbox::OutboxBody;
use crate::run::message::external::Stop;
use crate::run::state::{Closed, ClosedReason, Outcome, Part, PartKey, RunFailure, Status};

impl Draft<'_> {
    /// Closes the run and removes everything open. The terminal event has been written; only the ends of open updates follow it.
    /// Outbox messages inform other runs: open children according to their policy, and the parent.
    pub(crate) fn close(
        &mut self,
        reason: ClosedReason,
        note: Option<String>,
        continued_to: Option<RunId>,
        outcome: Option<Outcome>,
    ) {
        self.core.status = reason.status();
        self.core.closed = Some(Closed {
            reason,
            at: self.now,
            note,
            continued_to,
            archived: None,
        });
        self.core.next_wake = None;
        self.updates().fail_open(reason.as_str());
        self.notify_parent_and_children(reason, outcome.as_ref());
        self.workflow_task().close(TaskStatus::Cancelled, None);
        for activity in self.open_activities().cloned().collect::<Vec<_>>() {
            self.activities().close_task(
                &activity,
                TaskStatus::Cancelled,
                ActivityEnd::Cancelled,
                None,
            );
        }
        self.close_locals();
        let keys: Vec<PartKey> = self
            .parts()
            .filter(|(_, part)| !matches!(part, Part::Outbox(_)))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.remove(key);
        }
        self.core.open = crate::run::state::OpenCounts::default();
        if let Some(outcome) = outcome {
            self.put(PartKey::Outcome, Part::Outcome(Box::new(outcome)));
        }
    }

    fn notify_parent_and_children(&mut self, reason: ClosedReason, outcome: Option<&Outcome>) {
        if reason == ClosedReason::Continued {
            return;
        }
        for child in self.open_children() {
            self.outbox().enqueue_close_policy(&child);
        }
        if self.spec.parent.is_none() {
            return;
        }
        let retried_as = match outcome {
            Some(Outcome::Failure(failure)) if reason.status() == Status::Failed => {
                self.children().retry(failure)
            }
            _ => None,
        };
        match retried_as {
            Some(run_id) => {
                if let Some(closed) = &mut self.core.closed {
                    closed.continued_to = Some(run_id);
                }
            }
            None => self.outbox().enqueue(OutboxBody::ChildRunClosed),
        }
    }

    /// Records the end of every open activity and timer.
    pub(crate) fn cancel_open_work(&mut self, command_id: Option<&CommandId>) {
        for activity in self.open_activities().cloned().collect::<Vec<_>>() {
            self.append(EventPayload::ActivityCancelled(ActivityCancelled {
                call: activity.call(),
                workflow_command_id: command_id.cloned(),
                activity_attempt_id: activity.attempt.as_ref().map(|attempt| attempt.id.clone()),
                attempt_number: activity.attempt.as_ref().map(|attempt| attempt.number),
                cancelled_at: self.now,
            }));
        }
        for local in self.locals() {
            self.cancel_local(local.sequence, command_id);
        }
        for sequence in self
            .open_timers()
            .map(|timer| timer.sequence)
            .collect::<Vec<_>>()
        {
            self.timers().cancel(sequence);
        }
    }

    /// Closes the run if one of its deadlines has passed; returns whether it did. There is no grace period.
    pub(crate) fn time_out_if_due(&mut self) -> bool {
        let passed = |deadline: Option<longhaul_protocol::Timestamp>| {
            deadline.filter(|deadline| *deadline <= self.now)
        };
        let (kind, word, deadline) = match (
            passed(self.spec.execution_deadline_at),
            passed(self.spec.run_deadline_at),
        ) {
            (Some(deadline), _) => ("execution_timeout", "execution", deadline),
            (None, Some(deadline)) => ("run_timeout", "run", deadline),
            (None, None) => return false,
        };
        self.signals().flush_buffered();
        self.cancel_open_work(None);
        let message = format!("Workflow {word} timed out at {deadline}.");
        let failure_id = self.ids.mint();
        let event_sequence = self.append(EventPayload::WorkflowTimedOut(WorkflowTimedOut {
            failure_id,
            timeout_kind: kind,
            failure_category: "timeout",
            message: message.clone(),
            execution_deadline_at: self.spec.execution_deadline_at,
            run_deadline_at: self.spec.run_deadline_at,
        }));
        let failure = RunFailure {
            message,
            failure_category: "timeout".to_owned(),
            non_retryable: false,
            exception_type: None,
            exception_class: None,
            exception: Map::new(),
            event_sequence,
        };
        self.close(
            ClosedReason::TimedOut,
            Some(kind.to_owned()),
            None,
            Some(Outcome::Failure(Box::new(failure))),
        );
        true
    }

    /// Applies `fail_workflow`, or a structural limit that a completion broke.
    pub(crate) fn fail_run(&mut self, command: &FailWorkflow, limit: Option<LimitBreach>) {
        // The failure types that the SDKs use for code that ended because of a cancellation request: the run is cancelled, not
        // failed.
        const ENDED_AS_ASKED: [&str; 2] = ["WorkflowCancelled", "WorkflowCancellationRequested"];
        if let Some(cancellation) = self.core.cancellation.clone()
            && cancellation.delivered.is_some()
            && command
                .exception_type
                .as_deref()
                .is_some_and(|name| ENDED_AS_ASKED.contains(&name))
        {
            let reason = cancellation.reason.as_deref();
            return self.close_stopped(Stop::Cancel, &cancellation.request_id, reason);
        }
        let mut exception = command.exception.clone().unwrap_or_default();
        let mut complete = |key: &str, value: Option<&String>| {
            if let (Some(value), false) = (value, exception.contains_key(key)) {
                exception.insert(key.to_owned(), Value::String(value.clone()));
            }
        };
        complete("type", command.exception_type.as_ref());
        complete("class", command.exception_class.as_ref());
        complete("message", Some(&command.message));
        let failure_category = if limit.is_some() {
            "structural_limit"
        } else {
            "application"
        };
        let failure_id = self.ids.mint();
        let event_sequence = self.append(EventPayload::WorkflowFailed(Box::new(WorkflowFailed {
            failure_id,
            source_kind: "workflow_run",
            source_id: self.run_id().clone(),
            failure_category,
            non_retryable: command.non_retryable,
            exception_type: command.exception_type.clone(),
            exception_class: command.exception_class.clone(),
            message: command.message.clone(),
            exception: exception.clone(),
            failed_step_sequence: command.failed_step_sequence,
            failed_activity_execution_id: command.failed_activity_execution_id.clone(),
            limit,
        })));
        let failure = RunFailure {
            message: command.message.clone(),
            failure_category: failure_category.to_owned(),
            non_retryable: command.non_retryable,
            exception_type: command.exception_type.clone(),
            exception_class: command.exception_class.clone(),
            exception,
            event_sequence,
        };
        self.close(
            ClosedReason::Failed,
            None,
            None,
            Some(Outcome::Failure(Box::new(failure))),
        );
    }
}

/// Returns the failure of a run whose completion broke a limit.
pub(crate) fn limit_failure(limit: &LimitBreach) -> FailWorkflow {
    FailWorkflow {
        message: format!(
            "Structural limit {} exceeded: {} is over {}.",
            limit.kind, limit.value, limit.configured
        ),
        exception_type: Some("StructuralLimitExceeded".to_owned()),
        exception: Some(Map::from_iter([(
            "limit_kind".to_owned(),
            json!(limit.kind),
        )])),
        non_retryable: true,
        ..FailWorkflow::default()
    }
}
