//! Changes of sessions over time: leases and deadlines pass, owners become stale, ended sessions are deleted. There is no scan: the
//! sweep sleeps until the earliest time that can change something.

use longhaul_protocol::Timestamp;
use longhaul_store::DueLimits;

use crate::Host;
use crate::error::Result;
use crate::sweeps::Sweep;
use crate::sweeps::alarms::SHARED_LOOK_INTERVAL;
use crate::views::Sessions;

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
        let check = &host.inner.wakes.session_check;
        check.clear();
        let prune_at = self
            .prune_at
            .get_or_insert_with(|| host.now().plus_seconds(PRUNE_SECONDS));
        let next = host.sessions().next_look(prune_at).await?;
        check.set_no_later_than(next);
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        let inner = &host.inner;
        let look = async {
            if inner.store.shared().is_some() {
                tokio::time::sleep(SHARED_LOOK_INTERVAL).await;
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = inner.wakes.session_check.wait(&*inner.clock) => {}
            () = look => {}
        }
    }
}

impl Sessions<'_> {
    /// Sweeps, and returns when to check again.
    async fn next_look(self, prune_at: &mut Timestamp) -> Result<Timestamp> {
        let deadline = self.sweep().await?;
        let now = self.host.now();
        if *prune_at <= now {
            self.prune().await?;
            *prune_at = now.plus_seconds(PRUNE_SECONDS);
        }
        let mut next = *prune_at;
        if let Some(deadline) = deadline {
            next = next.min(deadline);
        }
        let dispatch = &self.host.inner.wakes.dispatch;
        if dispatch.has_set_aside() {
            next = next.min(now.plus_seconds(RECHECK_SECONDS));
        }
        for (namespace, worker_id) in dispatch.session_owners() {
            if let Some(known) = self.host.workers().known(&namespace, &worker_id).await? {
                next = next.min(self.host.workers().stale_from(&known));
            }
        }
        Ok(next)
    }

    /// Updates every session to now: those that are due, and those whose owners are gone. Returns the next deadline of a session.
    pub(crate) async fn sweep(self) -> Result<Option<Timestamp>> {
        self.host.inner.wakes.dispatch.look_again();
        let deadline = loop {
            let due = self.host.due(DueLimits::sessions(BATCH)).await?;
            let mut changed = false;
            for session in &due.sessions {
                changed |= self
                    .refresh(&session.namespace, &session.session_id)
                    .await?;
            }
            if due.sessions.is_empty() {
                break due.next;
            }
            if !changed {
                // The next pass looks at them again.
                break Some(self.host.now().plus_seconds(RECHECK_SECONDS));
            }
        };
        for (namespace, worker_id) in self.host.inner.wakes.dispatch.session_owners() {
            let known = self.host.workers().known(&namespace, &worker_id).await?;
            if known.is_none_or(|known| self.host.workers().is_stale(&known, self.host.now())) {
                self.orphan_all(&namespace, &worker_id).await?;
            }
        }
        Ok(deadline)
    }

    /// Deletes sessions that ended long ago. A namespace without retention keeps them, as it keeps its runs.
    pub async fn prune(self) -> Result<()> {
        for namespace in self.host.namespaces().list().await? {
            let Some(days) = namespace.retention_days else {
                continue;
            };
            let seconds = u64::from(days.max(KEPT_DAYS_MIN)) * 86_400;
            let before = self.host.now().minus_seconds(seconds);
            let store = &self.host.inner.store;
            while store.prune_sessions(&namespace.name, before).await? {}
        }
        Ok(())
    }

    /// Loads the sessions for matching, after a restart.
    pub(crate) async fn load(self) -> Result<()> {
        let limits = DueLimits::sessions(usize::MAX);
        let open = self.host.inner.store.due(Timestamp::MAX, limits).await?;
        self.host
            .inner
            .wakes
            .dispatch
            .sessions_changed(&open.sessions);
        Ok(())
    }
}
