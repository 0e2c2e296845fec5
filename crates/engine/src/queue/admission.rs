//! How many tasks of a queue may be leased: caps on leases and on dispatches per minute, for a queue, for a namespace, for a named
//! group of queues. The host counts; this module has the rules.

use std::collections::BTreeMap;

use longhaul_protocol::id::{Namespace, TaskQueue};
use serde::Deserialize;

use crate::change::TaskKind;

/// The configured caps. `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    pub workflow_tasks: Caps,
    pub activity_tasks: Caps,
    /// By `namespace:queue`, `namespace:*`, `queue` or `*`.
    pub overrides: BTreeMap<String, Override>,
}

/// Caps of one kind of task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caps {
    pub max_active_leases: Option<u64>,
    pub max_active_leases_per_namespace: Option<u64>,
    pub max_dispatches_per_minute: Option<u64>,
    pub max_dispatches_per_minute_per_namespace: Option<u64>,
    pub dispatch_budget_group: Option<String>,
    pub max_dispatches_per_minute_per_budget_group: Option<u64>,
}

/// Different caps for some queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Override {
    pub workflow_tasks: Caps,
    pub activity_tasks: Caps,
}

/// What counts against the caps now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub queue_leases: u64,
    pub namespace_leases: u64,
    pub queue_dispatches: u64,
    pub namespace_dispatches: u64,
    pub group_dispatches: u64,
}

/// The cap that withholds a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    ActiveLeases,
    NamespaceActiveLeases,
    DispatchesPerMinute,
    NamespaceDispatchesPerMinute,
    BudgetGroupDispatchesPerMinute,
}

impl Withheld {
    /// Returns the name of the setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ActiveLeases => "max_active_leases",
            Self::NamespaceActiveLeases => "max_active_leases_per_namespace",
            Self::DispatchesPerMinute => "max_dispatches_per_minute",
            Self::NamespaceDispatchesPerMinute => "max_dispatches_per_minute_per_namespace",
            Self::BudgetGroupDispatchesPerMinute => "max_dispatches_per_minute_per_budget_group",
        }
    }

    /// Returns whether time frees the cap, rather than a finished task.
    pub fn is_rate(self) -> bool {
        match self {
            Self::ActiveLeases | Self::NamespaceActiveLeases => false,
            Self::DispatchesPerMinute
            | Self::NamespaceDispatchesPerMinute
            | Self::BudgetGroupDispatchesPerMinute => true,
        }
    }
}

impl Admission {
    /// Returns whether nothing is limited anywhere, so that counting is not needed.
    pub fn is_unlimited(&self) -> bool {
        let none = Caps::default();
        self.workflow_tasks == none && self.activity_tasks == none && self.overrides.is_empty()
    }

    /// Returns the caps of one queue: each from the most specific setting.
    pub fn caps(&self, namespace: &Namespace, queue: &TaskQueue, kind: TaskKind) -> Caps {
        let of = |place: &Override| match kind {
            TaskKind::Workflow => place.workflow_tasks.clone(),
            TaskKind::Activity => place.activity_tasks.clone(),
            // Limits of these tasks come from their definitions.
            TaskKind::Execution => Caps::default(),
        };
        let base = match kind {
            TaskKind::Workflow => self.workflow_tasks.clone(),
            TaskKind::Activity => self.activity_tasks.clone(),
            TaskKind::Execution => Caps::default(),
        };
        let places = [
            format!("{namespace}:{queue}"),
            format!("{namespace}:*"),
            queue.to_string(),
            "*".to_owned(),
        ];
        places
            .iter()
            .filter_map(|place| self.overrides.get(place))
            .map(of)
            .chain([base])
            .fold(Caps::default(), Caps::or)
    }
}

