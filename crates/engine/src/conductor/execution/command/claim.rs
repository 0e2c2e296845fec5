//! Workers take tasks of a run from their queue, and servers take those that they run themselves.

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
    /// A server takes them for this long, and may renew that. `None` for a worker, whose tasks have the time-outs of their definitions.
    pub served_seconds: Option<u64>,
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
        let until = (self.served_seconds).map(|seconds| moment.now.plus_seconds(seconds));
        let waiting = until.map_or(Waiting::Leased, |until| Waiting::Serving { until });
        for seq in &claimed {
            draft.lease_task(*seq, self.worker_id.as_deref(), waiting.clone());
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

/// A server goes on with a task that it took.
#[derive(Clone, Debug)]
pub struct RenewExecutionTask {
    pub held: HeldTask,
    pub seconds: u64,
}

/// A task that a server has taken.
#[derive(Clone, Debug)]
pub struct HeldTask {
    pub task_id: TaskId,
    pub seq: u64,
    /// How often the task had been handed out, with this time. A later claim has another number.
    pub poll_count: u32,
}

impl HeldTask {
    /// Returns whether the server still has the task.
    pub(crate) fn is_held(&self, task: &ExecutionTask) -> bool {
        task.id == self.task_id
            && task.poll_count == self.poll_count
            && matches!(task.waiting, Waiting::Serving { .. })
    }
}

impl Command for RenewExecutionTask {
    /// Whether the server still has the task. If not, its result will not be accepted.
    type Reply = bool;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<bool> {
        let mut draft = Draft::of(run, moment);
        let task = draft.task(self.held.seq);
        if run.core.closed.is_some() || !task.is_some_and(|task| self.held.is_held(task)) {
            return Decision::unchanged(false);
        }
        let until = moment.now.plus_seconds(self.seconds);
        draft.change_task(self.held.seq, |task| {
            task.waiting = Waiting::Serving { until };
        });
        draft.finish(Ok(true))
    }
}

/// Returns whether the queue offers the task.
pub(crate) fn is_claimable(task: &ExecutionTask) -> bool {
    task.status == TaskStatus::Scheduled
        && matches!(task.waiting, Waiting::Queued { offered: true, .. })
}

impl Draft<'_> {
    /// Gives a task to a worker, or to a server.
    pub(crate) fn lease_task(&mut self, seq: u64, worker_id: Option<&str>, waiting: Waiting) {
        let now = self.now;
        self.start_task(seq, |task| {
            task.poll_count += 1;
            task.worker_id = worker_id.map(str::to_owned);
            task.waiting = waiting;
            let has_rate = task.start_limits.is_some_and(|limits| limits.has_rate());
            task.delivered_at = has_rate.then_some(now);
        });
    }
}
