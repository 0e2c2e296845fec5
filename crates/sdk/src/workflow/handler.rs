//! The handlers that a workflow has set for queries and updates.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use longhaul_protocol::Payload;

use crate::error::Failure;

pub(super) type Handle = Arc<dyn Fn(&Payload) -> Result<Payload, Failure> + Send + Sync>;
pub(super) type Validate = Arc<dyn Fn(&Payload) -> Result<(), Failure> + Send + Sync>;

/// All handlers of a run, by the name of the message.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(super) queries: HashMap<String, Handle>,
    pub(super) updates: HashMap<String, UpdateHandler>,
}

#[derive(Clone)]
pub(super) struct UpdateHandler {
    pub(super) handle: Handle,
    pub(super) validate: Option<Validate>,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Handlers")
            .field("queries", &self.queries.keys())
            .field("updates", &self.updates.keys())
            .finish()
    }
}
