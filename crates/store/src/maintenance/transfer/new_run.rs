//! A run to be written with the version that it has.

use std::sync::Arc;

use longhaul_engine::change::RunChange;
use longhaul_engine::run::state::{Core, Spec};
use longhaul_protocol::json::from_stored;

use crate::Error;
use crate::encode::{Bodies, entries};

/// A run, as the writing code of the stores takes it: the change has its specification, state and version, the bodies its text.
pub(crate) struct NewRun {
    pub(crate) change: RunChange,
    pub(crate) bodies: Bodies,
}

impl NewRun {
    /// Reads a run from its rows.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one of them cannot be read.
    pub(crate) fn read(
        run_id: &str,
        version: i64,
        spec_body: &str,
        state: &str,
    ) -> Result<Self, Error> {
        let spec: Spec = from_stored(spec_body)
            .map_err(|error| Error::unreadable("specification of run", run_id, error))?;
        let core: Core =
            from_stored(state).map_err(|error| Error::unreadable("run", run_id, error))?;
        if spec.run_id.as_str() != run_id {
            return Err(Error::Corrupt(format!(
                "the specification of run {run_id} names {}",
                spec.run_id
            )));
        }
        let base_version = u64::try_from(version).ok();
        let base_version = base_version.and_then(|version| version.checked_sub(1));
        let Some(base_version) = base_version else {
            return Err(Error::Corrupt(format!(
                "run {run_id} has version {version}"
            )));
        };
        let attributes = entries(&core.search_attributes);
        let change = RunChange {
            spec: Arc::new(spec),
            base_version: Some(base_version),
            core,
            parts: Vec::new(),
            events: Vec::new(),
            tasks: Vec::new(),
            deleted_tasks: Vec::new(),
            commands: Vec::new(),
            deleted_commands: Vec::new(),
            instance: None,
            key_claim: None,
            sets_search_attributes: true,
            logs: Vec::new(),
            outputs: Vec::new(),
        };
        let bodies = Bodies {
            spec: Some(spec_body.to_owned()),
            state: state.to_owned(),
            parts: Vec::new(),
            tasks: Vec::new(),
            commands: Vec::new(),
            attributes: Some(attributes),
        };
        Ok(Self { change, bodies })
    }
}
