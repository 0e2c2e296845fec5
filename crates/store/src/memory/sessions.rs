//! The table of sessions, in memory.

use std::collections::BTreeMap;

use longhaul_engine::session::{Session, Status};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;

use super::Tables;
use crate::{Error, PRUNED_SESSIONS_MAX, SessionFilter};

impl Tables {
    pub(super) fn check_session(&self, session: &Session) -> Result<(), Error> {
        let key = (session.namespace.clone(), session.session_id.clone());
        let stored = self.sessions.get(&key).map_or(0, |stored| stored.version);
        if stored + 1 == session.version {
            Ok(())
        } else {
            Err(Error::Conflict)
        }
    }

    fn sessions_of(&self, namespace: &Namespace) -> impl Iterator<Item = &Session> {
        let all = self.sessions.values();
        all.filter(move |session| session.namespace == *namespace)
    }

    pub(super) fn due_sessions(&self, now: Timestamp, limit: usize) -> Vec<Session> {
        let mut due: Vec<&Session> = self
            .sessions
            .values()
            .filter(|session| session.deadline().is_some_and(|at| at <= now))
            .collect();
        // The sort is stable, and the map is in order of namespace and id.
        due.sort_by_key(|session| session.deadline());
        due.into_iter().take(limit).cloned().collect()
    }

    pub(super) fn list_sessions(&self, filter: &SessionFilter) -> Vec<Session> {
        let mut listed: Vec<&Session> = self
            .sessions_of(&filter.namespace)
            .filter(|session| {
                filter.status.is_none_or(|status| status == session.status)
                    && filter
                        .queue
                        .as_ref()
                        .is_none_or(|queue| *queue == session.queue)
                    && filter
                        .owner
                        .as_ref()
                        .is_none_or(|owner| *owner == session.lease_owner)
                    && filter.after.as_ref().is_none_or(|(at, id)| {
                        session.updated_at < *at
                            || (session.updated_at == *at && session.session_id > *id)
                    })
            })
            .collect();
        listed.sort_by_key(|session| std::cmp::Reverse(session.updated_at));
        listed.into_iter().take(filter.limit).cloned().collect()
    }

    pub(super) fn session_counts(&self, namespace: &Namespace) -> Vec<(Status, u64)> {
        let mut counts = BTreeMap::new();
        for session in self.sessions_of(namespace) {
            *counts.entry(session.status).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    pub(super) fn prune_sessions(&mut self, namespace: &Namespace, before: Timestamp) -> bool {
        let mut ended: Vec<_> = self
            .sessions_of(namespace)
            .filter_map(|session| Some((session.ended_at()?, session.session_id.clone())))
            .filter(|(at, _)| *at < before)
            .collect();
        ended.sort();
        ended.truncate(PRUNED_SESSIONS_MAX);
        for (_, session_id) in &ended {
            self.sessions
                .remove(&(namespace.clone(), session_id.clone()));
        }
        !ended.is_empty()
    }
}
