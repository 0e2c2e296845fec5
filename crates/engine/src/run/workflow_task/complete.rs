//! A worker completes a workflow task: the only place where workflow commands become events.
//!
//! Order: stored reply to the same call, fence, checks against the state, then waits that the decision consumed, its commands,
//! buffered messages, overdue timeouts, the terminal event, and the next task. All of it or nothing.

use std::sync::Arc;

use longhaul_protocol::Payload;
use longhaul_protocol::history::{EventPayload, LimitBreach, PAYLOAD_CODEC, WorkflowCompleted};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};
use longhaul_protocol::workflow_command::WorkflowCommand;

use crate::change::{
    ExceededLimit, StoredReply, TaskOutcome, TaskReply, TaskStatus, Verb, WorkflowTaskCompleted,
};
use crate::run::close::limit_failure;
use crate::run::draft::{Cause, Draft, Unseen, WorkflowTasks};
use crate::run::message::stream::StreamCursor;
use crate::run::state::{ClosedReason, Outcome, Run, Status, WorkflowTask};
use crate::run::wait::condition::AfterDecision;
use crate::run::workflow_task::batch::Batch;
use crate::run::workflow_task::lease::Holder;
use crate::run::workflow_task::sticky::StickyClaim;
use crate::run::workflow_task::wake::LookAgain;
use crate::visibility::Definitions;
use crate::{Command, Decision, Moment, limits};

/// The decision of a worker.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    pub commands: Vec<WorkflowCommand>,
    /// How far the workflow has read its message streams.
    pub cursors: Vec<StreamCursor>,
    /// The worker kept the run's history in memory.
    pub sticky: Option<StickyClaim>,
}

impl From<Vec<WorkflowCommand>> for Completion {
    fn from(commands: Vec<WorkflowCommand>) -> Self {
        Self {
            commands,
            ..Self::default()
        }
    }
}

/// Applies the decision of a worker.
#[derive(Clone, Debug)]
pub struct CompleteWorkflowTask {
    pub holder: Holder,
    pub completion: Arc<Completion>,
    /// The search attributes that the namespace defines; only read if a command sets some.
    pub definitions: Arc<Definitions>,
}

impl Command for CompleteWorkflowTask {
    type Reply = TaskReply;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<TaskReply> {
        let (mut draft, task) = match self.holder.authorize_report(run, Verb::Complete, moment) {
            Ok(held) => held,
            Err(not_held) => return not_held.into_decision(),
        };
        let batch = match draft.place(&self.completion.commands, &self.definitions) {
            Ok(batch) => batch,
            Err(rejection) => return Decision::reject(rejection),
        };
        draft
            .workflow_task()
            .record_sticky(&self.holder.named.owner, self.completion.sticky.as_ref());
        let applied = check_sizes(&self.completion.commands, &self.definitions, run, moment)
            .and_then(|()| apply(run, draft, &task, &batch, &self.completion.cursors));
        let (mut draft, limit) = match applied {
            Ok(draft) => (draft, None),
            // The batch is dropped and the run fails. A refusal would stop one kind of worker and make the other retry without end.
            Err(limit) => (
                fail_over_limit(run, moment, &task, limit.clone()),
                Some(limit),
            ),
        };
        let outcome = self.outcome(&draft, limit.as_ref());
        let reply = self.holder.stored_reply(Verb::Complete, &outcome);
        draft.workflow_task().store_reply(&task, reply);
        draft.finish(Ok(TaskReply::first(outcome)))
    }
}

impl CompleteWorkflowTask {
    fn outcome(&self, draft: &Draft<'_>, limit: Option<&LimitBreach>) -> TaskOutcome {
        // Completing a task opens new ones and touches no other open one.
        let opened = draft
            .tasks
            .values()
            .filter(|row| row.status.is_open() && row.task_id != *self.holder.task_id());
        let of_new_runs = draft.created.iter().flat_map(|change| &change.tasks);
        TaskOutcome::WorkflowTaskCompleted(WorkflowTaskCompleted {
            task_id: self.holder.task_id().clone(),
            attempt: self.holder.named.attempt,
            run_id: draft.run_id().clone(),
            run_status: draft.core.status,
            created_task_ids: opened
                .chain(of_new_runs)
                .map(|row| row.task_id.clone())
                .collect(),
            limit: limit.map(ExceededLimit::from),
        })
    }
}

