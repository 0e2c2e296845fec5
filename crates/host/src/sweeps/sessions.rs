//! What time does to sessions: leases and absolute ends that pass, owners that fall silent, ended ones that are forgotten. Armed
//! from rows, not by scanning: it sleeps until the earliest moment that can change something.

use std::time::Duration;

use longhaul_protocol::Timestamp;

use crate::Host;
use crate::error::Result;

/// Due sessions fetched at a time.
const BATCH: usize = 512;

/// After a failure of the store, how long to leave it alone.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What matching was unsure about is looked at again after this.
const SECOND_LOOK_SECONDS: u64 = 1;

/// Ended sessions are looked for this often; they are kept for days, so it hardly matters when.
const PRUNE_SECONDS: u64 = 3600;

/// Ended sessions are kept at least this long, so that their ids stay used up (worker-sessions.md §12.3).
const KEPT_DAYS_MIN: u32 = 30;

/// Runs until told to stop.
pub(crate) async fn run(host: Host) {
    let inner = &host.inner;
    let mut prune_at = host.now().plus_seconds(PRUNE_SECONDS);
    loop {
        inner.wakes.session_bell.silence();
        match host.next_look(&mut prune_at).await {
            Ok(at) => inner.wakes.session_bell.set_no_later_than(at),
            Err(error) => {
                tracing::warn!(%error, "sessions could not be swept; trying again shortly");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE_AFTER_FAILURE) => continue,
                    () = inner.stopping.cancelled() => return,
                }
            }
        }
        let next = async {
            tokio::select! {
                () = inner.wakes.session_bell.rings(&*inner.clock) => Some(()),
                () = inner.stopping.cancelled() => None,
            }
        };
        if inner.wakes.rest.during(next).await.is_none() {
            return;
        }
    }
}

impl Host {
    /// Sweeps, and says when to look again.
    async fn next_look(&self, prune_at: &mut Timestamp) -> Result<Timestamp> {
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
            next = next.min(now.plus_seconds(SECOND_LOOK_SECONDS));
        }
        for (namespace, worker_id) in dispatch.session_owners() {
            if let Some(known) = self.known_worker(&namespace, &worker_id).await? {
                next = next.min(self.stale_from(&known));
            }
        }
        Ok(next)
    }

    /// Brings every session up to now: those whose moment has come, and those of owners that are gone.
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

    /// Forgets sessions that ended long ago; a namespace that keeps its runs for ever keeps them too.
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

    /// Sessions as matching must know them, after a restart.
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
