//! Which builds of a queue's workers get work. A cohort is all workers of one queue with one build id, or with none. An operator
//! may drain it (no new work, at once), resume it, promote it (new runs are pinned to it) and roll a promotion back. A [`Rollout`]
//! row holds the operator's decisions; everything else is derived from it and from the workers.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_protocol::id::{Namespace, TaskQueue};
use longhaul_protocol::{Reason, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The build id of a worker that accepts work of every build.
const EVERY_BUILD: &str = "*";

/// The operator's decisions about one cohort.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    pub namespace: Namespace,
    pub task_queue: TaskQueue,
    /// `None` is the cohort of workers without a build id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Set while the cohort drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted_at: Option<Timestamp>,
    /// Set when the newest promotion was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_at: Option<Timestamp>,
}

impl Rollout {
    /// Returns a cohort about which nothing was decided.
    pub fn new(namespace: Namespace, task_queue: TaskQueue, build_id: Option<String>) -> Self {
        Self {
            namespace,
            task_queue,
            build_id,
            drained_at: None,
            promoted_at: None,
            rolled_back_at: None,
        }
    }

    pub fn is_draining(&self) -> bool {
        self.drained_at.is_some()
    }

    /// Returns `active` or `draining`.
    pub fn drain_intent(&self) -> &'static str {
        if self.is_draining() {
            "draining"
        } else {
            "active"
        }
    }
}

/// A change that an operator requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Drain,
    Resume,
    Promote,
    Rollback,
}

/// A registered worker of the queue, with the fields that these rules read.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    pub build_id: Option<&'a str>,
    pub is_stale: bool,
    pub fingerprints: &'a Map<String, Value>,
}

/// Why a cohort cannot be promoted or rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blockage {
    pub reason: Reason,
    pub message: String,
    pub expected_resolution: &'static str,
}

/// Returns whether a worker of that build may lease a task with that pin; `*` may lease all.
pub fn build_fits(pinned: Option<&str>, build: Option<&str>) -> bool {
    match (pinned, build) {
        (None, _) => true,
        (Some(pinned), Some(build)) => pinned == build || build == EVERY_BUILD,
        (Some(_), None) => false,
    }
}

/// Returns whether the cohort of that build drains.
pub fn is_draining(rollouts: &[Rollout], build_id: Option<&str>) -> bool {
    rollouts
        .iter()
        .any(|rollout| rollout.build_id.as_deref() == build_id && rollout.is_draining())
}

/// Returns the cohort that new runs are pinned to: the one promoted last, unless that was rolled back or it drains; then the one
/// before.
pub fn selected(rollouts: &[Rollout]) -> Option<&Rollout> {
    rollouts
        .iter()
        .filter(|rollout| rollout.rolled_back_at.is_none() && !rollout.is_draining())
        .filter_map(|rollout| rollout.promoted_at.map(|at| (at, rollout)))
        .max_by_key(|(at, _)| *at)
        .map(|(_, rollout)| rollout)
}

