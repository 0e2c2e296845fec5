//! Starting a workflow, and the reply to a second start of the same id. A workflow id is started once: later runs come from
//! continue-as-new only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use longhaul_protocol::history::{EventPayload, StartDecided, WorkflowStarted};
use longhaul_protocol::id::{CommandId, Namespace, RunId, TaskQueue, WorkflowId};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq, RequestSeq};
use longhaul_protocol::{Ids, Payload, Timestamp};
use serde_json::{Map, Value};

use crate::change::{CommandRow, CommandStatus, CommandType, InstanceChange, TargetScope};
use crate::run::draft::{Cause, Draft};
use crate::run::state::{Core, OpenCounts, Program, Resume, Routing, Run, Spec, Status};
use crate::run::workflow_task::record::check_attributes;
use crate::{Changes, Command, Decision, Moment, Rejection, limits};

/// Number of commands without effect that a run keeps: refused ones, and those that had nothing to do. A caller can send any number
/// of them. These are enough to see recent requests, and fill a page of the command list.
pub const IDLE_COMMANDS_MAX: usize = 50;

/// A request to start a workflow.
#[derive(Clone, Debug)]
pub struct Start {
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    pub workflow_type: String,
    pub task_queue: TaskQueue,
    pub arguments: Payload,
    pub business_key: Option<String>,
    /// An Avro map.
    pub memo: Option<Payload>,
    pub search_attributes: Map<String, Value>,
    pub run_timeout_seconds: Option<u64>,
    pub execution_timeout_seconds: Option<u64>,
    pub routing: Routing,
    pub duplicate_policy: DuplicatePolicy,
    pub declared: Map<String, Value>,
    pub principal: Option<String>,
    /// How the command arrived: text that is stored and never read here.
    pub context: Option<String>,
}

/// What to do if the workflow id is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicatePolicy {
    #[default]
    Fail,
    UseExisting,
}

/// The run in the reply to a start.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    pub run_id: RunId,
    pub workflow_type: String,
    pub status: Status,
    pub business_key: Option<String>,
    pub outcome: StartOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    StartedNew,
    ReturnedExistingActive,
}

impl StartOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StartedNew => "started_new",
            Self::ReturnedExistingActive => "returned_existing_active",
        }
    }
}

impl Start {
    /// Returns the first run of a workflow that does not exist yet.
    pub fn decide_new(&self, moment: Moment<'_>) -> Decision<Started> {
        if let Err(limit) = self.check_limits(moment) {
            return Decision::reject(Rejection::LimitExceeded(limit));
        }
        let mut ids = Ids::new(moment.now, moment.entropy);
        let after = |seconds: Option<u64>| seconds.map(|seconds| moment.now.plus_seconds(seconds));
        let spec = Spec {
            namespace: self.namespace.clone(),
            workflow_id: self.workflow_id.clone(),
            run_id: ids.mint(),
            run_number: 1,
            program: Program::Code,
            workflow_type: self.workflow_type.clone(),
            task_queue: self.task_queue.clone(),
            arguments: self.arguments.clone(),
            started_at: moment.now,
            business_key: self.business_key.clone(),
            run_timeout_seconds: self.run_timeout_seconds,
            execution_timeout_seconds: self.execution_timeout_seconds,
            run_deadline_at: after(self.run_timeout_seconds),
            execution_deadline_at: after(self.execution_timeout_seconds),
            continued_from: None,
            parent: None,
            routing: self.routing.clone(),
            declared: self.declared.clone(),
        };
        let mut core = fresh_core(moment.now);
        core.memo.clone_from(&self.memo);
        core.search_attributes = Arc::new(
            self.search_attributes
                .iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        );
        let mut draft = Draft::new_run(Arc::new(spec), core, ids, moment.now, moment.limits);
        draft.instance = Some(InstanceChange::Create);
        let command_id: CommandId = draft.ids.mint();
        draft.cause = Cause {
            task_id: None,
            command_id: Some(command_id.clone()),
            principal: self.principal.clone(),
        };
        let decided = draft.start_decided(&command_id, StartOutcome::StartedNew.as_str());
        draft.append(EventPayload::StartAccepted(decided));
        draft.append_started(Some(command_id.clone()));
        draft
            .record_command(
                CommandType::Start,
                command_id,
                StartOutcome::StartedNew.as_str(),
                None,
                self.principal.clone(),
            )
            .context
            .clone_from(&self.context);
        draft.workflow_task().create(Resume::default());
        let started = draft.started(StartOutcome::StartedNew);
        let (run, _) = draft.into_change();
        Decision {
            changes: Changes {
                created: vec![*run],
                ..Changes::default()
            },
            reply: Ok(started),
        }
    }

    fn check_limits(
        &self,
        moment: Moment<'_>,
    ) -> Result<(), longhaul_protocol::history::LimitBreach> {
        limits::check(
            "payload_size",
            self.arguments.blob().len() as u64,
            moment.limits.payload_bytes,
        )?;
        if let Some(memo) = &self.memo {
            limits::check(
                "memo_size",
                memo_bytes(memo),
                moment.limits.memo_start_bytes,
            )?;
        }
        check_attributes(&self.search_attributes, moment.limits)
    }
}

impl Command for Start {
    type Reply = Started;

