//! A worker reads the history of the workflow task it holds.

use crate::run::state::Run;
use crate::run::workflow_task::lease::Holder;
use crate::{Command, Decision, Moment};
use longhaul_protocol::sequence::HistorySeq;

/// Requests the last event that the caller may read. Changes nothing, unless the deadline of the run has passed.
#[derive(Clone, Debug)]
pub struct ReadHistory {
    pub holder: Holder,
}

impl Command for ReadHistory {
    /// The last event of every page of this lease.
    type Reply = HistorySeq;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Self::Reply> {
        let task = match self.holder.authorize(run, moment) {
            Ok((_, task)) => task,
            Err(refused) => return refused.into_decision(),
        };
        // A worker that delivers a cancellation, or has recorded a local activity under this lease, must see what it wrote: it
        // reads to the end.
        let end = match &task.lease {
            Some(lease) if !lease.refreshed && run.core.cancellation.is_none() => {
                lease.observed_sequence
            }
            _ => run.core.last_history_sequence,
        };
        Decision::unchanged(end)
    }
}
