//! Workers take tasks of a run from their queue.

use longhaul_protocol::conductor::TaskStatus;
use longhaul_protocol::id::TaskId;

use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::pass::Pass;
use crate::conductor::execution::state::{ExecutionTask, Waiting};
use crate::run::draft::Draft;
use crate::run::state::Run;
use crate::{Command, Decision, Moment};

/// Hands tasks of one run to a worker, all in one commit.
#[derive(Clone, Debug)]
pub struct ClaimExecutionTasks {
    /// Ids with the numbers of the tasks in the run.
    pub tasks: Vec<(TaskId, u64)>,
    pub worker_id: Option<String>,
}

impl Command for ClaimExecutionTasks {
    /// The numbers of the tasks that the worker has now. Tasks that ended or are hidden are left out.
    type Reply = Vec<u64>;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Vec<u64>> {
        match self.step(run, moment, &LookupResults::default()) {
            Step::Decided(decision) => decision,
            Step::Needs(_) => Decision::unchanged(Vec::new()),
        }
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<Vec<u64>> {
        let mut draft = Draft::of(run, moment);
        let claimed: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(id, seq)| {
                draft
                    .task(*seq)
                    .is_some_and(|task| task.id == *id && is_claimable(task))
            })
            .map(|(_, seq)| *seq)
            .collect();
        if claimed.is_empty() || run.core.closed.is_some() {
            return Step::Decided(Decision::unchanged(Vec::new()));
        }
        for seq in &claimed {
            draft.lease_task(*seq, self.worker_id.as_deref());
        }
        if draft.state_changes.is_empty() {
            return Step::Decided(draft.finish(Ok(claimed)));
        }
        // The definition publishes that a task began.
        match Pass::new(draft, found).and_then(Pass::run) {
            Ok(draft) => Step::Decided(draft.finish(Ok(claimed))),
            Err(needs) => Step::Needs(needs),
        }
    }
}

/// Returns whether the queue offers the task.
pub(crate) fn is_claimable(task: &ExecutionTask) -> bool {
    task.status == TaskStatus::Scheduled
        && matches!(task.waiting, Waiting::Queued { offered: true, .. })
}

impl Draft<'_> {
    /// Gives a task to a worker.
    pub(crate) fn lease_task(&mut self, seq: u64, worker_id: Option<&str>) {
        let now = self.now;
        self.start_task(seq, |task| {
            task.poll_count += 1;
            task.worker_id = worker_id.map(str::to_owned);
            task.waiting = Waiting::Leased;
            let has_rate = task.start_limits.is_some_and(|limits| limits.has_rate());
            task.delivered_at = has_rate.then_some(now);
        });
    }
}
