//! Reports of an activity's worker: complete and fail, and the fence that all of its calls pass.
//!
//! Lease expiry alone does not close an attempt: until the next claim its worker may still report. The fence therefore looks
//! at attempts, and at the owner last, because a published worker stops on an owner mismatch.

use longhaul_protocol::history::{
    ActivityCompleted, ActivityFailed, EventPayload, LimitBreach, PAYLOAD_CODEC,
};
use longhaul_protocol::id::{ActivityAttemptId, TaskId, WorkerId};
use longhaul_protocol::{Payload, Reason};
use serde_json::{Map, Value, json};

use crate::change::{Diagnosis, Report, TaskRow, TaskStatus, Verb};
use crate::rejection::RunClosed;
use crate::run::draft::{Activities, Draft};
use crate::run::state::{Activity, Attempt, Part, Run};
use crate::{Command, Decision, Moment, Rejection, limits};

/// Who reports, and on what.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The task's row; it tells what a finished task answers.
    pub row: Box<TaskRow>,
    pub attempt_id: ActivityAttemptId,
    pub owner: WorkerId,
    /// Who reports, from authentication; recorded with what the report writes.
    pub principal: Option<String>,
}

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
    /// Details that were no payload, and what the worker sent for people only.
    pub diagnostics: Option<Value>,
    pub runtime_diagnostics: Option<Value>,
    /// For people; kept with the task, not in history.
    pub stack_trace: Option<String>,
}

/// The answer to a complete or fail, as it is also given to a repeat of the same call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub body: Value,
    pub duplicate: bool,
}

/// Where a report stands after the fence.
pub(crate) enum Fenced {
    Current(Box<Activity>, Attempt),
    Duplicate(Value),
    Refused(Rejection),
}

impl Reporter {
    /// The order is the protocol's (worker-protocol §8.5): task, attempt, stored outcome, run, attempt current, owner.
    pub(crate) fn fence(&self, run: &Run, verb: Option<Verb>) -> Fenced {
        let activity = run.activity(self.row.sequence);
        let open = activity.filter(|activity| activity.task_id == self.row.task_id);
        let current = open
            .and_then(|activity| activity.attempt.as_ref())
            .filter(|attempt| attempt.id == self.attempt_id);
        let mut verdict = None;
        if current.is_none() {
            verdict = Some(match &self.row.closed {
                Some(closed) if closed.attempts.contains(&self.attempt_id) => {
                    if let Some(report) = &closed.report
                        && Some(report.verb) == verb
                        && report.owner == self.owner
                        && report.attempt_id.as_ref() == Some(&self.attempt_id)
                    {
                        return Fenced::Duplicate(report.answer.clone());
                    }
                    let reported = closed
                        .report
                        .as_ref()
                        .is_some_and(|report| report.attempt_id.as_ref() == Some(&self.attempt_id));
                    if reported {
                        Rejection::AttemptClosed
                    } else if closed.activity_status.as_deref() == Some("cancelled") {
                        Rejection::ActivityCancelled
                    } else {
                        Rejection::StaleAttempt
                    }
                }
                _ => self.unknown_here(run, activity),
            });
            if matches!(
                verdict,
                Some(Rejection::AttemptNotFound | Rejection::TaskMismatch)
            ) {
                return Fenced::Refused(verdict.expect("just matched"));
            }
        }
        if let Some(closed) = &run.core.closed {
            return Fenced::Refused(Rejection::RunClosed(Box::new(RunClosed {
                status: run.core.status,
                closed: closed.clone(),
                task_status: self.row.status,
                lease_owner: self.row.lease_owner.clone(),
                lease_expires_at: self.row.lease_expires_at,
            })));
        }
        match (verdict, open, current) {
            (None, Some(activity), Some(attempt)) if attempt.owner == self.owner => {
                Fenced::Current(Box::new(activity.clone()), attempt.clone())
            }
            (None, _, Some(attempt)) => Fenced::Refused(Rejection::LeaseOwnerMismatch {
                owner: attempt.owner.clone(),
            }),
            (verdict, _, _) => Fenced::Refused(verdict.unwrap_or(Rejection::StaleAttempt)),
        }
    }

    /// An attempt that this task's finished row does not know: an earlier one of this task, one of another task of the run,
    /// or nobody's.
    fn unknown_here(&self, run: &Run, activity: Option<&Activity>) -> Rejection {
        let of_this_task = |activity: &Activity| {
            activity
                .past_attempts
                .iter()
                .any(|past| past.id == self.attempt_id && past.task_id == self.row.task_id)
        };
        let of_any_task = |activity: &Activity| {
            activity
                .attempt
                .as_ref()
                .is_some_and(|attempt| attempt.id == self.attempt_id)
                || activity
                    .past_attempts
                    .iter()
                    .any(|past| past.id == self.attempt_id)
        };
        if activity.is_some_and(of_this_task) {
            Rejection::StaleAttempt
        } else if run
            .parts
            .values()
            .filter_map(Part::as_activity)
            .any(of_any_task)
        {
            Rejection::TaskMismatch
        } else {
            Rejection::AttemptNotFound
        }
    }

