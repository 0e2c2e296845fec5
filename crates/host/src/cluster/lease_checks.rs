//! Asks the store whether another server has given a task to a poll whose reply was lost. Polls that ask at the same time share a
//! statement.

use std::sync::Arc;

use longhaul_engine::change::TaskRow;
use longhaul_store::{Error as StoreError, Look, PollId, QueueKey, Together};

use crate::Host;
use crate::error::Result;

/// Polls that wait for the answer of the store.
pub(crate) type LeaseChecks = Together<PollId, Option<TaskRow>>;

impl Host {
    /// Returns the task that the poll leases, if the store has one.
    pub(crate) async fn lease_of(&self, poll: PollId) -> Result<Option<TaskRow>> {
        let host = self.clone();
        let answer = move |polls| {
            let host = host.clone();
            async move { host.leases_of(polls).await }
        };
        let checks = Arc::clone(&self.inner.lease_checks);
        Ok(checks.ask(poll, answer).await?)
    }

    async fn leases_of(
        &self,
        polls: Vec<PollId>,
    ) -> std::result::Result<Vec<Option<TaskRow>>, StoreError> {
        let Some(shared) = self.inner.store.shared() else {
            return Ok(vec![None; polls.len()]);
        };
        let now = self.now();
        let look = Look {
            now,
            reserved_until: now,
            polls: polls.clone(),
            ..Look::default()
        };
        let leased = shared.look(&look).await?.leased;
        let of = |poll: &PollId| leased.iter().find(|row| is_leased_by(row, poll)).cloned();
        Ok(polls.iter().map(of).collect())
    }
}

fn is_leased_by(row: &TaskRow, poll: &PollId) -> bool {
    let QueueKey {
        namespace,
        kind,
        queue,
    } = &poll.queue;
    row.lease_owner.as_ref() == Some(&poll.worker_id)
        && row.poll_request_id.as_ref() == Some(&poll.request_id)
        && (&row.namespace, &row.kind, &row.queue) == (namespace, kind, queue)
}