/// Checks the commands against the structural limits, before anything is applied.
pub(crate) fn check_sizes(
    commands: &[WorkflowCommand],
    definitions: &Definitions,
    run: &Run,
    moment: Moment<'_>,
) -> Result<(), LimitBreach> {
    limits::check(
        "command_batch_size",
        commands.len() as u64,
        moment.limits.commands_per_completion,
    )?;
    for payload in commands.iter().flat_map(WorkflowCommand::payloads) {
        limits::check(
            "payload_size",
            payload.blob().len() as u64,
            moment.limits.payload_bytes,
        )?;
    }
    for command in commands {
        let WorkflowCommand::UpsertSearchAttributes {
            attributes,
            attribute_types,
        } = command
        else {
            continue;
        };
        for (key, value) in attributes {
            let now = attribute_types.as_ref().and_then(|types| types.get(key));
            let declared = now.or_else(|| run.core.search_attribute_types.get(key));
            definitions.check_size(key, declared, value)?;
        }
    }
    Ok(())
}

/// Applies a placed batch. An error means that a structural limit is broken and the draft must be dropped.
pub(crate) fn apply<'a>(
    run: &Run,
    mut draft: Draft<'a>,
    task: &WorkflowTask,
    batch: &Batch<'_>,
    cursors: &[StreamCursor],
) -> Result<Draft<'a>, LimitBreach> {
    if !task.is_update() {
        draft.consume_waits(task, batch);
    }
    draft.streams().advance(cursors);
    for (sequence, command) in &batch.steps {
        match sequence {
            Some(sequence) => {
                draft.apply_call(*sequence, command)?;
                draft.core.last_command_sequence = *sequence;
            }
            None => draft.apply_remark(command),
        }
    }
    if let Some(WorkflowCommand::ContinueAsNew {
        arguments,
        workflow_type,
        queue,
    }) = batch.terminal
    {
        draft.check_decision_size(batch)?;
        draft.core.last_command_sequence = batch.next_sequence;
        draft.continue_as_new(
            batch.next_sequence,
            arguments.as_ref(),
            workflow_type.as_deref(),
            queue.as_deref(),
        );
    } else {
        draft.check_decision_size(batch)?;
        let made_progress = !draft.events.is_empty();
        let unseen = draft.unseen();
        draft.signals().flush_buffered();
        draft.timers().fire_overdue_wait_timeouts();
        match batch.terminal {
            Some(WorkflowCommand::CompleteWorkflow { result }) => {
                draft.complete_run(result.as_ref())
            }
            Some(WorkflowCommand::FailWorkflow(failure)) => draft.fail_run(failure, None),
            _ if task.is_update() => draft.workflow_task().end_update(),
            // Calls and ends of waits that the task wrote are progress: if nothing is left to wait for, the workflow must look
            // again. An acknowledgement that wrote nothing is no progress; otherwise it would be requested without end.
            _ => draft.workflow_task().end_plain(task, unseen, made_progress),
        }
    }
    // A command that closes the run is always accepted.
    if batch.terminal.is_none() {
        draft.check_events_since(run)?;
    }
    Ok(draft)
}

pub(crate) fn fail_over_limit<'a>(
    run: &'a Run,
    moment: Moment<'a>,
    task: &WorkflowTask,
    limit: LimitBreach,
) -> Draft<'a> {
    let mut draft = Draft::of(run, moment);
    draft.cause = Cause {
        task_id: Some(task.id.clone()),
        ..Cause::default()
    };
    draft.signals().flush_buffered();
    draft.fail_run(&limit_failure(&limit), Some(limit));
    draft
}

impl WorkflowTasks<'_, '_> {
    /// Ends a task that saw everything up to its lease; later events need another task.
    pub(crate) fn end_plain(&mut self, task: &WorkflowTask, unseen: Unseen, made_progress: bool) {
        let observed = task
            .lease
            .as_ref()
            .map_or(HistorySeq::ZERO, |lease| lease.observed_sequence);
        self.draft.core.handled_sequence = self.draft.core.handled_sequence.max(observed);
        self.draft.core.open.unseen_signals = unseen.messages;
        self.draft.core.open.unseen_signal_bytes = unseen.signal_bytes;
        self.draft.groups().remove_handled();
        self.draft.core.workflow_task = None;
        self.draft.core.status = Status::Waiting;
        let blocked = self.draft.has_open_call();
        // A worker sends the commands before the call at which it will deliver a cancellation: another task follows for the
        // delivery.
        let to_deliver = self.draft.has_undelivered_cancellation();
        let again = made_progress && (!blocked || to_deliver);
        self.choose_next(LookAgain::when(again));
    }

    /// Ends the turn of an update. The workflow itself saw nothing, so nothing counts as handled.
    fn end_update(&mut self) {
        self.draft.core.workflow_task = None;
        self.choose_next(LookAgain::No);
    }

