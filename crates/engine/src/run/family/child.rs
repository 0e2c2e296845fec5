//! Child workflows. A child is created in the transaction that requests it. All later communication between the two runs uses the
//! outbox, because a transaction writes one existing run only.
//!
//! A child retries by itself: the transaction that closes a failed run starts the next one, exactly as continue-as-new does. So the
//! workflow id always has a current run, and the parent is only informed that another run of the same call began.

use std::sync::Arc;

use longhaul_protocol::history::{
    ChildCall, ChildFailure, ChildResult, ChildRetry, ChildRetryPolicy, ChildRunClosed,
    ChildRunStarted, ChildTimeoutPolicy, ChildTiming, ChildWorkflowScheduled, EventPayload,
    GroupKeys, LimitBreach, PAYLOAD_CODEC, ParentKeys,
};
use longhaul_protocol::id::{ChildCallId, RunId, TaskQueue, WorkflowId};
use longhaul_protocol::parallel_group::Group;
use longhaul_protocol::sequence::{CommandSeq, RequestSeq};
use longhaul_protocol::workflow_command::{
    CancellationPolicy, CommandRetryPolicy, ParentClosePolicy, StartChildWorkflow,
};
use longhaul_protocol::{Payload, Timestamp};
use serde::{Deserialize, Serialize};

use crate::change::InstanceChange;
use crate::conductor::execution::command::start;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::operator::code_run;
use crate::conductor::execution::state::CalledDefinition;
use crate::run::draft::{Children, Draft};
use crate::run::family::outbox::OutboxBody;
use crate::run::start::fresh_core;
use crate::run::state::retry_policy::backoff_seconds;
use crate::run::state::{
    ClosedReason, Message, Outcome, Part, PartKey, Program, Resume, Routing, Run, RunFailure, Spec,
    Status,
};
use crate::run::wait::group::CallEnd;
use crate::{Command, Decision, Moment, limits};

/// The call of the parent that a child run belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    /// Command sequence of the call.
    pub sequence: CommandSeq,
    pub call_id: ChildCallId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
    /// Runs that this call has started, continued ones not counted.
    pub attempt: u64,
    /// Set when the run repeats one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<ChildRetry>,
    /// The parent is a definition run and the child a run of code, or the other way round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_family: bool,
}

/// A run of code that a definition run starts.
pub(crate) struct NewCodeRun {
    pub(crate) workflow_id: WorkflowId,
    pub(crate) workflow_type: String,
    pub(crate) task_queue: TaskQueue,
    pub(crate) arguments: Payload,
    pub(crate) parent: Parent,
}

/// An open call of a child workflow, on the parent's side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Child {
    pub sequence: CommandSeq,
    pub call_id: ChildCallId,
    pub workflow_id: WorkflowId,
    pub first_run_id: RunId,
    /// The newest run that the parent knows.
    pub run_id: RunId,
    pub run_number: u64,
    /// As scheduled, even if the child continued as another type.
    pub workflow_type: String,
    pub parent_close_policy: ParentClosePolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellation_policy: Option<CancellationPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// A cancellation request was passed on to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_requested: bool,
}

impl Child {
    /// Returns the run id in events. A member of a selection is identified by its first run in every event: that is its identity
    /// for replay.
    fn shown_run_id(&self) -> &RunId {
        let selected = self
            .group
            .as_ref()
            .is_some_and(|group| group.member().is_some());
        if selected {
            &self.first_run_id
        } else {
            &self.run_id
        }
    }

    fn call(&self) -> ChildCall {
        ChildCall {
            sequence: self.sequence,
            child_call_id: self.call_id.clone(),
            workflow_link_id: self.call_id.clone(),
            child_workflow_instance_id: self.workflow_id.clone(),
            child_workflow_run_id: self.shown_run_id().clone(),
            child_workflow_type: self.workflow_type.clone(),
            parent_close_policy: self.parent_close_policy,
            cancellation_policy: self.cancellation_policy,
            group: GroupKeys(self.group.clone()),
        }
    }

    fn started(&self, timing: ChildTiming, retry: Option<ChildRetry>) -> EventPayload {
        EventPayload::ChildRunStarted(Box::new(ChildRunStarted {
            call: self.call(),
            child_run_number: self.run_number,
            retry_policy: self.retry_policy.clone(),
            timeout_policy: self.timeout_policy.clone(),
            timing,
            retry,
        }))
    }
}

