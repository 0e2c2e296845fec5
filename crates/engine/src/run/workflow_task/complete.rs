//! A worker completes a workflow task: the one place where workflow commands become events (engine.md §3.1).
//!
//! Order: stored answer of the same call, fence, checks against state, then waits that the decision consumed, its commands,
//! buffered messages, overdue timeouts, the terminal event, and the next task. All of it or nothing.

use std::sync::Arc;

use longhaul_protocol::history::{EventPayload, LimitBreach, PAYLOAD_CODEC, WorkflowCompleted};
use longhaul_protocol::id::{TaskId, WorkerId};
use longhaul_protocol::workflow_command::WorkflowCommand;
use longhaul_protocol::{Payload, Reason};
use serde_json::{Value, json};

use crate::change::{ClosedTask, Report, TaskRow, TaskStatus, Verb};
use crate::rejection::RunClosed;
use crate::run::activity::report::Answer;
use crate::run::close::limit_failure;
use crate::run::draft::{Cause, Draft, Unseen, WorkflowTasks};
use crate::run::message::stream::StreamCursor;
use crate::run::state::{ClosedReason, Outcome, Run, Status, WorkflowTask};
use crate::run::workflow_task::batch::Batch;
use crate::run::workflow_task::sticky::StickyClaim;
use crate::visibility::Definitions;
use crate::{Command, Decision, Moment, Rejection, limits};

/// Who reports on a workflow task.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The task's row; it tells what a finished task answers.
    pub row: Box<TaskRow>,
    pub owner: WorkerId,
    pub attempt: u64,
    /// Who reports, from authentication; recorded with what the decision writes.
    pub principal: Option<String>,
}

/// The worker's decision.
#[derive(Clone, Debug)]
pub struct CompleteWorkflowTask {
    pub holder: Holder,
    pub commands: Vec<WorkflowCommand>,
    /// What the namespace says about search attributes; only asked for when a command sets some.
    pub definitions: Arc<Definitions>,
    /// How far the workflow has read its message streams.
    pub cursors: Vec<StreamCursor>,
    /// The worker kept the run's history in memory.
    pub sticky: Option<StickyClaim>,
}

/// What the fence says about a caller.
pub(crate) enum Fenced {
    Held(Box<WorkflowTask>),
    Duplicate(Value),
    Refused(Rejection),
}

impl Holder {
    pub(crate) fn task_id(&self) -> &TaskId {
        &self.row.task_id
    }

    /// The guards of worker-protocol §5.3 in their order; a run past its deadline is handled by the caller.
    pub(crate) fn fence(&self, run: &Run, verb: Option<Verb>, moment: Moment<'_>) -> Fenced {
        let open = run
            .core
            .workflow_task
            .as_ref()
            .filter(|task| task.id == *self.task_id());
        let reported = match open {
            Some(task) => task.last_report.as_deref(),
            None => run.retry_report(self.task_id()).or_else(|| {
                let closed = self.row.closed.as_ref();
                closed.and_then(|closed| closed.report.as_ref())
            }),
        };
        if let Some(report) = reported
            && Some(report.verb) == verb
            && report.owner == self.owner
            && report.attempt == self.attempt
        {
            return Fenced::Duplicate(report.answer.clone());
        }
        if let Some(closed) = &run.core.closed {
            return Fenced::Refused(
                if closed.reason == ClosedReason::TimedOut && verb.is_some() {
                    Rejection::RunTimedOut {
                        run_id: run.run_id().clone(),
                    }
                } else {
                    Rejection::RunClosed(Box::new(RunClosed {
                        status: run.core.status,
                        closed: closed.clone(),
                        task_status: self.row.status,
                        lease_owner: self.row.lease_owner.clone(),
                        lease_expires_at: self.row.lease_expires_at,
                    }))
                },
            );
        }
        let Some(task) = open else {
            return Fenced::Refused(Rejection::TaskNotLeased {
                task_status: self.row.status,
            });
        };
        let Some(lease) = &task.lease else {
            return Fenced::Refused(match &task.expired {
                Some(expired) => Rejection::LeaseExpired {
                    owner: expired.owner.clone(),
                    expires_at: expired.expires_at,
                },
                None => Rejection::TaskNotLeased {
                    task_status: TaskStatus::Ready,
                },
            });
        };
        if lease.expires_at <= moment.now {
            return Fenced::Refused(Rejection::LeaseExpired {
                owner: lease.owner.clone(),
                expires_at: lease.expires_at,
            });
        }
        if lease.owner != self.owner {
            return Fenced::Refused(Rejection::LeaseOwnerMismatch {
                owner: lease.owner.clone(),
            });
        }
        if task.attempt != self.attempt {
            return Fenced::Refused(Rejection::AttemptMismatch {
                current: task.attempt,
            });
        }
        Fenced::Held(Box::new(task.clone()))
    }

