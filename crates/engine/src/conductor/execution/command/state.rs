//! Changes of the variables and of one open task of a definition run, in one decision: both apply or neither.

use std::sync::Arc;

use super::control::{into_step, unlooked};
use crate::conductor::execution::command::update::UpdateExecutionTask;
use crate::conductor::execution::command::variables::MergeVariables;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Try};
use crate::run::draft::Draft;
use crate::run::state::Run;
use crate::{Command, Decision, Moment, Rejection};

/// Sets variables, then reports on a task.
#[derive(Clone, Debug)]
pub struct UpdateExecutionState {
    pub variables: MergeVariables,
    pub task: Option<UpdateExecutionTask>,
}

impl Command for UpdateExecutionState {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        into_step(self.try_decide(run, moment, found))
    }
}

impl UpdateExecutionState {
    fn try_decide(
        &self,
        run: &Run,
        moment: Moment<'_>,
        found: &LookupResults,
    ) -> Try<Decision<()>> {
        if run.core.closed.is_some() {
            let status = run.core.status;
            return Ok(Decision::reject(Rejection::RunNotActive { status }));
        }
        let draft = Draft::of(run, moment);
        let reported = match &self.task {
            Some(update) => {
                let task = update.target.find(&draft).filter(|task| task.is_open());
                let Some(task) = task.map(Arc::clone) else {
                    return Ok(Decision::reject(Rejection::TaskNotFound));
                };
                Some((update, task))
            }
            None => None,
        };
        let mut pass = Pass::new(draft, found)?;
        if let Err(rejection) = self.variables.apply(&mut pass)? {
            return Ok(Decision::reject(rejection));
        }
        if let Some((update, task)) = reported {
            update.report.apply(&mut pass, &task)?;
        }
        Ok(pass.run()?.finish(Ok(())))
    }
}
