//! Changes of the variables of a definition run from outside.

use longhaul_protocol::conductor::Object;
use serde_json::Value;

use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::value::json_bytes;
use crate::conductor::limits::VARIABLES_BYTES_MAX;
use crate::run::draft::Draft;
use crate::run::state::{PartKey, Run};
use crate::{Command, Decision, Moment, Rejection};

/// Adds variables to those of a run.
#[derive(Clone, Debug)]
pub struct MergeVariables {
    pub variables: Object,
    /// A list is added to the list that a variable has; otherwise it replaces that list.
    pub append_lists: bool,
}

impl Command for MergeVariables {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        match self.step(run, moment, &LookupResults::default()) {
            Step::Decided(decision) => decision,
            Step::Needs(_) => Decision::reject(Rejection::TaskNotFound),
        }
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        match self.merge(run, moment, found) {
            Ok(decision) => Step::Decided(decision),
            Err(needs) => Step::Needs(needs),
        }
    }
}

impl MergeVariables {
    fn merge(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Try<Decision<()>> {
        if run.core.closed.is_some() {
            let status = run.core.status;
            return Ok(Decision::reject(Rejection::RunNotActive { status }));
        }
        let mut pass = Pass::new(Draft::of(run, moment), found)?;
        let mut variables = pass.load_run_value(PartKey::Variables)?;
        for (name, value) in &self.variables {
            match (variables.get_mut(name), value) {
                (Some(Value::Array(list)), Value::Array(more)) if self.append_lists => {
                    list.extend(more.iter().cloned());
                }
                _ => {
                    variables.insert(name.clone(), value.clone());
                }
            }
        }
        let bytes = json_bytes(&variables);
        if bytes > VARIABLES_BYTES_MAX {
            return Ok(Decision::reject(Rejection::ValueTooLarge {
                message: format!(
                    "The variables of the workflow would have {bytes} bytes, more than {VARIABLES_BYTES_MAX} (limit: variables)"
                ),
            }));
        }
        pass.draft.set_variables(variables);
        Ok(pass.run()?.finish(Ok(())))
    }
}
