//! Local activities: they run inside the worker that holds the workflow task, and no activity task is ever created for them. A
//! worker reports a finished one with its completion (`record`), or records every attempt as it happens (the other files):
//! `prepare` begins an attempt, `attempt` has the reports of its worker, `end` ends or retries it, `recover` closes one whose
//! worker was lost.
//!
//! A retry is a workflow task of its own that exists beside the ordinary one of the run until it is due and claimed.

use longhaul_protocol::history::{
    ActivityCall, ActivityScheduled, ActivitySnapshot, ActivityStarted, EXECUTION_MODE_LOCAL,
    EventPayload, GroupKeys, LocalActivitySnapshot, LocalAttemptSnapshot, LocalKeys, PAYLOAD_CODEC,
};
use longhaul_protocol::id::{ActivityAttemptId, ActivityExecutionId, EventId, TaskId, WorkerId};
use longhaul_protocol::parallel_group::Group;
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{CancellationPolicy, CleanupProof, LocalActivityCall};
use longhaul_protocol::{Payload, Reason, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::attempt::EndedAttempt;
use super::draft::Draft;
use super::state::{
    ClosedReason, Part, PartKey, Resume, RetryPolicy, Run, WorkflowLease, WorkflowTask,
};
use crate::run::draft::LocalActivities;
use crate::run::workflow_task::lease::{Held, Holder, LeaseRefusal};
use crate::{Decision, Moment, Rejection};

pub mod attempt;
pub mod checkpoint;
pub mod prepare;
pub mod recover;

mod end;
mod record;
mod retry_task;

pub use retry_task::RetryTask;

/// The capability that a worker needs for tasks of a run with an unfinished local activity: any other worker would treat the call
/// as pending, and wait without end.
pub const CAPABILITY: &str = "durable_local_activities";

/// The name of the same capability in the published Python client.
pub const CAPABILITY_ALIAS: &str = "prepared_local_activities";

/// This capability and cooperative cancellation in one name.
pub const CAPABILITY_WITH_CANCELLATION: &str = "cooperative_cancellation+durable_local_activities";

/// Number of finished attempts of one call that are kept, so that a late report can be distinguished from an unknown one.
const PAST_ATTEMPTS_MAX: usize = 16;

/// A local activity that is not finished; also the form in which a finished one is written into history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalActivity {
    pub sequence: CommandSeq,
    pub execution_id: ActivityExecutionId,
    pub activity_type: String,
    /// Absent if the call had neither a policy nor timeouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellation_policy: Option<CancellationPolicy>,
    /// Set when it cleans up after a delivered cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<CleanupProof>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    pub scheduled_at: Timestamp,
    /// Number of attempts so far.
    pub attempt_count: u64,
    /// The attempt that may report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<LocalAttempt>,
    /// Attempts that may no longer report, newest last; only the last few are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_attempts: Vec<PastLocalAttempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_to_close_deadline_at: Option<Timestamp>,
    /// Distinguishes the same call from one that changed under the history.
    pub arguments_hash: u64,
    /// The task of the next attempt, while it exists beside the ordinary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_task: Option<RetryTask>,
    /// The same task once it was claimed, until an attempt begins under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_retry: Option<TaskId>,
    /// How the newest attempt ended, for a repeat of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<EndedAttempt>>,
}

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastLocalAttempt {
    pub id: ActivityAttemptId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_attempt_id: Option<String>,
}

/// One attempt, under one lease of a workflow task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalAttempt {
    pub id: ActivityAttemptId,
    pub number: u64,
    /// The workflow task under whose lease it runs, and which lease of it.
    pub task_id: TaskId,
    pub task_attempt: u64,
    pub owner: WorkerId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_attempt_id: Option<String>,
    pub started_at: Timestamp,
    pub lease_expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    /// The heartbeat that was last written to history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_heartbeat: Option<RecordedHeartbeat>,
    /// Its worker was asked to stop: it may no longer report.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fenced: bool,
    /// Its worker acknowledged that the function stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

