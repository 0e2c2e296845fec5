//! The sessions a worker holds: opened by hand or by the first activity, renewed in the background, closed at the end.

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
    /// Until then the worker may believe that it holds the session.
    trusted_until: Instant,
    renew: bool,
    active: Arc<AtomicBool>,
}

impl Sessions {
    /// An activity came with a session, or the session was opened or renewed: this worker holds it now.
    pub(super) fn hold(&self, facts: &SessionFacts, anew: bool) -> ActivitySession {
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
        // Whatever lapsed in between may have been somebody else's.
        let lapsed = entry.trusted_until <= now || !entry.active.load(Ordering::Relaxed);
        if anew || lapsed {
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

/// Renews what is held, each at a third of its lease, until the worker stops.
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
                        tracing::warn!(session_id, %error, "a session could not be renewed");
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
    let answer = shared
        .api
        .session(Some(session_id), Some("heartbeat"), &body)
        .await;
    match answer {
        Ok(answer) => {
            let facts = read(&answer)?;
            shared.sessions.hold(&facts, false);
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

/// Closes everything that is still held; a planned end leaves nothing to expire.
pub(super) async fn close_all(shared: &Arc<Shared>, reason: &str) {
    for (session_id, _, _) in shared.sessions.active() {
        if let Err(error) = close_once(&shared.api, &session_id, reason).await {
            tracing::warn!(session_id, %error, "a session could not be closed");
        }
        shared.sessions.lose(&session_id);
    }
}

async fn close_once(api: &Api, session_id: &str, reason: &str) -> Result<Value, RequestError> {
    let body = json!({"worker_id": api.worker_id, "reason": reason});
    api.close_session(session_id, &body).await
}

fn read(answer: &Value) -> Result<SessionFacts, RequestError> {
    serde_json::from_value(answer["session"].clone())
        .map_err(|error| RequestError::Malformed(error.to_string()))
}

/// Why a session is not this worker's.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SessionError(#[from] RequestError);

impl SessionError {
    /// The server's reason, such as `session_owned_by_another_worker`; empty when no answer came.
    pub fn reason(&self) -> &str {
        self.0.refusal().map_or("", |refusal| refusal.reason())
    }
}

/// A session that a worker opens by hand, before any activity needs it.
#[derive(Clone)]
pub struct WorkerSession {
    pub(super) shared: Arc<Shared>,
    pub(super) options: WorkerSessionOptions,
}

impl WorkerSession {
    /// Opens the session, or takes it over if its holder is lost. The worker must be running.
    ///
    /// # Errors
    /// When another worker holds it, the requirements are not met, a limit is reached, or it is closed for good.
    pub async fn create(&self) -> Result<ActivitySession, SessionError> {
        let mut body = self.options.to_wire();
        body["worker_id"] = json!(self.shared.api.worker_id);
        let answer = self.shared.api.session(None, None, &body).await?;
        let anew = answer["outcome"] != "reused";
        Ok(self.shared.sessions.hold(&read(&answer)?, anew))
    }

    /// Renews the lease, for as long as the options say.
    ///
    /// # Errors
    /// When the session is not this worker's any more.
    pub async fn renew(&self) -> Result<(), SessionError> {
        renew_once(&self.shared, self.options.session_id(), None)
            .await
            .map(|_| ())
    }

    /// Whether the worker renews the lease by itself; it does unless told otherwise.
    pub fn renew_in_background(&self, renew: bool) {
        self.shared
            .sessions
            .keep_alive(self.options.session_id(), renew);
    }

    /// Ends the session for good.
    ///
    /// # Errors
    /// When the session is not this worker's.
    pub async fn close(&self, reason: &str) -> Result<(), SessionError> {
        close_once(&self.shared.api, self.options.session_id(), reason).await?;
        self.shared.sessions.lose(self.options.session_id());
        Ok(())
    }
}