impl Parent {
    pub(crate) fn keys(&self) -> ParentKeys {
        ParentKeys {
            parent_workflow_instance_id: self.workflow_id.clone(),
            parent_workflow_run_id: self.run_id.clone(),
            parent_sequence: self.sequence,
            workflow_link_id: self.call_id.clone(),
            child_call_id: self.call_id.clone(),
            retry_policy: self.retry_policy.clone(),
            timeout_policy: self.timeout_policy.clone(),
        }
    }
}

/// A run of a child in a report to its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildRun {
    pub run_id: RunId,
    pub run_number: u64,
    pub timing: ChildTiming,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<ChildRetry>,
}

impl ChildRun {
    pub(crate) fn of(spec: &Spec) -> Self {
        Self {
            run_id: spec.run_id.clone(),
            run_number: spec.run_number,
            timing: timing(spec),
            retry: spec.parent.as_ref().and_then(|parent| parent.retry.clone()),
        }
    }
}

fn timing(spec: &Spec) -> ChildTiming {
    ChildTiming {
        execution_timeout_seconds: spec.execution_timeout_seconds,
        run_timeout_seconds: spec.run_timeout_seconds,
        execution_deadline_at: spec.execution_deadline_at,
        run_deadline_at: spec.run_deadline_at,
    }
}

/// A child reports to its parent that a run of it began, or how it ended. Delivered at least once, applied once.
#[derive(Clone, Debug)]
pub struct ReportChildRun {
    pub call_id: ChildCallId,
    pub run: ChildRun,
    pub closed: Option<ChildClosed>,
}

/// How a child ended.
#[derive(Clone, Debug)]
pub struct ChildClosed {
    pub reason: ClosedReason,
    pub at: Timestamp,
    /// The reason in cancel or terminate.
    pub note: Option<String>,
    pub outcome: Option<Outcome>,
}

/// The outcome of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    /// Applied, or no longer needed.
    Taken,
    /// The parent continued as this run, which keeps the child for its close policy.
    Forward(RunId),
}