/// A heartbeat in history. Heartbeats that follow soon after are not written; their reply contains the event of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedHeartbeat {
    pub at: Timestamp,
    pub event_id: EventId,
}

/// The state of a call and its attempt, as recorded in history.
#[derive(Clone, Copy)]
struct EventStatus {
    status: &'static str,
    attempt_status: &'static str,
    closed_at: Option<Timestamp>,
    attempt_closed_at: Option<Timestamp>,
    /// Whether the snapshots belong to the event; the first event has its own.
    shown: bool,
}

impl EventStatus {
    const PENDING: Self = Self {
        status: "pending",
        attempt_status: "",
        closed_at: None,
        attempt_closed_at: None,
        shown: false,
    };
    const RUNNING: Self = Self {
        status: "running",
        attempt_status: "running",
        shown: true,
        ..Self::PENDING
    };

    /// Returns the state of a call that has ended.
    fn closed(status: &'static str, attempt_status: &'static str, at: Timestamp) -> Self {
        Self {
            status,
            attempt_status,
            closed_at: Some(at),
            attempt_closed_at: Some(at),
            shown: true,
        }
    }

    /// Returns the state of an attempt that has ended and that another will follow.
    fn retrying(attempt_status: &'static str, at: Timestamp) -> Self {
        Self {
            status: "pending",
            attempt_status,
            closed_at: None,
            attempt_closed_at: Some(at),
            shown: true,
        }
    }
}

impl LocalActivity {
    /// Returns whether this is the recorded call.
    fn is_call(&self, call: &LocalActivityCall) -> bool {
        self.activity_type == call.activity_type
            && self.retry == RetryPolicy::of_local_activity(call)
            && self.cancellation_policy == call.cancellation_policy
            && self.cleanup == call.cancellation_cleanup
            && self.arguments_hash == arguments_hash(&call.arguments)
    }

    /// Returns whether an earlier attempt had this id.
    fn used(&self, worker_attempt_id: &str) -> bool {
        self.past_attempts
            .iter()
            .any(|past| past.worker_attempt_id.as_deref() == Some(worker_attempt_id))
    }

    /// Ends the right of the current attempt to report.
    fn retire_attempt(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.past_attempts.push(PastLocalAttempt {
                id: attempt.id,
                worker_attempt_id: attempt.worker_attempt_id,
            });
            if self.past_attempts.len() > PAST_ATTEMPTS_MAX {
                self.past_attempts.remove(0);
            }
        }
    }

    /// Returns why a workflow task about it exists.
    fn resume(&self, event_type: Option<&str>) -> Resume {
        Resume {
            workflow_wait_kind: Some("local_activity".to_owned()),
            open_wait_id: Some(format!("local-activity:{}", self.execution_id)),
            resume_source_kind: Some("local_activity".to_owned()),
            resume_source_id: Some(self.execution_id.to_string()),
            activity_execution_id: Some(self.execution_id.clone()),
            activity_type: Some(self.activity_type.clone()),
            workflow_sequence: Some(self.sequence),
            workflow_event_type: event_type.map(str::to_owned),
            execution_mode: Some(EXECUTION_MODE_LOCAL.to_owned()),
            ..Resume::default()
        }
    }

    /// Returns the keys of one of its events.
    fn call(&self, task_id: &TaskId, state: EventStatus) -> ActivityCall {
        let attempt = self.attempt.as_ref().filter(|_| state.shown);
        ActivityCall {
            activity_execution_id: self.execution_id.clone(),
            activity_type: self.activity_type.clone(),
            activity_class: self.activity_type.clone(),
            sequence: self.sequence,
            cancellation_policy: self.cancellation_policy,
            group: GroupKeys(self.group.clone()),
            local: Some(Box::new(LocalKeys {
                execution_mode: EXECUTION_MODE_LOCAL,
                local_activity: true,
                workflow_task_id: task_id.clone(),
                activity: state.shown.then(|| self.snapshot(state)),
                activity_attempt: attempt
                    .map(|attempt| attempt.snapshot(&self.execution_id, state)),
                local_recovery: None,
            })),
        }
    }

    fn snapshot(&self, state: EventStatus) -> LocalActivitySnapshot {
        let attempt = self.attempt.as_ref();
        LocalActivitySnapshot {
            id: self.execution_id.clone(),
            idempotency_key: self.execution_id.clone(),
            sequence: self.sequence,
            activity_type: self.activity_type.clone(),
            class: self.activity_type.clone(),
            execution_mode: EXECUTION_MODE_LOCAL,
            local_activity: true,
            attempt_id: attempt.map(|attempt| attempt.id.clone()),
            status: state.status,
            attempt_count: self.attempt_count,
            last_heartbeat_at: attempt.and_then(|attempt| attempt.last_heartbeat_at),
            created_at: self.scheduled_at,
            started_at: attempt.map(|attempt| attempt.started_at),
            closed_at: state.closed_at,
        }
    }
}

