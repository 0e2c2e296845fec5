//! How much of its history budget a run has used. It is advice: a workflow that is warned in time continues as new.

use crate::limits::Limits;
use crate::run::state::Core;

/// The used part of a run's history budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryBudget {
    pub events: u64,
    pub bytes: u64,
    pub fan_out: u64,
    pub pressure: Pressure,
    pub dimensions: Vec<&'static str>,
}

/// How urgently the workflow should continue as new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    Ok,
    /// Over a soft limit.
    Approaching,
    /// Over a hard limit.
    ContinueAsNewRecommended,
}

impl Pressure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Approaching => "approaching",
            Self::ContinueAsNewRecommended => "continue_as_new_recommended",
        }
    }
}

/// Returns the budget of a run.
pub fn history_budget(core: &Core, limits: &Limits) -> HistoryBudget {
    let used = [
        (
            "event_count",
            core.last_history_sequence.get(),
            limits.budget_soft.events,
            limits.budget_hard.events,
        ),
        (
            "size_bytes",
            core.history_size_bytes,
            limits.budget_soft.bytes,
            limits.budget_hard.bytes,
        ),
        (
            "fan_out",
            core.history_fan_out,
            limits.budget_soft.fan_out,
            limits.budget_hard.fan_out,
        ),
    ];
    let over = |value: u64, threshold: u64| threshold > 0 && value >= threshold;
    let dimensions: Vec<&'static str> = used
        .iter()
        .filter(|(_, value, soft, _)| over(*value, *soft))
        .map(|(name, ..)| *name)
        .collect();
    let pressure = if used.iter().any(|(_, value, _, hard)| over(*value, *hard)) {
        Pressure::ContinueAsNewRecommended
    } else if dimensions.is_empty() {
        Pressure::Ok
    } else {
        Pressure::Approaching
    };
    HistoryBudget {
        events: core.last_history_sequence.get(),
        bytes: core.history_size_bytes,
        fan_out: core.history_fan_out,
        pressure,
        dimensions,
    }
}