    /// The shared beginning of complete, fail and heartbeat: the held task with a draft, or the finished decision.
    pub(crate) fn hold<'a, R>(
        &self,
        run: &'a Run,
        verb: Option<Verb>,
        moment: Moment<'a>,
        answer: impl FnOnce(Value) -> R,
    ) -> Result<(Draft<'a>, Box<WorkflowTask>), Decision<R>> {
        let refused = match self.fence(run, verb, moment) {
            Fenced::Duplicate(body) => return Err(Decision::unchanged(answer(body))),
            Fenced::Refused(rejection) if run.core.closed.is_some() => {
                return Err(Decision::reject(rejection));
            }
            Fenced::Refused(rejection) => Err(rejection),
            Fenced::Held(task) => Ok(task),
        };
        // A passed deadline closes the run before anything else is said about the lease.
        let mut draft = Draft::of(run, moment);
        if draft.time_out_if_due() {
            return Err(self.timed_out(draft, verb));
        }
        let task = refused.map_err(Decision::reject)?;
        draft.cause = Cause {
            task_id: Some(task.id.clone()),
            command_id: None,
            principal: self.principal.clone(),
        };
        Ok((draft, task))
    }

    fn timed_out<R>(&self, draft: Draft<'_>, verb: Option<Verb>) -> Decision<R> {
        let rejection = if verb.is_some() {
            Rejection::RunTimedOut {
                run_id: draft.run_id().clone(),
            }
        } else {
            Rejection::RunClosed(Box::new(RunClosed {
                status: draft.core.status,
                closed: draft.core.closed.clone().expect("the run was just closed"),
                task_status: TaskStatus::Cancelled,
                lease_owner: None,
                lease_expires_at: None,
            }))
        };
        draft.finish(Err(rejection))
    }

    pub(crate) fn report(&self, verb: Verb, answer: &Value) -> Report {
        Report {
            verb,
            owner: self.owner.clone(),
            attempt: self.attempt,
            attempt_id: None,
            answer: answer.clone(),
            diagnosis: None,
        }
    }
}

impl Command for CompleteWorkflowTask {
    type Reply = Answer;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Answer> {
        let duplicate = |body| Answer {
            body,
            duplicate: true,
        };
        let (mut draft, task) = match self
            .holder
            .hold(run, Some(Verb::Complete), moment, duplicate)
        {
            Ok(held) => held,
            Err(decision) => return decision,
        };
        let batch = match draft.place(&self.commands, &self.definitions) {
            Ok(batch) => batch,
            Err(rejection) => return Decision::reject(rejection),
        };
        draft
            .workflow_task()
            .remember_sticky(&self.holder.owner, self.sticky.as_ref());
        let applied = check_sizes(&self.commands, &self.definitions, run, moment)
            .and_then(|()| apply(run, draft, &task, &batch, &self.cursors));
        let (mut draft, limit) = match applied {
            Ok(draft) => (draft, None),
            // The batch is dropped and the run fails: a refusal would stop one worker and loop the other (engine.md §2.7).
            Err(limit) => (
                fail_over_limit(run, moment, &task, limit.clone()),
                Some(limit),
            ),
        };
        let answer = self.answer(&draft, limit.as_ref());
        draft
            .workflow_task()
            .store_reply(&task, self.holder.report(Verb::Complete, &answer));
        draft.finish(Ok(Answer {
            body: answer,
            duplicate: false,
        }))
    }
}