impl LocalAttempt {
    /// Returns whether it runs under the present lease of the task.
    fn is_under(&self, task: &WorkflowTask) -> bool {
        let owner = task.lease.as_ref().map(|lease| &lease.owner);
        self.task_id == task.id && self.task_attempt == task.attempt && owner == Some(&self.owner)
    }

    /// Returns the reason for refusing another claim of it.
    fn claim_refusal(&self, now: Timestamp) -> Reason {
        if self.lease_expires_at > now {
            Reason::LocalActivityPreviousAttemptLive
        } else {
            Reason::LocalActivityPreviousAttemptUnresolved
        }
    }

    fn snapshot(
        &self,
        execution_id: &ActivityExecutionId,
        state: EventStatus,
    ) -> LocalAttemptSnapshot {
        LocalAttemptSnapshot {
            id: self.id.clone(),
            activity_execution_id: execution_id.clone(),
            task_id: self.task_id.clone(),
            attempt_number: self.number,
            status: state.attempt_status,
            lease_owner: self.owner.clone(),
            worker_attempt_id: self.worker_attempt_id.clone(),
            started_at: self.started_at,
            last_heartbeat_at: self.last_heartbeat_at,
            lease_expires_at: Some(self.lease_expires_at)
                .filter(|_| state.attempt_closed_at.is_none()),
            closed_at: state.attempt_closed_at,
        }
    }
}

/// Returns the FNV-1a hash of the encoded arguments: a guard against changed code, not against malice.
fn arguments_hash(arguments: &Payload) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in arguments.blob().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// Refuses the call and changes nothing.
fn refused<R>(reason: Reason) -> Decision<R> {
    Decision::reject(Rejection::LocalActivityRefused { reason })
}

/// Authorizes a call about a local activity. Here the loss of the workflow task's lease has its own reasons.
fn authorize<'a, R>(
    holder: &Holder,
    run: &'a Run,
    moment: Moment<'a>,
) -> Result<Held<'a>, Decision<R>> {
    holder.authorize(run, moment).map_err(|refused| {
        let reason = match &refused.refusal {
            LeaseRefusal::NotLeased { .. } => Reason::WorkflowClaimNotFound,
            LeaseRefusal::Expired { .. } => Reason::WorkflowClaimExpired,
            LeaseRefusal::OwnerMismatch { .. } | LeaseRefusal::AttemptMismatch { .. } => {
                Reason::WorkflowClaimMismatch
            }
            LeaseRefusal::RunClosed(closed) if closed.closed.reason == ClosedReason::TimedOut => {
                Reason::RunDeadlineExpired
            }
            LeaseRefusal::RunClosed(_) | LeaseRefusal::RunTimedOut { .. } => {
                return refused.into_decision();
            }
        };
        Decision {
            changes: refused.changes,
            reply: Err(Rejection::LocalActivityRefused { reason }),
        }
    })
}