impl Caps {
    fn or(self, wider: Self) -> Self {
        Self {
            max_active_leases: self.max_active_leases.or(wider.max_active_leases),
            max_active_leases_per_namespace: self
                .max_active_leases_per_namespace
                .or(wider.max_active_leases_per_namespace),
            max_dispatches_per_minute: self
                .max_dispatches_per_minute
                .or(wider.max_dispatches_per_minute),
            max_dispatches_per_minute_per_namespace: self
                .max_dispatches_per_minute_per_namespace
                .or(wider.max_dispatches_per_minute_per_namespace),
            dispatch_budget_group: self.dispatch_budget_group.or(wider.dispatch_budget_group),
            max_dispatches_per_minute_per_budget_group: self
                .max_dispatches_per_minute_per_budget_group
                .or(wider.max_dispatches_per_minute_per_budget_group),
        }
    }

    /// Checks whether one more lease may be granted; the error names the cap that withholds it.
    pub fn admit(&self, usage: &Usage) -> Result<(), Withheld> {
        let group_cap = self
            .dispatch_budget_group
            .as_ref()
            .and(self.max_dispatches_per_minute_per_budget_group);
        let checks = [
            (
                self.max_active_leases,
                usage.queue_leases,
                Withheld::ActiveLeases,
            ),
            (
                self.max_active_leases_per_namespace,
                usage.namespace_leases,
                Withheld::NamespaceActiveLeases,
            ),
            (
                self.max_dispatches_per_minute,
                usage.queue_dispatches,
                Withheld::DispatchesPerMinute,
            ),
            (
                self.max_dispatches_per_minute_per_namespace,
                usage.namespace_dispatches,
                Withheld::NamespaceDispatchesPerMinute,
            ),
            (
                group_cap,
                usage.group_dispatches,
                Withheld::BudgetGroupDispatchesPerMinute,
            ),
        ];
        checks
            .into_iter()
            .find(|(cap, used, _)| cap.is_some_and(|cap| *used >= cap))
            .map_or(Ok(()), |(_, _, withheld)| Err(withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(cap: u64) -> Override {
        let caps = Caps {
            max_active_leases: Some(cap),
            ..Caps::default()
        };
        Override {
            workflow_tasks: caps,
            activity_tasks: Caps::default(),
        }
    }

    #[test]
    fn the_most_specific_setting_determines_a_cap() {
        let admission = Admission {
            workflow_tasks: Caps {
                max_active_leases: Some(1),
                max_dispatches_per_minute: Some(9),
                ..Caps::default()
            },
            activity_tasks: Caps::default(),
            overrides: BTreeMap::from([
                ("*".to_owned(), leases(2)),
                ("q".to_owned(), leases(3)),
                ("ns:*".to_owned(), leases(4)),
                ("ns:q".to_owned(), leases(5)),
            ]),
        };
        let cap = |namespace: &str, queue: &str| {
            let caps = admission.caps(&namespace.into(), &queue.into(), TaskKind::Workflow);
            assert_eq!(caps.max_dispatches_per_minute, Some(9));
            caps.max_active_leases
        };
        assert_eq!(cap("ns", "q"), Some(5));
        assert_eq!(cap("ns", "other"), Some(4));
        assert_eq!(cap("elsewhere", "q"), Some(3));
        assert_eq!(cap("elsewhere", "other"), Some(2));
        let other = admission.caps(&"ns".into(), &"q".into(), TaskKind::Activity);
        assert_eq!(
            other,
            Caps::default(),
            "the other kind of task has its own caps"
        );
        assert!(!admission.is_unlimited());
        assert!(Admission::default().is_unlimited());
    }

    #[test]
    fn a_cap_withholds_when_it_is_reached() {
        let caps = Caps {
            max_active_leases: Some(2),
            max_dispatches_per_minute_per_budget_group: Some(1),
            ..Caps::default()
        };
        let usage = |queue_leases| Usage {
            queue_leases,
            group_dispatches: 7,
            ..Usage::default()
        };
        assert_eq!(
            caps.admit(&usage(1)),
            Ok(()),
            "a group without a name has no cap"
        );
        assert_eq!(caps.admit(&usage(2)), Err(Withheld::ActiveLeases));
        let grouped = Caps {
            dispatch_budget_group: Some("batch".to_owned()),
            ..caps
        };
        assert_eq!(
            grouped.admit(&usage(0)),
            Err(Withheld::BudgetGroupDispatchesPerMinute)
        );
    }
}