impl Command for ReportChildRun {
    type Reply = Reported;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Reported> {
        if let Some(closed) = &run.core.closed {
            return Decision::unchanged(match &closed.continued_to {
                Some(next) => Reported::Forward(next.clone()),
                None => Reported::Taken,
            });
        }
        let slot = run.parts.iter().find_map(|(key, part)| {
            let child = part.as_child()?;
            (child.call_id == self.call_id).then(|| (*key, child.clone()))
        });
        let Some((key, child)) = slot.filter(|(_, child)| child.run_number <= self.run.run_number)
        else {
            return Decision::unchanged(Reported::Taken);
        };
        let mut draft = Draft::of(run, moment);
        if draft.time_out_if_due() {
            return draft.finish(Ok(Reported::Taken));
        }
        draft.children().report(key, child, self);
        draft.finish(Ok(Reported::Taken))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<Reported> {
        match run.spec.program {
            Program::Code => Step::Decided(self.decide(run, moment)),
            Program::Definition => code_run::report(self, run, moment, found),
        }
    }
}

impl Children<'_, '_> {
    /// Applies `start_child_workflow`: records the call and creates the first run of the child.
    pub(crate) fn start(
        &mut self,
        sequence: CommandSeq,
        command: &StartChildWorkflow,
    ) -> Result<(), LimitBreach> {
        limits::check(
            "pending_child_count",
            self.draft.core.open.children + 1,
            self.draft.limits.pending_children,
        )?;
        let retry_policy = command.retry_policy.as_ref().map(child_retry_policy);
        let timeout_policy = (command.execution_timeout_seconds.is_some()
            || command.run_timeout_seconds.is_some())
        .then_some(ChildTimeoutPolicy {
            snapshot_version: 1,
            execution_timeout_seconds: command.execution_timeout_seconds,
            run_timeout_seconds: command.run_timeout_seconds,
        });
        let call_id: ChildCallId = self.draft.ids.mint();
        let after =
            |seconds: Option<u64>| seconds.map(|seconds| self.draft.now.plus_seconds(seconds));
        let task_queue = (command.queue.as_deref())
            .map_or_else(|| self.draft.spec.task_queue.clone(), TaskQueue::from);
        let program = if task_queue.as_str() == &*self.draft.limits.conductor_queue {
            Program::Definition
        } else {
            Program::Code
        };
        let called = CalledDefinition::read(&command.workflow_type);
        let (workflow_id, run_id) = match program {
            Program::Code => (self.draft.ids.mint(), self.draft.ids.mint()),
            Program::Definition => {
                let run_id: RunId = self.draft.ids.mint_uuid();
                (run_id.as_str().into(), run_id)
            }
        };
        let spec = Spec {
            namespace: self.draft.spec.namespace.clone(),
            workflow_id,
            run_id,
            run_number: 1,
            program,
            workflow_type: match program {
                Program::Code => command.workflow_type.clone(),
                Program::Definition => called.name.clone(),
            },
            task_queue,
            arguments: command
                .arguments
                .clone()
                .unwrap_or_else(longhaul_protocol::Payload::empty_list),
            started_at: self.draft.now,
            business_key: None,
            run_timeout_seconds: command.run_timeout_seconds,
            execution_timeout_seconds: command.execution_timeout_seconds,
            run_deadline_at: after(command.run_timeout_seconds),
            execution_deadline_at: after(command.execution_timeout_seconds),
            continued_from: None,
            parent: Some(Box::new(Parent {
                workflow_id: self.draft.spec.workflow_id.clone(),
                run_id: self.draft.spec.run_id.clone(),
                sequence,
                call_id: call_id.clone(),
                retry_policy: retry_policy.clone(),
                timeout_policy: timeout_policy.clone(),
                attempt: 1,
                retry: None,
                other_family: program == Program::Definition,
            })),
            routing: self.draft.spec.routing.clone(),
            declared: serde_json::Map::new(),
        };
        let child = Child {
            sequence,
            call_id,
            workflow_id: spec.workflow_id.clone(),
            first_run_id: spec.run_id.clone(),
            run_id: spec.run_id.clone(),
            run_number: 1,
            workflow_type: command.workflow_type.clone(),
            parent_close_policy: command.parent_close_policy,
            cancellation_policy: command.cancellation_policy,
            retry_policy,
            timeout_policy,
            group: command.group.clone(),
            stop_requested: false,
        };
        self.draft.groups().join(
            sequence,
            "child",
            Some(&command.workflow_type),
            command.group.as_ref(),
            child.run_id.as_str(),
        );
        self.draft
            .append(EventPayload::ChildWorkflowScheduled(Box::new(
                ChildWorkflowScheduled {
                    call: child.call(),
                    retry_policy: child.retry_policy.clone(),
                    timeout_policy: child.timeout_policy.clone(),
                },
            )));
        self.draft.append(child.started(timing(&spec), None));
        self.draft.core.open.children += 1;
        self.draft
            .put(PartKey::Child(sequence), Part::Child(Box::new(child)));
        match program {
            Program::Code => self.create_run(
                spec,
                InstanceChange::Create,
                RequestSeq::ZERO,
                self.draft.now,
                Vec::new(),
            ),
            Program::Definition => self.create_definition_run(spec, called),
        }
        Ok(())
    }

    /// Creates a definition run without a pass. Its alarm is due at once, and its first pass, a transaction of its own, finds the
    /// definition: a definition that does not exist is a child that failed, and not a refused completion.
    fn create_definition_run(&mut self, spec: Spec, called: CalledDefinition) {
        let mut core = fresh_core(self.draft.now);
        core.status = Status::Running;
        core.execution = Some(Box::new(start::called(called, self.draft.now)));
        let mut next = Draft::new_run(
            Arc::new(spec),
            core,
            self.draft.ids.clone(),
            self.draft.now,
            self.draft.limits,
        );
        next.instance = Some(InstanceChange::Create);
        self.draft.ids = next.ids.clone();
        self.draft.created.push(*next.into_change().0);
    }

