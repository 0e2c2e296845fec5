//! The form that every commit must have, for every store. These are not rules of workflows: the tables rely on them, so a bug above
//! the store is refused here instead of being written to disk.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::change::{Changes, InstanceChange, RunChange};
use longhaul_protocol::Timestamp;

use crate::Error;

/// Refuses changes that would break a table.
pub(crate) fn check(changes: &Changes) -> Result<(), Error> {
    for change in changes.runs() {
        check_run(change).map_err(|what| {
            Error::Corrupt(format!(
                "refused a malformed commit of run {}: {what}",
                change.spec.run_id
            ))
        })?;
    }
    let mut documents = BTreeSet::new();
    for change in &changes.documents {
        if !documents.insert(&change.key) {
            return Err(Error::Corrupt(format!(
                "refused a malformed commit: it changes {:?} twice",
                change.key
            )));
        }
    }
    // Checks come before writes, so the second of two new runs of one workflow could not see the first.
    let mut new = BTreeMap::new();
    for change in changes
        .runs()
        .filter(|change| change.base_version.is_none())
    {
        let workflow = (&change.spec.namespace, &change.spec.workflow_id);
        if let Some(other) = new.insert(workflow, &change.spec.run_id) {
            return Err(Error::Corrupt(format!(
                "refused a malformed commit: both {other} and {} are new",
                change.spec.run_id
            )));
        }
    }
    Ok(())
}

/// Refuses caps: the only server of a store counts in memory.
pub(crate) fn refuse_caps(changes: &Changes) -> Result<(), Error> {
    match changes.caps().first() {
        Some(cap) => Err(Error::Corrupt(format!(
            "refused a commit with a cap on {:?}: the store is not shared",
            cap.scope
        ))),
        None => Ok(()),
    }
}

fn check_run(change: &RunChange) -> Result<(), String> {
    // Invariant: history is numbered without gaps and the run's row names its end.
    for pair in change.events.windows(2) {
        if pair[1].sequence != pair[0].sequence.next() {
            return Err(format!(
                "event {} follows event {}",
                pair[1].sequence, pair[0].sequence
            ));
        }
    }
    if let Some(last) = change.events.last()
        && last.sequence != change.core.last_history_sequence
    {
        return Err(format!(
            "history ends at {}, not {}",
            last.sequence, change.core.last_history_sequence
        ));
    }
    // Invariant: a workflow's runs are numbered, and its newest run is its current one.
    match (&change.instance, change.base_version) {
        (Some(InstanceChange::MoveCurrent { run_number }), None)
            if *run_number != change.spec.run_number =>
        {
            Err(format!(
                "run number {} becomes current as {run_number}",
                change.spec.run_number
            ))
        }
        (Some(_), None) | (None, Some(_)) => Ok(()),
        (Some(_), Some(_)) => Err("only a new run becomes the current one".to_owned()),
        (None, None) => Err("a new run must become the current one".to_owned()),
    }
}

/// Returns when the run is next due. A closed run may be due: it has outbox messages to deliver.
pub(crate) fn alarm(change: &RunChange) -> Option<Timestamp> {
    change.core.alarm
}