    /// Stores the reply in the row of the finished task.
    pub(crate) fn store_reply(&mut self, task: &WorkflowTask, reply: StoredReply) {
        let open = self.draft.core.workflow_task.take();
        self.draft.core.workflow_task = Some(Box::new(task.clone()));
        self.close(TaskStatus::Completed, Some(reply));
        self.draft.core.workflow_task = open;
    }
}

impl Draft<'_> {
    /// Resolves the waits that this decision consumed, before its own events.
    fn consume_waits(&mut self, task: &WorkflowTask, batch: &Batch<'_>) {
        if let Some(lease) = &task.lease
            && let (Some(signal), Some(wait)) = (lease.delivered_signal, lease.delivered_to)
        {
            self.signals().apply_delivered(signal, wait);
        }
        let next = match batch.terminal {
            Some(_) => AfterDecision::RunCloses,
            None => AfterDecision::RunGoesOn,
        };
        self.waits()
            .satisfy_conditions(&batch.sent_again, next, &task.resume);
    }

    /// Counts the events that the workflow caused, before messages that arrived meanwhile are added: the workflow did not cause
    /// those.
    fn check_decision_size(&self, batch: &Batch<'_>) -> Result<(), LimitBreach> {
        limits::check(
            "history_transaction_size",
            self.events.len() as u64 + u64::from(batch.terminal.is_some()),
            self.limits.events_per_transaction,
        )
    }

    /// Applies a command about something that is already recorded.
    pub(crate) fn apply_remark(&mut self, command: &WorkflowCommand) {
        if let WorkflowCommand::CompleteUpdate { update_id, result } = command {
            self.updates().complete(update_id, result.as_ref());
        } else if let WorkflowCommand::FailUpdate(failure) = command {
            self.updates().fail(failure);
        } else if let WorkflowCommand::CancelSelectionOperation(member) = command {
            self.groups().cancel_member(member);
        }
    }

    pub(crate) fn apply_call(
        &mut self,
        sequence: CommandSeq,
        command: &WorkflowCommand,
    ) -> Result<(), LimitBreach> {
        match command {
            WorkflowCommand::ScheduleActivity(activity) => {
                self.activities().schedule(sequence, activity)?
            }
            WorkflowCommand::PrepareLocalActivity(call) => {
                self.schedule_local(sequence, call)?;
            }
            WorkflowCommand::StartTimer {
                delay_seconds,
                group,
            } => {
                limits::check(
                    "pending_timer_count",
                    self.core.open.timers + 1,
                    self.limits.pending_timers,
                )?;
                self.timers()
                    .start(sequence, *delay_seconds, group.as_ref());
            }
            WorkflowCommand::StartChildWorkflow(child) => self.children().start(sequence, child)?,
            WorkflowCommand::OpenConditionWait(wait) => self.waits().open_condition(sequence, wait),
            WorkflowCommand::OpenSignalWait {
                signal_name,
                timeout_seconds,
                group,
            } => {
                self.waits()
                    .open_signal(sequence, signal_name, *timeout_seconds, group.as_ref());
            }
            WorkflowCommand::RecordLocalActivity(local) => {
                self.local_activities().record(sequence, local);
            }
            WorkflowCommand::RecordSideEffect { result } => {
                self.record_side_effect(sequence, result)
            }
            WorkflowCommand::RecordVersionMarker {
                change_id,
                version,
                min_supported,
                max_supported,
            } => {
                self.record_version_marker(
                    sequence,
                    change_id,
                    *version,
                    (*min_supported, *max_supported),
                );
            }
            WorkflowCommand::UpsertSearchAttributes {
                attributes,
                attribute_types,
            } => {
                self.upsert_search_attributes(sequence, attributes, attribute_types.as_ref())?;
            }
            WorkflowCommand::UpsertMemo { entries } => self.upsert_memo(sequence, entries)?,
            WorkflowCommand::CompleteUpdate { .. }
            | WorkflowCommand::FailUpdate(_)
            | WorkflowCommand::CancelSelectionOperation(_)
            | WorkflowCommand::CompleteWorkflow { .. }
            | WorkflowCommand::FailWorkflow(_)
            | WorkflowCommand::ContinueAsNew { .. } => {
                unreachable!("only calls are numbered")
            }
        }
        Ok(())
    }

    fn complete_run(&mut self, result: Option<&Payload>) {
        let output = result.cloned().unwrap_or_else(Payload::null);
        self.append(EventPayload::WorkflowCompleted(WorkflowCompleted {
            output: output.clone(),
            payload_codec: PAYLOAD_CODEC,
        }));
        self.close(
            ClosedReason::Completed,
            None,
            None,
            Some(Outcome::Output(output)),
        );
    }
}