    /// Creates a run of code for a definition run, which has no state that code inherits. Returns its id.
    pub(crate) fn create_code_run(&mut self, new: NewCodeRun) -> RunId {
        let run_id: RunId = self.draft.ids.mint();
        let spec = Spec {
            namespace: self.draft.spec.namespace.clone(),
            workflow_id: new.workflow_id,
            run_id: run_id.clone(),
            run_number: 1,
            program: Program::Code,
            workflow_type: new.workflow_type,
            task_queue: new.task_queue,
            arguments: new.arguments,
            started_at: self.draft.now,
            business_key: None,
            run_timeout_seconds: None,
            execution_timeout_seconds: None,
            run_deadline_at: None,
            execution_deadline_at: None,
            continued_from: None,
            parent: Some(Box::new(new.parent)),
            routing: Routing::default(),
            declared: serde_json::Map::new(),
        };
        self.create_run(
            spec,
            InstanceChange::Create,
            RequestSeq::ZERO,
            self.draft.now,
            Vec::new(),
        );
        run_id
    }

    /// Creates a run that begins in this transaction, with its inherited state.
    fn create_run(
        &mut self,
        spec: Spec,
        instance: InstanceChange,
        instance_command_sequence: RequestSeq,
        available_at: Timestamp,
        moved: Vec<Message>,
    ) {
        let mut core = fresh_core(self.draft.now);
        core.instance_command_sequence = instance_command_sequence;
        // Streams belong to the workflow, not to one run of it.
        if spec.workflow_id == self.draft.spec.workflow_id {
            core.streams = Arc::clone(&self.draft.core.streams);
        }
        self.draft.core.copy_inherited_to(&mut core);
        let mut next = Draft::new_run(
            Arc::new(spec),
            core,
            self.draft.ids.clone(),
            self.draft.now,
            self.draft.limits,
        );
        next.instance = Some(instance);
        next.append_started(None);
        next.workflow_task().create(Resume::default());
        if available_at > self.draft.now {
            next.workflow_task().put_off(available_at);
        }
        for message in moved {
            next.signals().accept_message(message);
        }
        self.draft.ids = next.ids.clone();
        self.draft.created.push(*next.into_change().0);
    }

    /// Starts a failed child run again if its policy allows it. Returns the new run.
    pub(crate) fn retry(&mut self, failure: &RunFailure) -> Option<RunId> {
        let parent = self.draft.spec.parent.as_deref()?;
        let policy = parent.retry_policy.as_ref()?;
        let listed = |name: &Option<String>| {
            name.as_ref()
                .is_some_and(|name| policy.non_retryable_error_types.contains(name))
        };
        let spent = policy.max_attempts.is_some_and(|max| parent.attempt >= max);
        let out_of_time = self
            .draft
            .spec
            .execution_deadline_at
            .is_some_and(|deadline| deadline <= self.draft.now);
        if spent
            || out_of_time
            || failure.non_retryable
            || listed(&failure.exception_type)
            || listed(&failure.exception_class)
        {
            return None;
        }
        let backoff = backoff_seconds(&policy.backoff_seconds, parent.attempt);
        let run_id: RunId = self.draft.ids.mint();
        let parent = Parent {
            attempt: parent.attempt + 1,
            retry: Some(ChildRetry {
                retry_attempt: parent.attempt + 1,
                retry_of_child_workflow_run_id: self.draft.spec.run_id.clone(),
                retry_backoff_seconds: backoff,
            }),
            ..parent.clone()
        };
        let spec = Spec {
            run_id: run_id.clone(),
            run_number: self.draft.spec.run_number + 1,
            started_at: self.draft.now,
            run_deadline_at: self
                .draft
                .spec
                .run_timeout_seconds
                .map(|seconds| self.draft.now.plus_seconds(seconds.saturating_add(backoff))),
            continued_from: None,
            parent: Some(Box::new(parent)),
            ..(*self.draft.spec).clone()
        };
        self.draft
            .outbox()
            .enqueue(OutboxBody::ChildRunStarted(ChildRun::of(&spec)));
        let available_at = self.draft.now.plus_seconds(backoff);
        let instance = InstanceChange::MoveCurrent {
            run_number: spec.run_number,
        };
        let sequence = self.draft.core.instance_command_sequence;
        let unread = self.draft.streams().messages_to_move();
        self.create_run(spec, instance, sequence, available_at, unread);
        Some(run_id)
    }

