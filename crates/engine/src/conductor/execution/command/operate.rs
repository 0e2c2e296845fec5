//! What operators change in an open run: pass over a task, show hidden tasks to workers.

use longhaul_protocol::conductor::{Object, TaskStatus};

use super::control::{into_step, unlooked};
use crate::conductor::definition::Operator;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::Waiting;
use crate::run::draft::Draft;
use crate::run::state::Run;
use crate::{Command, Decision, Moment, Rejection};

/// Passes over a task that the flow has not reached. The task gets a record with the given input and output.
#[derive(Clone, Debug)]
pub struct SkipTask {
    /// The reference of its node.
    pub reference: String,
    pub input: Object,
    pub output: Object,
}

impl Command for SkipTask {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        let skip = || -> Try<Decision<()>> {
            let draft = Draft::of(run, moment);
            if run.core.closed.is_some() || draft.execution().paused {
                let status = run.core.status;
                return Ok(Decision::reject(Rejection::RunNotActive { status }));
            }
            let mut pass = Pass::new(draft, found)?;
            let reference = self.reference.clone();
            let node = pass.snapshot.tree().find(&reference);
            let Some(node) = node.filter(|node| node.enclosing_loop().is_none()) else {
                return Ok(Decision::reject(Rejection::ReferenceUnknown { reference }));
            };
            let operator = node.operator();
            let is_fork = matches!(
                operator,
                Operator::ForkJoin { .. } | Operator::ForkJoinDynamic(_)
            );
            let why = if pass.draft.task_by_reference(&reference).is_some() {
                Some("it is scheduled already")
            } else if is_fork {
                Some("its branches would be missing")
            } else if let Operator::Join { .. } = operator {
                Some("it belongs to the fork before it")
            } else {
                None
            };
            if let Some(why) = why {
                let reference = reference.into();
                return Ok(Decision::reject(Rejection::NotSkippable { reference, why }));
            }
            let place = pass.top_level(node.id());
            let id = pass.id_of_task(&place);
            let task = pass.operator_task(&place, id, TaskStatus::Skipped);
            let seq = pass.draft.add_task(task, self.input.clone());
            // It is not processed before the flow reaches it, so it stays among the unprocessed ones.
            let output = Some(self.output.clone());
            pass.draft.end_task(seq, TaskStatus::Skipped, None, output);
            Ok(pass.run()?.finish(Ok(())))
        };
        into_step(skip())
    }
}

/// Shows every task that waits for its next callback to workers now.
#[derive(Clone, Copy, Debug)]
pub struct ResetCallbacks;

impl Command for ResetCallbacks {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        if run.core.closed.is_some() {
            let status = run.core.status;
            return Decision::reject(Rejection::RunNotActive { status });
        }
        let mut draft = Draft::of(run, moment);
        let hidden: Vec<u64> = draft
            .open_tasks()
            .filter(|task| {
                task.status == TaskStatus::Scheduled
                    && task.callback_after_seconds > 0
                    && matches!(task.waiting, Waiting::Queued { .. })
            })
            .map(|task| task.seq)
            .collect();
        if hidden.is_empty() {
            return Decision::unchanged(());
        }
        for seq in hidden {
            draft.update_task(seq, None, |task| {
                task.callback_after_seconds = 0;
                task.waiting = Waiting::Queued {
                    visible_at: moment.now,
                    offered: true,
                };
            });
        }
        draft.finish(Ok(()))
    }
}
