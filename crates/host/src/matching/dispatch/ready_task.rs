//! A ready task, and one on its way to a lease.

use std::sync::Arc;

use longhaul_engine::change::TaskRow;
use longhaul_engine::queue::{Rank, Requirements, StartLimits};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{RunId, TaskId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::worker_session::WorkerSessionOptions;

use crate::questions::progress::QuestionKind;
use crate::questions::table::Question;

/// About how many bytes a ready task takes besides its names: ids, times, and its entries in two tables.
const READY_TASK_BYTES: u64 = 512;

/// A ready task in matching.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadyTask {
    pub(crate) task_id: TaskId,
    pub(crate) run_id: RunId,
    pub(crate) sequence: CommandSeq,
    pub(crate) rank: Rank,
    pub(super) requirements: Requirements,
    /// The session that it must run in.
    pub(crate) session: Option<Arc<WorkerSessionOptions>>,
    /// The limits of its task definition.
    pub(super) limits: Option<StartLimits>,
}

/// A task on its way from its queue to a lease.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(super) task_id: TaskId,
    pub(super) session: Option<Arc<WorkerSessionOptions>>,
    /// The name of its task definition, if that has limits.
    pub(super) name: Option<String>,
}

impl Reservation {
    /// Returns the id of the task.
    pub(crate) fn task_id(&self) -> &TaskId {
        &self.task_id
    }
}

impl ReadyTask {
    /// Returns the task of a question whose caller waits: it goes before all stored tasks.
    pub(crate) fn question(task_id: TaskId, question: &Question, now: Timestamp) -> Self {
        let run = &question.run;
        let validates = match question.kind {
            QuestionKind::Query => None,
            QuestionKind::UpdateValidation => Some(question.name.clone()),
        };
        Self {
            task_id,
            run_id: run.run_id.clone(),
            sequence: CommandSeq::ZERO,
            rank: Rank {
                priority: 0,
                fairness_key: None,
                fairness_weight: 1,
                available_at: now,
            },
            requirements: Requirements {
                type_name: run.workflow_type.clone(),
                validates,
                compatibility: run.routing.compatibility.clone(),
                capability: question.required_capability.map(str::to_owned),
                held_for: None,
            },
            session: None,
            limits: None,
        }
    }

    /// Returns about how many bytes it takes in memory. Names are counted twice, because its place repeats them.
    pub(super) fn bytes(&self) -> u64 {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let session = self.session.as_ref().map_or(0, |options| {
            let requirements = options.requirements.iter();
            512 + requirements.map(String::len).sum::<usize>()
        });
        let required = &self.requirements;
        let names = required.type_name.len()
            + optional(&required.compatibility)
            + optional(&required.capability)
            + optional(&required.validates)
            + optional(&self.rank.fairness_key)
            + session;
        READY_TASK_BYTES + 2 * names as u64
    }

    /// Returns the facts that end its reservation later.
    pub(crate) fn reservation(&self) -> Reservation {
        Reservation {
            task_id: self.task_id.clone(),
            session: self.session.clone(),
            name: (self.limits.is_some()).then(|| self.requirements.type_name.clone()),
        }
    }

    pub(super) fn order(&self) -> (&Rank, &TaskId) {
        (&self.rank, &self.task_id)
    }
}

impl From<&TaskRow> for ReadyTask {
    fn from(row: &TaskRow) -> Self {
        Self {
            task_id: row.task_id.clone(),
            run_id: row.run_id.clone(),
            sequence: row.sequence,
            rank: Rank {
                priority: row.priority,
                fairness_key: row.fairness_key.clone(),
                fairness_weight: row.fairness_weight,
                available_at: row.available_at,
            },
            requirements: Requirements::from(row),
            session: row.worker_session.as_deref().cloned().map(Arc::new),
            limits: row.start_limits,
        }
    }
}