    /// Applies a report of a child, once.
    fn report(&mut self, key: PartKey, mut child: Child, report: &ReportChildRun) {
        let adopted = matches!(key, PartKey::Adopted(_));
        if child.run_number < report.run.run_number {
            child.run_id = report.run.run_id.clone();
            child.run_number = report.run.run_number;
            if !adopted {
                self.draft
                    .inform(child.started(report.run.timing.clone(), report.run.retry.clone()));
            }
        }
        let Some(closed) = &report.closed else {
            let child = Box::new(child);
            self.draft.put(
                key,
                if adopted {
                    Part::Adopted(child)
                } else {
                    Part::Child(child)
                },
            );
            return;
        };
        self.draft.remove(key);
        if adopted {
            return;
        }
        self.draft.core.open.children = self.draft.core.open.children.saturating_sub(1);
        let event = self.closed(&child, closed);
        let resume = Resume {
            workflow_wait_kind: Some("child".to_owned()),
            open_wait_id: Some(format!("child:{}", child.call_id)),
            resume_source_kind: Some("child_workflow_run".to_owned()),
            resume_source_id: Some(child.run_id.to_string()),
            child_call_id: Some(child.call_id.clone()),
            child_workflow_run_id: Some(child.run_id.clone()),
            workflow_sequence: Some(child.sequence),
            workflow_event_type: Some(event.event_type().to_owned()),
            ..Resume::default()
        };
        self.draft.append(event);
        let end = match closed.reason {
            ClosedReason::Completed => CallEnd::Completed,
            ClosedReason::Continued
            | ClosedReason::Failed
            | ClosedReason::TimedOut
            | ClosedReason::Cancelled
            | ClosedReason::Terminated => CallEnd::Failed,
        };
        self.draft
            .groups()
            .resolve(child.group.as_ref(), end, resume);
    }

    fn closed(&mut self, child: &Child, closed: &ChildClosed) -> EventPayload {
        let (result, failure) = match &closed.outcome {
            Some(Outcome::Output(output)) => (
                Some(ChildResult {
                    result: output.clone(),
                    output: output.clone(),
                    payload_codec: PAYLOAD_CODEC,
                }),
                None,
            ),
            Some(Outcome::Failure(failure)) => (None, Some(self.failure(child, closed, failure))),
            None => (None, None),
        };
        let event = Box::new(ChildRunClosed {
            call: child.call(),
            child_run_number: child.run_number,
            child_status: closed.reason.status().as_str(),
            closed_reason: closed.reason.as_str(),
            closed_at: closed.at,
            result,
            failure,
        });
        match closed.reason {
            ClosedReason::Completed | ClosedReason::Continued => {
                EventPayload::ChildRunCompleted(event)
            }
            ClosedReason::Failed | ClosedReason::TimedOut => EventPayload::ChildRunFailed(event),
            ClosedReason::Cancelled => EventPayload::ChildRunCancelled(event),
            ClosedReason::Terminated => EventPayload::ChildRunTerminated(event),
        }
    }

    fn failure(
        &mut self,
        child: &Child,
        closed: &ChildClosed,
        failure: &RunFailure,
    ) -> ChildFailure {
        let message = match &closed.note {
            _ if !closed.reason.was_stopped() => failure.message.clone(),
            Some(note) => format!(
                "Child workflow {} closed as {}: {note}",
                child.workflow_id,
                closed.reason.as_str(),
            ),
            None => format!(
                "Child workflow {} closed as {}.",
                child.workflow_id,
                closed.reason.as_str(),
            ),
        };
        ChildFailure {
            failure_id: self.draft.ids.mint(),
            failure_category: failure.failure_category.clone(),
            non_retryable: failure.non_retryable,
            exception_type: failure.exception_type.clone(),
            exception_class: failure.exception_class.clone(),
            message,
            exception: failure.exception.clone(),
        }
    }
}

/// Returns the retry policy of the command as shown in history, without defaults except the single attempt.
fn child_retry_policy(policy: &CommandRetryPolicy) -> ChildRetryPolicy {
    ChildRetryPolicy {
        snapshot_version: 1,
        max_attempts: policy.max_attempts.unwrap_or(Some(1)),
        backoff_seconds: policy.backoff_seconds.clone(),
        non_retryable_error_types: policy.non_retryable_error_types.clone(),
    }
}
