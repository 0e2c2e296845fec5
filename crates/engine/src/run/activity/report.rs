//! A worker reports on an activity: complete and fail. Whether it may report is decided in `fence`.

use longhaul_protocol::Payload;
use longhaul_protocol::history::{
    ActivityCompleted, ActivityFailed, ActivityRetryScheduled, EventPayload, LimitBreach,
    PAYLOAD_CODEC,
};
use serde_json::{Map, Value, json};

use crate::change::{
    ActivityEnd, ActivityOutcome, ActivityReported, Diagnosis, LimitReason, TaskOutcome, TaskReply,
    TaskStatus, Verb,
};
use crate::run::activity::fence::Reporter;
use crate::run::draft::Activities;
use crate::run::state::{Activity, Attempt, Run};
use crate::run::wait::group::CallEnd;
use crate::{Command, Decision, Moment, limits};

/// The activity succeeded.
#[derive(Clone, Debug)]
pub struct CompleteActivity {
    pub reporter: Reporter,
    pub result: Payload,
}

/// The attempt failed.
#[derive(Clone, Debug)]
pub struct FailActivity {
    pub reporter: Reporter,
    pub failure: Failure,
}

/// A failure as the worker reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    pub message: String,
    pub failure_type: Option<String>,
    pub class: Option<String>,
    pub code: Option<Value>,
    pub non_retryable: bool,
    /// Stored verbatim beside its codec.
    pub details: Option<Payload>,
    /// Details that are not a payload, and data that the worker sent for people only.
    pub diagnostics: Option<Value>,
    pub runtime_diagnostics: Option<Value>,
    /// For people; kept with the task, not in history.
    pub stack_trace: Option<String>,
}

impl Command for CompleteActivity {
    type Reply = TaskReply;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<TaskReply> {
        let (mut draft, activity, attempt) =
            match self.reporter.authorize_report(run, Verb::Complete, moment) {
                Ok(current) => current,
                Err(decision) => return *decision,
            };
        let limit = limits::check(
            "payload_size",
            self.result.blob().len() as u64,
            moment.limits.payload_bytes,
        );
        let (outcome, limit_reason) = match limit {
            Ok(()) => {
                draft.append(EventPayload::ActivityCompleted(ActivityCompleted {
                    call: activity.call(),
                    activity_attempt_id: attempt.id.clone(),
                    attempt_number: attempt.number,
                    result: self.result.clone(),
                    payload_codec: PAYLOAD_CODEC,
                }));
                draft.activities().remove(activity.sequence);
                draft.groups().resolve(
                    activity.group.as_ref(),
                    CallEnd::Completed,
                    activity.resume("ActivityCompleted"),
                );
                (ActivityOutcome::Completed, None)
            }
            Err(limit) => {
                let failure = Failure::result_too_large(&limit);
                draft
                    .activities()
                    .fail(activity, attempt, &failure, Some(limit));
                let reason = LimitReason::StructuralLimitExceeded;
                (ActivityOutcome::Failed, Some(reason))
            }
        };
        let outcome = TaskOutcome::ActivityReported(ActivityReported {
            limit: limit_reason,
            ..self
                .reporter
                .outcome(outcome, draft.created_workflow_task(run))
        });
        let end = match limit_reason {
            Some(_) => ActivityEnd::Failed,
            None => ActivityEnd::Completed,
        };
        let reply = self.reporter.stored_reply(Verb::Complete, &outcome);
        draft
            .activities()
            .close_task(activity, TaskStatus::Completed, end, Some(reply));
        draft.finish(Ok(TaskReply::first(outcome)))
    }
}

impl Failure {
    fn result_too_large(limit: &LimitBreach) -> Self {
        Self {
            message: format!(
                "The activity's result is larger than a payload may be: {} bytes of base64, {} allowed.",
                limit.value, limit.configured
            ),
            failure_type: Some("StructuralLimitExceeded".to_owned()),
            non_retryable: true,
            ..Self::default()
        }
    }
}

