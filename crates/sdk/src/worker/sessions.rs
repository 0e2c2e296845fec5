//! The sessions of a worker. They are opened explicitly or by the first activity, renewed in the background, and closed when the
//! worker ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::Api;
use super::shared::Shared;
use super::wire::SessionFacts;
use crate::activity::ActivitySession;
use crate::transport::RequestError;
use crate::workflow::WorkerSessionOptions;

/// All sessions of one worker.
#[derive(Default)]
pub(super) struct Sessions {
    held: Mutex<HashMap<String, Held>>,
}

struct Held {
    generation: u64,
    lease: Duration,
    /// The end of the lease by the clock of the worker.
    trusted_until: Instant,
    renew: bool,
    active: Arc<AtomicBool>,
}

/// Whether the worker already had the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// The worker continues to hold the session.
    Continued,
    /// The worker has acquired the session.
    Acquired,
}

impl Sessions {
    /// Records that this worker holds the session: an activity came with it, or it was opened or renewed.
    pub(super) fn hold(&self, facts: &SessionFacts, hold: Hold) -> ActivitySession {
        let now = Instant::now();
        let lease = Duration::from_secs(facts.lease_seconds.unwrap_or(120).max(1));
        let mut held = self.held.lock();
        let entry = held
            .entry(facts.session_id.clone())
            .or_insert_with(|| Held {
                generation: 0,
                lease,
                trusted_until: now,
                renew: true,
                active: Arc::new(AtomicBool::new(false)),
            });
        // After the lease has lapsed, another worker may have held the session.
        let lapsed = entry.trusted_until <= now || !entry.active.load(Ordering::Relaxed);
        if hold == Hold::Acquired || lapsed {
            entry.generation += 1;
            entry.active.store(false, Ordering::Relaxed);
            entry.active = Arc::new(AtomicBool::new(true));
        }
        entry.lease = lease;
        entry.trusted_until = now + lease;
        ActivitySession {
            id: facts.session_id.clone(),
            generation: entry.generation,
            active: entry.active.clone(),
        }
    }

    fn lose(&self, session_id: &str) {
        if let Some(held) = self.held.lock().get(session_id) {
            held.active.store(false, Ordering::Relaxed);
        }
    }

    fn active(&self) -> Vec<(String, Duration, bool)> {
        let held = self.held.lock();
        let active = held
            .iter()
            .filter(|(_, held)| held.active.load(Ordering::Relaxed));
        active
            .map(|(id, held)| (id.clone(), held.lease, held.renew))
            .collect()
    }

    fn keep_alive(&self, session_id: &str, renew: bool) {
        if let Some(held) = self.held.lock().get_mut(session_id) {
            held.renew = renew;
        }
    }
}

/// Renews every session after a third of its lease, until the worker stops.
pub(super) async fn renew_in_background(shared: Arc<Shared>) {
    let mut last: HashMap<String, Instant> = HashMap::new();
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = Instant::now();
        for (session_id, lease, renew) in shared.sessions.active() {
            let renewed = *last.entry(session_id.clone()).or_insert(now);
            if renew && now - renewed >= lease / 3 {
                last.insert(session_id.clone(), now);
                match renew_once(&shared, &session_id, None).await {
                    Ok(_) => shared.counters.session_renewals.add(),
                    Err(error) => {
                        tracing::warn!(session_id, %error, "could not renew a worker session");
                    }
                }
            }
        }
    }
}

async fn renew_once(
    shared: &Shared,
    session_id: &str,
    lease_seconds: Option<u64>,
) -> Result<SessionFacts, SessionError> {
    let mut body = json!({"worker_id": shared.api.worker_id});
    if let Some(seconds) = lease_seconds {
        body["lease_seconds"] = json!(seconds);
    }
    let response = shared
        .api
        .session(Some(session_id), Some("heartbeat"), &body)
        .await;
    match response {
        Ok(response) => {
            let facts = read(&response)?;
            shared.sessions.hold(&facts, Hold::Continued);
            Ok(facts)
        }
        Err(error) => {
            if error
                .refusal()
                .is_some_and(|refusal| refusal.status() < 500)
            {
                shared.sessions.lose(session_id);
            }
            Err(error.into())
        }
    }
}

/// Closes all sessions, so that none has to expire.
pub(super) async fn close_all(shared: &Arc<Shared>, reason: &str) {
    for (session_id, _, _) in shared.sessions.active() {
        if let Err(error) = close_once(&shared.api, &session_id, reason).await {
            tracing::warn!(session_id, %error, "could not close a worker session");
        }
        shared.sessions.lose(&session_id);
    }
}

async fn close_once(api: &Api, session_id: &str, reason: &str) -> Result<Value, RequestError> {
    let body = json!({"worker_id": api.worker_id, "reason": reason});
    api.close_session(session_id, &body).await
}

fn read(response: &Value) -> Result<SessionFacts, RequestError> {
    serde_json::from_value(response["session"].clone())
        .map_err(|error| RequestError::Malformed(error.to_string()))
}

/// Why a request about a session failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SessionError(#[from] RequestError);

impl SessionError {
    /// Returns the reason of the server, such as `session_owned_by_another_worker`. Empty if there was no response.
    pub fn reason(&self) -> &str {
        self.0.refusal().map_or("", |refusal| refusal.reason())
    }
}

/// A session that a worker opens before any activity needs it; see [`WorkerHandle::session`](super::WorkerHandle::session).
#[derive(Clone)]
pub struct WorkerSession {
    pub(super) shared: Arc<Shared>,
    pub(super) options: WorkerSessionOptions,
}

impl WorkerSession {
    /// Opens the session, or takes it over if its worker is lost. The worker must be running.
    ///
    /// # Errors
    /// [`SessionError`] if another worker holds the session, the worker lacks a required capability, a limit is reached, or the
    /// session is closed; [`SessionError::reason`] returns which. Also if the server cannot be reached.
    pub async fn create(&self) -> Result<ActivitySession, SessionError> {
        let mut body = self.options.to_wire();
        body["worker_id"] = json!(self.shared.api.worker_id);
        let response = self.shared.api.session(None, None, &body).await?;
        let hold = if response["outcome"] == "reused" {
            Hold::Continued
        } else {
            Hold::Acquired
        };
        Ok(self.shared.sessions.hold(&read(&response)?, hold))
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// [`SessionError`] if this worker does not hold the session any more, or the server cannot be reached.
    pub async fn renew(&self) -> Result<(), SessionError> {
        renew_once(&self.shared, self.options.session_id(), None)
            .await
            .map(|_| ())
    }

    /// Sets whether the worker renews the lease in the background. The default is true.
    pub fn renew_in_background(&self, renew: bool) {
        self.shared
            .sessions
            .keep_alive(self.options.session_id(), renew);
    }

    /// Closes the session. It cannot be opened again.
    ///
    /// # Errors
    /// [`SessionError`] if this worker does not hold the session, or the server cannot be reached.
    pub async fn close(&self, reason: &str) -> Result<(), SessionError> {
        close_once(&self.shared.api, self.options.session_id(), reason).await?;
        self.shared.sessions.lose(self.options.session_id());
        Ok(())
    }
}