/// Returns the row after the change. Every change is idempotent: a repeated change keeps the first time.
pub fn decide(
    rollouts: &[Rollout],
    members: &[Member<'_>],
    target: &Rollout,
    change: Change,
    now: Timestamp,
) -> Result<Rollout, Vec<Blockage>> {
    let build_id = target.build_id.as_deref();
    let known = rollouts
        .iter()
        .find(|rollout| rollout.build_id.as_deref() == build_id);
    let mut row = known.unwrap_or(target).clone();
    match change {
        Change::Drain => row.drained_at = row.drained_at.or(Some(now)),
        Change::Resume => row.drained_at = None,
        Change::Promote => {
            let blockages = promotion_blockages(known, members, build_id);
            if !blockages.is_empty() {
                return Err(blockages);
            }
            let is_selected =
                selected(rollouts).is_some_and(|chosen| chosen.build_id.as_deref() == build_id);
            if !is_selected {
                row.promoted_at = Some(after_all(rollouts, now));
                row.rolled_back_at = None;
            }
        }
        Change::Rollback => {
            if row.promoted_at.is_none() {
                return Err(vec![Blockage {
                    reason: Reason::DeploymentNotPromoted,
                    message: "This deployment was never promoted.".to_owned(),
                    expected_resolution: "Roll back the deployment that new runs are pinned to.",
                }]);
            }
            row.rolled_back_at = row.rolled_back_at.or(Some(now));
        }
    }
    Ok(row)
}

/// Returns a time after all earlier promotions: the newest must be distinct from all others, even within one tick of the clock.
fn after_all(rollouts: &[Rollout], now: Timestamp) -> Timestamp {
    rollouts
        .iter()
        .filter_map(|rollout| rollout.promoted_at)
        .map(|at| Timestamp::from_micros(at.as_micros() + 1))
        .fold(now, Timestamp::max)
}

/// Returns everything that prevents the promotion, the most important first.
fn promotion_blockages(
    known: Option<&Rollout>,
    members: &[Member<'_>],
    build_id: Option<&str>,
) -> Vec<Blockage> {
    let cohort: Vec<&Member<'_>> = members
        .iter()
        .filter(|member| member.build_id == build_id)
        .collect();
    let mut blockages = Vec::new();
    let mut block = |reason, message: &str, expected_resolution| {
        blockages.push(Blockage {
            reason,
            message: message.to_owned(),
            expected_resolution,
        });
    };
    if known.is_none() && cohort.is_empty() {
        block(
            Reason::UnknownDeployment,
            "No worker of this build was ever seen on the queue.",
            "Start a worker with this build id on the queue first.",
        );
        return blockages;
    }
    if known.is_some_and(Rollout::is_draining) {
        block(
            Reason::FleetIsDraining,
            "The build is draining.",
            "Resume the build before promoting it.",
        );
    }
    if cohort.is_empty() {
        block(
            Reason::NoCompatibleWorkers,
            "No worker of this build is registered on the queue.",
            "Start a worker with this build id on the queue.",
        );
    } else if cohort.iter().all(|member| member.is_stale) {
        block(
            Reason::MissingWorkerHeartbeat,
            "No worker of this build has sent a heartbeat recently.",
            "Bring the workers of this build back.",
        );
    }
    let conflicts = fingerprint_conflicts(cohort.iter().copied());
    if let Some((workflow_type, count)) = conflicts.first() {
        let message = format!(
            "Workers of this build have {count} definitions of workflow type {workflow_type}."
        );
        block(
            Reason::FingerprintMismatch,
            &message,
            "Give different code different build ids.",
        );
    }
    blockages
}

/// Returns the workflow types of which live workers of one cohort have several definitions, and how many.
pub fn fingerprint_conflicts<'a>(
    cohort: impl Iterator<Item = &'a Member<'a>>,
) -> Vec<(String, usize)> {
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for member in cohort.filter(|member| !member.is_stale) {
        for (workflow_type, fingerprint) in member.fingerprints {
            seen.entry(workflow_type)
                .or_default()
                .insert(fingerprint.to_string());
        }
    }
    seen.into_iter()
        .filter(|(_, fingerprints)| fingerprints.len() > 1)
        .map(|(workflow_type, fingerprints)| (workflow_type.to_owned(), fingerprints.len()))
        .collect()
}

/// What happens to a start if no live worker has the build it is pinned to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetValidation {
    /// It is accepted and waits; its details show why.
    #[default]
    Warn,
    /// It is refused.
    Fail,
}

/// Why a new run is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartRefusal {
    /// Every cohort of the queue drains.
    Draining { build_ids: Vec<Option<String>> },
    /// No live worker may lease its tasks.
    NoCompatibleWorker { build_id: String },
}

/// Returns the build that a new run is pinned to: the one it names, else the promoted one, else none.
pub fn admit_start(
    rollouts: &[Rollout],
    members: &[Member<'_>],
    named: Option<String>,
    validation: FleetValidation,
) -> Result<Option<String>, StartRefusal> {
    let cohorts: BTreeSet<Option<&str>> = members
        .iter()
        .map(|member| member.build_id)
        .chain(rollouts.iter().map(|rollout| rollout.build_id.as_deref()))
        .collect();
    let all_drain = cohorts
        .iter()
        .all(|build_id| is_draining(rollouts, *build_id));
    if !cohorts.is_empty() && all_drain {
        let build_ids = cohorts
            .into_iter()
            .map(|build_id| build_id.map(str::to_owned))
            .collect();
        return Err(StartRefusal::Draining { build_ids });
    }
    let pin = named.or_else(|| selected(rollouts).and_then(|rollout| rollout.build_id.clone()));
    match pin {
        Some(build_id)
            if validation == FleetValidation::Fail && !serves(rollouts, members, &build_id) =>
        {
            Err(StartRefusal::NoCompatibleWorker { build_id })
        }
        pin => Ok(pin),
    }
}

/// Returns whether a live worker that does not drain may lease tasks of that pin.
pub fn serves(rollouts: &[Rollout], members: &[Member<'_>], pin: &str) -> bool {
    members.iter().any(|member| {
        !member.is_stale
            && build_fits(Some(pin), member.build_id)
            && !is_draining(rollouts, member.build_id)
    })
}

/// Returns `pending`, `active`, `promoted`, `draining`, `drained` or `rolled_back`.
pub fn deployment_state(
    rollouts: &[Rollout],
    rollout: &Rollout,
    live_workers: usize,
) -> &'static str {
    let is_selected = selected(rollouts).is_some_and(|chosen| chosen == rollout);
    if rollout.is_draining() {
        if live_workers > 0 {
            "draining"
        } else {
            "drained"
        }
    } else if is_selected {
        "promoted"
    } else if rollout.rolled_back_at.is_some() {
        "rolled_back"
    } else if live_workers > 0 {
        "active"
    } else {
        "pending"
    }
}

#[cfg(test)]
mod tests;