impl Command for FailActivity {
    type Reply = TaskReply;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<TaskReply> {
        let (mut draft, activity, attempt) =
            match self.reporter.authorize_report(run, Verb::Fail, moment) {
                Ok(current) => current,
                Err(decision) => return *decision,
            };
        // The task id leads an operator from the event to the stack trace.
        draft.cause.task_id = Some(self.reporter.row.task_id.clone());
        let listed = activity.retry.as_ref().is_some_and(|retry| {
            retry.non_retryable_error_types.iter().any(|name| {
                self.failure.failure_type.as_ref() == Some(name)
                    || self.failure.class.as_ref() == Some(name)
            })
        });
        let failure = Failure {
            non_retryable: self.failure.non_retryable || listed,
            ..self.failure.clone()
        };
        let retry = if failure.non_retryable {
            None
        } else {
            draft.retry_at(activity)
        };
        let next_task = match retry {
            Some(at) => {
                let event = |event: &mut ActivityRetryScheduled| {
                    event.exception_type.clone_from(&failure.failure_type);
                    event.exception_class.clone_from(&failure.class);
                    event.message = Some(failure.message.clone());
                    event.code.clone_from(&failure.code);
                };
                Some(draft.activities().retry(activity.clone(), at, event))
            }
            None => {
                draft.activities().fail(activity, attempt, &failure, None);
                draft.created_workflow_task(run).cloned()
            }
        };
        let outcome = TaskOutcome::ActivityReported(ActivityReported {
            retry_scheduled: Some(retry.is_some()),
            ..self
                .reporter
                .outcome(ActivityOutcome::Failed, next_task.as_ref())
        });
        let mut reply = self.reporter.stored_reply(Verb::Fail, &outcome);
        reply.diagnosis = Some(Box::new(Diagnosis {
            failure_type: failure.failure_type.clone(),
            stack_trace: failure.stack_trace.clone(),
            at: draft.now,
        }));
        draft.activities().close_task(
            activity,
            TaskStatus::Completed,
            ActivityEnd::Failed,
            Some(reply),
        );
        draft.finish(Ok(TaskReply::first(outcome)))
    }
}

impl Activities<'_, '_> {
    /// Fails the activity for good.
    fn fail(
        &mut self,
        activity: &Activity,
        attempt: &Attempt,
        failure: &Failure,
        limit: Option<LimitBreach>,
    ) {
        let mut exception = Map::new();
        exception.insert("message".to_owned(), json!(failure.message));
        exception.insert("non_retryable".to_owned(), json!(failure.non_retryable));
        if let Some(failure_type) = &failure.failure_type {
            exception.insert("type".to_owned(), json!(failure_type));
        }
        if let Some(code) = &failure.code {
            exception.insert("code".to_owned(), code.clone());
        }
        if let Some(details) = &failure.details {
            exception.insert("details".to_owned(), json!(details.blob()));
            exception.insert("details_payload_codec".to_owned(), json!(PAYLOAD_CODEC));
        }
        if let Some(diagnostics) = &failure.diagnostics {
            exception.insert("diagnostics".to_owned(), diagnostics.clone());
        }
        if let Some(diagnostics) = &failure.runtime_diagnostics {
            exception.insert("runtime_diagnostics".to_owned(), diagnostics.clone());
        }
        let failure_id = self.draft.ids.mint();
        self.draft
            .append(EventPayload::ActivityFailed(Box::new(ActivityFailed {
                call: activity.call(),
                activity_attempt_id: attempt.id.clone(),
                attempt_number: attempt.number,
                failure_id,
                failure_category: if limit.is_some() {
                    "structural_limit"
                } else {
                    "activity"
                },
                non_retryable: failure.non_retryable,
                exception_type: failure.failure_type.clone(),
                exception_class: failure.class.clone(),
                message: failure.message.clone(),
                code: failure.code.clone(),
                exception,
                limit,
            })));
        self.remove(activity.sequence);
        self.draft.groups().resolve(
            activity.group.as_ref(),
            CallEnd::Failed,
            activity.resume("ActivityFailed"),
        );
    }
}
