//! Changes of sessions over time: leases and deadlines pass, owners become stale, ended sessions are deleted. There is no scan: the
//! sweep sleeps until the earliest time that can change something.

use longhaul_protocol::Timestamp;

use crate::Host;
use crate::error::Result;
use crate::sweeps::Sweep;

/// Due sessions fetched at a time.
const BATCH: usize = 512;

/// Session queues that matching set aside are checked again after this.
const RECHECK_SECONDS: u64 = 1;

/// Ended sessions are deleted this often; they are kept for days, so the exact time hardly matters.
const PRUNE_SECONDS: u64 = 3600;

/// Ended sessions are kept at least this long, so that their ids are not used again.
const KEPT_DAYS_MIN: u32 = 30;

/// Applies everything that is due in sessions.
#[derive(Default)]
pub(crate) struct SessionSweep {
    prune_at: Option<Timestamp>,
}

impl Sweep for SessionSweep {
    const NAME: &'static str = "sessions";
    const KEEPS_HOST_BUSY: bool = true;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        let bell = &host.inner.wakes.session_bell;
        bell.silence();
        let prune_at = self
            .prune_at
            .get_or_insert_with(|| host.now().plus_seconds(PRUNE_SECONDS));
        let next = host.next_session_look(prune_at).await?;
        bell.set_no_later_than(next);
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        let inner = &host.inner;
        inner.wakes.session_bell.rings(&*inner.clock).await;
    }
}

impl Host {
    /// Sweeps, and returns when to check again.
    async fn next_session_look(&self, prune_at: &mut Timestamp) -> Result<Timestamp> {
        self.sweep_sessions().await?;
        let now = self.now();
        if *prune_at <= now {
            self.prune_sessions().await?;
            *prune_at = now.plus_seconds(PRUNE_SECONDS);
        }
        let mut next = *prune_at;
        if let Some(deadline) = self.inner.store.next_session_deadline().await? {
            next = next.min(deadline);
        }
        let dispatch = &self.inner.wakes.dispatch;
        if dispatch.has_set_aside() {
            next = next.min(now.plus_seconds(RECHECK_SECONDS));
        }
        for (namespace, worker_id) in dispatch.session_owners() {
            if let Some(known) = self.known_worker(&namespace, &worker_id).await? {
                next = next.min(self.stale_from(&known));
            }
        }
        Ok(next)
    }

    /// Updates every session to now: those that are due, and those whose owners are gone.
    pub(crate) async fn sweep_sessions(&self) -> Result<()> {
        self.inner.wakes.dispatch.look_again();
        loop {
            let due = self.inner.store.due_sessions(self.now(), BATCH).await?;
            let mut changed = false;
            for session in &due {
                changed |= self
                    .refresh_session(&session.namespace, &session.session_id)
                    .await?;
            }
            if due.len() < BATCH || !changed {
                break;
            }
        }
        for (namespace, worker_id) in self.inner.wakes.dispatch.session_owners() {
            let known = self.known_worker(&namespace, &worker_id).await?;
            if known.is_none_or(|known| self.is_stale(&known, self.now())) {
                self.orphan_sessions(&namespace, &worker_id).await?;
            }
        }
        Ok(())
    }

    /// Deletes sessions that ended long ago. A namespace without retention keeps them, as it keeps its runs.
    pub async fn prune_sessions(&self) -> Result<()> {
        for namespace in self.namespaces().await? {
            let Some(days) = namespace.retention_days else {
                continue;
            };
            let seconds = u64::from(days.max(KEPT_DAYS_MIN)) * 86_400;
            let before = self.now().minus_seconds(seconds);
            let store = &self.inner.store;
            while store.prune_sessions(&namespace.name, before).await? {}
        }
        Ok(())
    }

    /// Loads the sessions for matching, after a restart.
    pub(crate) async fn load_sessions(&self) -> Result<()> {
        let open = self
            .inner
            .store
            .due_sessions(Timestamp::MAX, usize::MAX)
            .await?;
        self.inner.wakes.dispatch.sessions_changed(&open);
        Ok(())
    }
}
