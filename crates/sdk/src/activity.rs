//! What activity code may do.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use longhaul_protocol::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::error::Cancelled;
use crate::payload::Error as PayloadError;

/// What an attempt of an activity is.
#[derive(Clone, Debug, Default)]
pub struct ActivityInfo {
    /// The workflow that called it.
    pub workflow_id: String,
    /// The run of that workflow.
    pub run_id: String,
    /// The activity type.
    pub activity_type: String,
    /// The same for every attempt and every delivery of one call: the key under which to make side effects idempotent.
    pub idempotency_key: String,
    /// The task that this attempt came as; empty for a local activity.
    pub task_id: String,
    /// This attempt, different from every other.
    pub attempt_id: String,
    /// From 1.
    pub attempt_number: u64,
    /// The queue it came from; empty for a local activity.
    pub task_queue: String,
    /// Its namespace.
    pub namespace: String,
    /// When the attempt is over, whatever it does.
    pub deadline: Option<Timestamp>,
    /// Whether it runs in the worker of its workflow.
    pub local: bool,
}

/// The activity's side of the server. Cheap to clone.
#[derive(Clone)]
pub struct ActivityContext {
    inner: Arc<Inner>,
}

struct Inner {
    info: ActivityInfo,
    cancelled: AtomicBool,
    heart: Box<dyn Heart>,
    session: Option<ActivitySession>,
    data: Arc<Extensions>,
}

/// Takes heartbeats to whoever must hear them.
pub(crate) trait Heart: Send + Sync {
    /// Whether the attempt may go on.
    fn beat(&self, details: Option<Value>) -> BoxFuture<'_, Beat>;
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    GoOn,
    Stop,
}

/// Values that a worker gives to all its activities, one of each type.
#[derive(Default)]
pub(crate) struct Extensions(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Extensions {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }
}

impl ActivityContext {
    pub(crate) fn new(
        info: ActivityInfo,
        heart: Box<dyn Heart>,
        session: Option<ActivitySession>,
        data: Arc<Extensions>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                info,
                cancelled: AtomicBool::new(false),
                heart,
                session,
                data,
            }),
        }
    }

    /// What this attempt is.
    pub fn info(&self) -> &ActivityInfo {
        &self.inner.info
    }

    /// The same for every attempt of one call: the key under which to make side effects idempotent.
    pub fn idempotency_key(&self) -> &str {
        &self.inner.info.idempotency_key
    }

    /// A value that the worker was given with `WorkerBuilder::data`.
    ///
    /// # Panics
    /// If it was given none of this type.
    pub fn data<T: Send + Sync + 'static>(&self) -> Arc<T> {
        let found = self.inner.data.0.get(&TypeId::of::<T>()).cloned();
        found
            .and_then(|value| value.downcast().ok())
            .unwrap_or_else(|| {
                panic!(
                    "the worker was given no {}; add it with Worker::builder(..).data(..)",
                    std::any::type_name::<T>()
                )
            })
    }

    /// Tells the server that the attempt is alive, and learns whether it should go on.
    ///
    /// # Errors
    /// When the activity must stop: its workflow was cancelled or is over, or the attempt timed out. Clean up and return; what
    /// is returned is not recorded any more.
    pub async fn heartbeat(&self) -> Result<(), Cancelled> {
        self.beat(None).await
    }

    /// A heartbeat that also shows how far the attempt has come.
    ///
    /// # Errors
    /// As [`heartbeat`](Self::heartbeat).
    pub async fn heartbeat_with<T: Serialize>(&self, details: &T) -> Result<(), HeartbeatError> {
        let details = serde_json::to_value(details)
            .map_err(|error| HeartbeatError::Details(PayloadError::new(error.to_string())))?;
        Ok(self.beat(Some(details)).await?)
    }

    async fn beat(&self, details: Option<Value>) -> Result<(), Cancelled> {
        if self.is_cancelled() {
            return Err(Cancelled);
        }
        match self.inner.heart.beat(details).await {
            Beat::GoOn => Ok(()),
            Beat::Stop => {
                self.cancel();
                Err(Cancelled)
            }
        }
    }

    /// Whether a heartbeat has said that the attempt must stop.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::Relaxed);
    }

    /// The session that the activity runs in.
    pub fn session(&self) -> Option<&ActivitySession> {
        self.inner.session.as_ref()
    }
}

impl fmt::Debug for ActivityContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ActivityContext")
            .field(&self.inner.info)
            .finish()
    }
}

/// Why a heartbeat with details was not accepted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HeartbeatError {
    /// The activity must stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The details have no JSON form.
    #[error(transparent)]
    Details(PayloadError),
}

/// A session as activity code sees it.
#[derive(Clone, Debug)]
pub struct ActivitySession {
    pub(crate) id: String,
    pub(crate) generation: u64,
    pub(crate) active: Arc<AtomicBool>,
}

impl ActivitySession {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether this worker still holds it, as far as it knows.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Changes whenever the session comes to this worker anew. A resource that was made under another generation is gone:
    /// make it again.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}
