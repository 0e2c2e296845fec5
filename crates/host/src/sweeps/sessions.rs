//! Changes of sessions over time: leases and deadlines pass, owners become stale, ended sessions are deleted. There is no scan: the
//! sweep sleeps until the earliest time that can change something.

use std::collections::HashMap;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use longhaul_store::{DueLimits, SessionFilter};
use tokio::time::Instant;

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

/// Changed sessions fetched at a time.
const CHANGED_BATCH: usize = 500;

/// A change may be stored this much later than its own time, which is that of another server's clock.
const CHANGED_LATE_SECONDS: u64 = 10;

/// Applies everything that is due in sessions.
#[derive(Default)]
pub(crate) struct SessionSweep {
    prune_at: Option<Timestamp>,
    followed: Followed,
}

/// Until when the changes of other servers are known.
#[derive(Default)]
struct Followed {
    last: Option<Instant>,
    until: HashMap<Namespace, Timestamp>,
}

impl Sweep for SessionSweep {
    const NAME: &'static str = "sessions";
    const KEEPS_HOST_BUSY: bool = true;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        let check = &host.inner.wakes.session_check;
        check.clear();
        if host.inner.store.shared().is_some() && self.followed.is_due() {
            host.sessions().follow_changes(&mut self.followed).await?;
        }
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

impl Followed {
    /// Returns whether the store is to be read again.
    fn is_due(&mut self) -> bool {
        let is_due = self
            .last
            .is_none_or(|last| last.elapsed() >= SHARED_LOOK_INTERVAL);
        if is_due {
            self.last = Some(Instant::now());
        }
        is_due
    }
}

impl Sessions<'_> {
    /// Reads the sessions that other servers changed lately, if matching has copies of older ones: their hints may have been lost.
    async fn follow_changes(self, followed: &mut Followed) -> Result<()> {
        let inner = &self.host.inner;
        let dispatch = &inner.wakes.dispatch;
        let namespaces = dispatch.session_namespaces();
        followed
            .until
            .retain(|namespace, _| namespaces.contains(namespace));
        for namespace in namespaces {
            let now = self.host.now();
            let until = followed.until.entry(namespace.clone()).or_insert(now);
            let since = until.minus_seconds(CHANGED_LATE_SECONDS);
            let mut filter = SessionFilter {
                namespace,
                status: None,
                queue: None,
                owner: None,
                after: None,
                limit: CHANGED_BATCH,
            };
            loop {
                // The newest first.
                let mut changed = inner.store.list_sessions(&filter).await?;
                let is_full = changed.len() == CHANGED_BATCH;
                changed.retain(|session| session.updated_at >= since);
                let has_more = is_full && changed.len() == CHANGED_BATCH;
                filter.after = changed
                    .last()
                    .map(|session| (session.updated_at, session.session_id.clone()));
                changed.retain(|session| dispatch.has_older_session(session));
                let (ended, open): (Vec<_>, Vec<_>) =
                    changed.into_iter().partition(|session| session.is_final());
                inner.wakes.wake_sessions(&open);
                for session in ended {
                    // Its tasks ended at other servers too.
                    self.read_again(&session.namespace, &session.session_id)
                        .await?;
                }
                if !has_more {
                    break;
                }
            }
            *until = now;
        }
        Ok(())
    }

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
