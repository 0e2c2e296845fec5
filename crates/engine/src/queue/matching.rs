//! Which worker may get a task.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_protocol::id::WorkerId;

use crate::change::TaskRow;
use crate::rollout::build_fits;

/// Workflow types with the updates that they validate.
pub type Validators = BTreeSet<(String, String)>;

/// The requirements of a ready task on its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// Workflow type or activity type.
    pub type_name: String,
    /// The update to validate, if the task is the validation of an update.
    pub validates: Option<String>,
    /// The build that the run is pinned to.
    pub compatibility: Option<String>,
    pub capability: Option<String>,
    /// The only worker that may lease the task now.
    pub held_for: Option<WorkerId>,
}

impl From<&TaskRow> for Requirements {
    fn from(row: &TaskRow) -> Self {
        Self {
            type_name: row.type_name.clone(),
            validates: None,
            compatibility: row.compatibility.clone(),
            capability: row.required_capability.clone(),
            held_for: row.held_for.clone(),
        }
    }
}

/// What a waiting poll accepts: the abilities of its worker.
#[derive(Clone, Debug)]
pub struct PollFilter {
    pub worker_id: WorkerId,
    /// Empty means every type.
    pub types: Arc<Vec<String>>,
    pub build_id: Option<String>,
    /// Empty means no validations.
    pub validators: Arc<Validators>,
    pub capabilities: Arc<Vec<String>>,
    /// Sessions that the worker may hold at once.
    pub max_sessions: u64,
}

impl PollFilter {
    /// Returns the filter of a worker that takes every task of its queue.
    pub fn any(worker_id: WorkerId) -> Self {
        Self {
            worker_id,
            types: Arc::default(),
            build_id: None,
            validators: Arc::default(),
            capabilities: Arc::default(),
            max_sessions: 0,
        }
    }

    /// Returns whether the poll may get the task.
    pub fn accepts(&self, task: &Requirements) -> bool {
        let type_fits = match &task.validates {
            None => self.types.is_empty() || self.types.contains(&task.type_name),
            Some(update) => self
                .validators
                .contains(&(task.type_name.clone(), update.clone())),
        };
        let is_held_for_another = task
            .held_for
            .as_ref()
            .is_some_and(|worker_id| *worker_id != self.worker_id);
        type_fits && !is_held_for_another && self.can_run(task)
    }

    /// Returns whether the worker is able to run the task: it has the build that the run is pinned to, and the capability.
    pub fn can_run(&self, task: &Requirements) -> bool {
        let is_capable = task
            .capability
            .as_ref()
            .is_none_or(|capability| self.capabilities.contains(capability));
        is_capable && build_fits(task.compatibility.as_deref(), self.build_id.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Requirements {
        Requirements {
            type_name: "order".to_owned(),
            validates: None,
            compatibility: None,
            capability: None,
            held_for: None,
        }
    }

    fn poll() -> PollFilter {
        PollFilter {
            worker_id: WorkerId::from("w1"),
            types: Arc::default(),
            build_id: None,
            validators: Arc::default(),
            capabilities: Arc::default(),
            max_sessions: 1,
        }
    }

    #[test]
    fn a_poll_without_types_accepts_every_type() {
        assert!(poll().accepts(&task()));
        let mut other = poll();
        other.types = Arc::new(vec!["refund".to_owned()]);
        assert!(!other.accepts(&task()));
        other.types = Arc::new(vec!["refund".to_owned(), "order".to_owned()]);
        assert!(other.accepts(&task()));
    }

    #[test]
    fn a_validation_goes_only_to_a_worker_that_declares_the_validator() {
        let mut validation = task();
        validation.validates = Some("change_address".to_owned());
        assert!(
            !poll().accepts(&validation),
            "accepting every type is not enough"
        );
        let mut validating = poll();
        let declared = ("order".to_owned(), "change_address".to_owned());
        validating.validators = Arc::new(BTreeSet::from([declared]));
        assert!(validating.accepts(&validation));
    }

    #[test]
    fn a_task_that_is_reserved_for_a_worker_goes_to_no_other() {
        let mut held = task();
        held.held_for = Some(WorkerId::from("w2"));
        assert!(!poll().accepts(&held));
        assert!(poll().can_run(&held), "it may lease the task later");
        held.held_for = Some(WorkerId::from("w1"));
        assert!(poll().accepts(&held));
    }

    #[test]
    fn a_worker_needs_the_capability_and_the_pinned_build() {
        let mut demanding = task();
        demanding.capability = Some("cooperative_cancellation".to_owned());
        demanding.compatibility = Some("build-7".to_owned());
        let mut able = poll();
        assert!(!able.can_run(&demanding));
        able.capabilities = Arc::new(vec!["cooperative_cancellation".to_owned()]);
        assert!(!able.can_run(&demanding));
        able.build_id = Some("build-7".to_owned());
        assert!(able.can_run(&demanding) && able.accepts(&demanding));
        able.build_id = Some("build-8".to_owned());
        assert!(!able.accepts(&demanding));
    }
}