impl CompleteWorkflowTask {
    fn answer(&self, draft: &Draft<'_>, limit: Option<&LimitBreach>) -> Value {
        // Completing a task opens new ones and touches no other open one.
        let opened = draft
            .tasks
            .values()
            .filter(|row| row.status.is_open() && row.task_id != *self.holder.task_id());
        let mut created: Vec<&TaskId> = opened.map(|row| &row.task_id).collect();
        created.extend(
            draft
                .created
                .iter()
                .flat_map(|change| change.tasks.iter().map(|row| &row.task_id)),
        );
        let mut answer = json!({
            "task_id": self.holder.task_id(),
            "workflow_task_attempt": self.holder.attempt,
            "outcome": "completed",
            "recorded": true,
            "run_id": draft.run_id(),
            "run_status": draft.core.status.as_str(),
            "created_task_ids": created,
            "reason": null,
        });
        if let Some(limit) = limit {
            answer["reason"] = json!(Reason::StructuralLimitExceeded.as_str());
            answer["limit_kind"] = json!(limit.kind);
            answer["current_value"] = json!(limit.value);
            answer["configured_limit"] = json!(limit.configured);
        }
        answer
    }
}

/// Whether the commands keep to the structural limits, before anything is applied.
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

/// Applies a placed batch. An error means that a structural limit is broken and the draft must be thrown away.
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
        let wrote = !draft.events.is_empty();
        let unseen = draft.unseen();
        draft.signals().flush_buffered();
        draft.timers().fire_overdue_wait_timeouts();
        match batch.terminal {
            Some(WorkflowCommand::CompleteWorkflow { result }) => {
                draft.complete_run(result.as_ref())
            }
            Some(WorkflowCommand::FailWorkflow(failure)) => draft.fail_run(failure, None),
            _ if task.is_update() => draft.workflow_task().end_update(),
            // What the task wrote, its calls or the ends of its waits, is progress: with nothing left to wait for, the workflow
            // must look again. An acknowledgement that wrote nothing is not, or it would be asked for ever.
            _ => draft.workflow_task().end_plain(task, unseen, wrote),
        }
    }
    // What closes the run is always accepted.
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
    /// The task saw everything up to its lease; what came after wants another look.
    pub(crate) fn end_plain(&mut self, task: &WorkflowTask, unseen: Unseen, made_progress: bool) {
        let observed = task
            .lease
            .as_ref()
            .map_or(0, |lease| lease.observed_sequence);
        self.draft.core.handled_sequence = self.draft.core.handled_sequence.max(observed);
        self.draft.core.open.unseen_signals = unseen.messages;
        self.draft.core.open.unseen_signal_bytes = unseen.signal_bytes;
        self.draft.groups().forget_handled();
        self.draft.core.workflow_task = None;
        self.draft.core.status = Status::Waiting;
        let blocked = self.draft.has_open_call();
        // A worker sends what precedes the call at which it will deliver a cancellation: another task follows for that.
        let to_deliver = self.draft.has_undelivered_cancellation();
        self.choose_next(made_progress && (!blocked || to_deliver));
    }

    /// The update has had its turn. The workflow itself saw nothing, so nothing counts as handled.
    fn end_update(&mut self) {
        self.draft.core.workflow_task = None;
        self.choose_next(false);
    }

    /// Keeps the answer with the finished task's row.
    pub(crate) fn store_reply(&mut self, task: &WorkflowTask, report: Report) {
        let open = self.draft.core.workflow_task.take();
        self.draft.core.workflow_task = Some(task.clone());
        self.close(
            TaskStatus::Completed,
            Some(ClosedTask {
                report: Some(report),
                attempts: Vec::new(),
                activity_status: None,
                stopped: false,
            }),
        );
        self.draft.core.workflow_task = open;
    }
}

impl Draft<'_> {
    /// Waits that this decision shows to be resolved, before its own events.
    fn consume_waits(&mut self, task: &WorkflowTask, batch: &Batch<'_>) {
        if let Some(lease) = &task.lease
            && let (Some(signal), Some(wait)) = (lease.delivered_signal, lease.delivered_to)
        {
            self.signals().apply_delivered(signal, wait);
        }
        self.waits()
            .satisfy_conditions(&batch.sent_again, batch.terminal.is_some(), &task.resume);
    }

    /// Counts what the workflow asked for, before messages that arrived meanwhile join it: their number is not its doing.
    fn check_decision_size(&self, batch: &Batch<'_>) -> Result<(), LimitBreach> {
        limits::check(
            "history_transaction_size",
            self.events.len() as u64 + u64::from(batch.terminal.is_some()),
            self.limits.events_per_transaction,
        )
    }

    /// A command about something that is recorded already.
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
        sequence: u64,
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