/// A worker's hold on the workflow task of the run: every change of a local activity happens under one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    task_id: TaskId,
    attempt: u64,
    owner: WorkerId,
    expires_at: Timestamp,
}

impl LocalActivities<'_, '_> {
    /// Renews the lease. From now on the worker reads history to its end.
    fn renew_claim(&mut self, task: &WorkflowTask) -> Claim {
        let expires_at = self
            .draft
            .now
            .plus_seconds(self.draft.limits.workflow_task_lease_seconds);
        if let Some(lease) = self.lease_mut() {
            lease.expires_at = expires_at;
        }
        self.mark_refreshed();
        self.draft.workflow_task().show();
        debug_assert_eq!(self.draft.held_claim().task_id, task.id);
        self.draft.held_claim()
    }

    fn lease_mut(&mut self) -> Option<&mut WorkflowLease> {
        self.draft.core.workflow_task.as_mut()?.lease.as_mut()
    }

    /// Lets the worker read what it wrote: its pages no longer end at the first observed sequence.
    fn mark_refreshed(&mut self) {
        if let Some(lease) = self.lease_mut() {
            lease.refreshed = true;
        }
    }

    /// Deletes the stored replies: a worker that begins something new has received them.
    fn clear_receipts(&mut self) {
        if let Some(task) = &mut self.draft.core.workflow_task {
            task.local_receipts.clear();
        }
    }

    fn write_scheduled(
        &mut self,
        local: &LocalActivity,
        call: &LocalActivityCall,
        task_id: &TaskId,
    ) {
        self.draft.append(EventPayload::ActivityScheduled(Box::new(
            ActivityScheduled {
                call: local.call(task_id, EventStatus::PENDING),
                activity: ActivitySnapshot {
                    id: local.execution_id.clone(),
                    idempotency_key: local.execution_id.clone(),
                    sequence: local.sequence,
                    activity_type: local.activity_type.clone(),
                    class: local.activity_type.clone(),
                    execution_mode: Some(EXECUTION_MODE_LOCAL),
                    local_activity: true,
                    status: "pending",
                    attempt_count: 0,
                    payload_codec: PAYLOAD_CODEC,
                    queue: None,
                    retry_policy: local.retry.as_ref().map(RetryPolicy::to_json),
                    worker_session: None,
                    arguments: call.arguments.clone(),
                    created_at: Some(local.scheduled_at),
                },
            },
        )));
    }

    fn write_started(&mut self, local: &LocalActivity, attempt: &LocalAttempt) {
        self.draft
            .append(EventPayload::ActivityStarted(ActivityStarted {
                call: local.call(&attempt.task_id, EventStatus::RUNNING),
                activity_attempt_id: attempt.id.clone(),
                attempt_number: attempt.number,
                lease_expires_at: attempt.lease_expires_at,
                worker_attempt_id: attempt.worker_attempt_id.clone(),
            }));
    }
}

impl Draft<'_> {
    pub(crate) fn local(&self, sequence: CommandSeq) -> Option<&LocalActivity> {
        self.part(PartKey::LocalActivity(sequence))
            .and_then(Part::as_local)
    }

    /// Returns every open local activity. Most runs have none, and are not searched.
    pub(crate) fn locals(&self) -> Vec<LocalActivity> {
        if self.core.open.local_activities == 0 {
            return Vec::new();
        }
        self.parts()
            .filter_map(|(_, part)| part.as_local())
            .cloned()
            .collect()
    }

    /// Returns the lease under which this is decided.
    fn held_claim(&self) -> Claim {
        let task = self.core.workflow_task.as_ref();
        let (task, lease) = task
            .and_then(|task| Some((task, task.lease.as_ref()?)))
            .expect("a worker reports on local activities under its lease");
        Claim {
            task_id: task.id.clone(),
            attempt: task.attempt,
            owner: lease.owner.clone(),
            expires_at: lease.expires_at,
        }
    }
}