    fn report(&self, verb: Verb, answer: &Value) -> Report {
        Report {
            verb,
            owner: self.owner.clone(),
            attempt: 0,
            attempt_id: Some(self.attempt_id.clone()),
            answer: answer.clone(),
            diagnosis: None,
        }
    }

    fn answer(
        &self,
        outcome: &str,
        reason: Option<Reason>,
        next_task_id: Option<&TaskId>,
    ) -> Value {
        json!({
            "task_id": self.row.task_id,
            "activity_attempt_id": self.attempt_id,
            "outcome": outcome,
            "recorded": true,
            "reason": reason.map(Reason::as_str),
            "next_task_id": next_task_id,
        })
    }
}

impl Command for CompleteActivity {
    type Reply = Answer;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Answer> {
        let (activity, attempt) = match fence_report(&self.reporter, run, Verb::Complete, moment) {
            Ok(current) => current,
            Err(decision) => return decision,
        };
        let mut draft = Draft::of(run, moment);
        draft.cause.principal.clone_from(&self.reporter.principal);
        if let Err(limit) = limits::check(
            "payload_size",
            self.result.blob().len() as u64,
            moment.limits.payload_bytes,
        ) {
            let failure = Failure {
                message: format!(
                    "The activity's result is larger than a payload may be: {} bytes of base64, {} allowed.",
                    limit.value, limit.configured
                ),
                failure_type: Some("StructuralLimitExceeded".to_owned()),
                non_retryable: true,
                ..Failure::default()
            };
            draft
                .activities()
                .fail(&activity, &attempt, &failure, Some(limit));
            let answer = self.reporter.answer(
                "failed",
                Some(Reason::StructuralLimitExceeded),
                draft.created_workflow_task(run),
            );
            draft.activities().close_task(
                &activity,
                TaskStatus::Completed,
                "failed",
                Some(self.reporter.report(Verb::Complete, &answer)),
            );
            return draft.finish(Ok(Answer {
                body: answer,
                duplicate: false,
            }));
        }
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
            false,
            activity.resume("ActivityCompleted"),
        );
        let answer = self
            .reporter
            .answer("completed", None, draft.created_workflow_task(run));
        draft.activities().close_task(
            &activity,
            TaskStatus::Completed,
            "completed",
            Some(self.reporter.report(Verb::Complete, &answer)),
        );
        draft.finish(Ok(Answer {
            body: answer,
            duplicate: false,
        }))
    }
}

impl Command for FailActivity {
    type Reply = Answer;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Answer> {
        let (activity, attempt) = match fence_report(&self.reporter, run, Verb::Fail, moment) {
            Ok(current) => current,
            Err(decision) => return decision,
        };
        let mut draft = Draft::of(run, moment);
        // Finds the task, and with it the trace, from the event.
        draft.cause.task_id = Some(self.reporter.row.task_id.clone());
        draft.cause.principal.clone_from(&self.reporter.principal);
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
            draft.retry_at(&activity)
        };
        let mut answer;
        match retry {
            Some(at) => {
                let next = draft.activities().retry((*activity).clone(), at, |event| {
                    event.exception_type.clone_from(&failure.failure_type);
                    event.exception_class.clone_from(&failure.class);
                    event.message = Some(failure.message.clone());
                    event.code.clone_from(&failure.code);
                });
                answer = self.reporter.answer("failed", None, Some(&next));
            }
            None => {
                draft.activities().fail(&activity, &attempt, &failure, None);
                answer = self
                    .reporter
                    .answer("failed", None, draft.created_workflow_task(run));
            }
        }
        answer["retry_scheduled"] = json!(retry.is_some());
        let mut report = self.reporter.report(Verb::Fail, &answer);
        report.diagnosis = Some(Box::new(Diagnosis {
            failure_type: failure.failure_type.clone(),
            stack_trace: failure.stack_trace.clone(),
            at: draft.now,
        }));
        draft
            .activities()
            .close_task(&activity, TaskStatus::Completed, "failed", Some(report));
        draft.finish(Ok(Answer {
            body: answer,
            duplicate: false,
        }))
    }
}

/// The shared beginning of complete and fail: either the current attempt, or the finished decision.
fn fence_report(
    reporter: &Reporter,
    run: &Run,
    verb: Verb,
    moment: Moment<'_>,
) -> Result<(Box<Activity>, Attempt), Decision<Answer>> {
    match reporter.fence(run, Some(verb)) {
        Fenced::Duplicate(body) => Err(Decision::unchanged(Answer {
            body,
            duplicate: true,
        })),
        Fenced::Refused(rejection) => Err(Decision::reject(rejection)),
        Fenced::Current(activity, attempt) => {
            let mut draft = Draft::of(run, moment);
            if draft.time_out_if_due() {
                let closed = draft.core.closed.clone().expect("the run was just closed");
                let rejection = Rejection::RunClosed(Box::new(RunClosed {
                    status: draft.core.status,
                    closed,
                    task_status: TaskStatus::Cancelled,
                    lease_owner: None,
                    lease_expires_at: None,
                }));
                return Err(draft.finish(Err(rejection)));
            }
            Ok((activity, attempt))
        }
    }
}

impl Activities<'_, '_> {
    /// The activity failed for good.
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
            true,
            activity.resume("ActivityFailed"),
        );
    }
}
