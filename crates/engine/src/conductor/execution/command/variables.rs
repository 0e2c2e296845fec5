//! Changes of the variables of a definition run from outside.

use longhaul_protocol::conductor::Object;
use serde_json::Value;

use super::control::{into_step, unlooked};
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
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        into_step(self.merge(run, moment, found))
    }
}

impl MergeVariables {
    fn merge(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Try<Decision<()>> {
        if run.core.closed.is_some() {
            let status = run.core.status;
            return Ok(Decision::reject(Rejection::RunNotActive { status }));
        }
        let mut pass = Pass::new(Draft::of(run, moment), found)?;
        if let Err(rejection) = self.apply(&mut pass)? {
            return Ok(Decision::reject(rejection));
        }
        Ok(pass.run()?.finish(Ok(())))
    }

    /// Sets the variables, unless they would be too large.
    pub(super) fn apply(&self, pass: &mut Pass<'_, '_>) -> Try<Result<(), Rejection>> {
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
            return Ok(Err(Rejection::ValueTooLarge {
                message: format!(
                    "The variables of the workflow would have {bytes} bytes, more than {VARIABLES_BYTES_MAX} (limit: variables)"
                ),
            }));
        }
        pass.draft.set_variables(variables);
        Ok(Ok(()))
    }
}