    /// Decides a start of an id that has a run. It does not change the run; the command is kept for audit.
    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Started> {
        if run.spec.workflow_type != self.workflow_type {
            return Decision::reject(Rejection::OtherWorkflowType {
                workflow_type: run.spec.workflow_type.clone(),
            });
        }
        let taken = Rejection::AlreadyStarted {
            run_id: run.run_id().clone(),
        };
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() {
            return Decision::reject(taken);
        }
        if draft.time_out_if_due() {
            return draft.finish(Err(taken));
        }
        let outcome = StartOutcome::ReturnedExistingActive;
        let (word, rejection, reply) = match self.duplicate_policy {
            DuplicatePolicy::UseExisting => (outcome.as_str(), None, Ok(draft.started(outcome))),
            DuplicatePolicy::Fail => (
                "rejected_duplicate",
                Some("instance_already_started"),
                Err(taken),
            ),
        };
        let command_id: CommandId = draft.ids.mint();
        draft
            .record_command(
                CommandType::Start,
                command_id,
                word,
                rejection,
                self.principal.clone(),
            )
            .context
            .clone_from(&self.context);
        draft.finish(reply)
    }
}

/// Returns the bytes of the encoded map; base64 needs four characters for three of them.
fn memo_bytes(memo: &Payload) -> u64 {
    memo.blob().len() as u64 / 4 * 3
}

/// Returns the core of a run that has no events yet.
pub(crate) fn fresh_core(now: Timestamp) -> Core {
    Core {
        status: Status::Pending,
        closed: None,
        last_history_sequence: HistorySeq::ZERO,
        last_command_sequence: CommandSeq::ZERO,
        handled_sequence: HistorySeq::ZERO,
        history_size_bytes: 0,
        history_fan_out: 0,
        last_event_at: now,
        instance_command_sequence: RequestSeq::ZERO,
        idle_commands: VecDeque::new(),
        outbox_sequence: 0,
        workflow_task: None,
        next_wake: None,
        sticky: None,
        cancellation: None,
        open: OpenCounts::default(),
        rejected_updates: 0,
        memo: None,
        search_attributes: Arc::new(Map::new()),
        search_attribute_types: Arc::new(Map::new()),
        streams: Arc::default(),
        version_markers: Arc::new(BTreeMap::new()),
        execution: None,
        alarm: None,
    }
}

impl Core {
    /// Gives the next run, or a child, its inherited state.
    pub(crate) fn copy_inherited_to(&self, next: &mut Self) {
        next.memo.clone_from(&self.memo);
        next.search_attributes = Arc::clone(&self.search_attributes);
        next.search_attribute_types = Arc::clone(&self.search_attribute_types);
    }
}

impl Draft<'_> {
    pub(crate) fn append_started(&mut self, command_id: Option<CommandId>) {
        let spec = Arc::clone(&self.spec);
        self.append(EventPayload::WorkflowStarted(Box::new(WorkflowStarted {
            workflow_type: spec.workflow_type.clone(),
            workflow_instance_id: spec.workflow_id.clone(),
            workflow_run_id: spec.run_id.clone(),
            workflow_command_id: command_id,
            business_key: spec.business_key.clone(),
            execution_timeout_seconds: spec.execution_timeout_seconds,
            run_timeout_seconds: spec.run_timeout_seconds,
            execution_deadline_at: spec.execution_deadline_at,
            run_deadline_at: spec.run_deadline_at,
            continued_from_run_id: spec.continued_from.clone(),
            compatibility: spec.routing.compatibility.clone(),
            parent: spec.parent.as_ref().map(|parent| parent.keys()),
            retry: spec.parent.as_ref().and_then(|parent| parent.retry.clone()),
            declared: spec.declared.clone(),
            task_queue: spec.task_queue.to_string(),
        })));
    }

    fn start_decided(&self, command_id: &CommandId, outcome: &'static str) -> StartDecided {
        StartDecided {
            workflow_command_id: command_id.clone(),
            workflow_instance_id: self.spec.workflow_id.clone(),
            workflow_run_id: self.spec.run_id.clone(),
            workflow_type: self.spec.workflow_type.clone(),
            business_key: self.spec.business_key.clone(),
            outcome,
            rejection_reason: None,
        }
    }

    fn started(&self, outcome: StartOutcome) -> Started {
        Started {
            run_id: self.spec.run_id.clone(),
            workflow_type: self.spec.workflow_type.clone(),
            status: self.core.status,
            business_key: self.spec.business_key.clone(),
            outcome,
        }
    }

    /// Records an external command for the audit trail, numbered per workflow.
    pub(crate) fn record_command(
        &mut self,
        command_type: CommandType,
        command_id: CommandId,
        outcome: &str,
        rejection: Option<&str>,
        principal: Option<String>,
    ) -> &mut CommandRow {
        self.core.instance_command_sequence = self.core.instance_command_sequence.next();
        let row = CommandRow {
            command_id,
            sequence: self.core.instance_command_sequence,
            command_type,
            target_name: None,
            target_scope: TargetScope::Instance,
            requested_run_id: None,
            request_id: None,
            arguments: None,
            arguments_digest: None,
            status: match rejection {
                Some(_) => CommandStatus::Rejected,
                None => CommandStatus::Accepted,
            },
            outcome: outcome.to_owned(),
            reason: None,
            rejection_reason: rejection.map(str::to_owned),
            principal,
            context: None,
            at: self.now,
            update: None,
            position: None,
        };
        if row.is_without_effect() {
            self.core.idle_commands.push_back(row.sequence);
            if self.core.idle_commands.len() > IDLE_COMMANDS_MAX {
                self.deleted_commands
                    .extend(self.core.idle_commands.pop_front());
            }
        }
        self.commands.push(row);
        self.commands
            .last_mut()
            .expect("the command was just added")
    }
}
