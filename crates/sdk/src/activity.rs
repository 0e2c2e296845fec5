//! The context of an activity.

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

/// The identity of an attempt of an activity.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ActivityInfo {
    /// The id of the workflow that called the activity.
    pub workflow_id: String,
    /// The id of the run that called the activity.
    pub run_id: String,
    /// The activity type.
    pub activity_type: String,
    /// A key that is the same for every attempt of one call. Use it to make side effects idempotent.
    pub idempotency_key: String,
    /// The id of the activity task. Empty for a local activity.
    pub task_id: String,
    /// The id of this attempt. Every attempt has another one.
    pub attempt_id: String,
    /// The number of this attempt, from 1.
    pub attempt_number: u64,
    /// The task queue of the task. Empty for a local activity.
    pub task_queue: String,
    /// The namespace of the workflow.
    pub namespace: String,
    /// The time when the attempt times out.
    pub deadline: Option<Timestamp>,
    /// Whether this is a local activity, which runs in the worker of its workflow.
    pub local: bool,
}

/// The context of an activity: heartbeats, the identity of the attempt, and values from the worker. Cheap to clone.
#[derive(Clone)]
pub struct ActivityContext {
    inner: Arc<Inner>,
}

struct Inner {
    info: ActivityInfo,
    cancelled: AtomicBool,
    heartbeats: Box<dyn HeartbeatSink>,
    session: Option<ActivitySession>,
    data: Arc<Extensions>,
}

/// Records the heartbeats of an attempt.
pub(crate) trait HeartbeatSink: Send + Sync {
    /// Records a heartbeat. Returns whether the attempt may continue.
    fn heartbeat(&self, details: Option<Value>) -> BoxFuture<'_, HeartbeatReply>;
}

/// Whether an attempt may continue after a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatReply {
    Continue,
    Stop,
}

/// Values that a worker shares with all its activities, one of each type.
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
        heartbeats: Box<dyn HeartbeatSink>,
        session: Option<ActivitySession>,
        data: Arc<Extensions>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                info,
                cancelled: AtomicBool::new(false),
                heartbeats,
                session,
                data,
            }),
        }
    }

    /// Returns the identity of this attempt.
    pub fn info(&self) -> &ActivityInfo {
        &self.inner.info
    }

    /// Returns a key that is the same for every attempt of one call. Use it to make side effects idempotent.
    pub fn idempotency_key(&self) -> &str {
        &self.inner.info.idempotency_key
    }

    /// Returns the value of this type that was added with [`WorkerBuilder::data`](crate::worker::WorkerBuilder::data).
    ///
    /// # Panics
    /// If no value of this type was added.
    pub fn data<T: Send + Sync + 'static>(&self) -> Arc<T> {
        let found = self.inner.data.0.get(&TypeId::of::<T>()).cloned();
        found
            .and_then(|value| value.downcast().ok())
            .unwrap_or_else(|| {
                panic!(
                    "the worker has no data of type {}; add it with Worker::builder(..).data(..)",
                    std::any::type_name::<T>()
                )
            })
    }

    /// Sends a heartbeat: the attempt is still running.
    ///
    /// # Errors
    /// [`Cancelled`] if the activity must stop, because its workflow was cancelled or has ended, or because the attempt timed
    /// out. Clean up and return. The result is not recorded any more.
    pub async fn heartbeat(&self) -> Result<(), Cancelled> {
        self.send_heartbeat(None).await
    }

    /// Sends a heartbeat with details about the progress of the attempt.
    ///
    /// # Errors
    /// [`HeartbeatError::Cancelled`] if the activity must stop, as for [`heartbeat`](Self::heartbeat), and
    /// [`HeartbeatError::Details`] if the details cannot be written as JSON.
    pub async fn heartbeat_with<T: Serialize>(&self, details: &T) -> Result<(), HeartbeatError> {
        let details = serde_json::to_value(details)
            .map_err(|error| HeartbeatError::Details(PayloadError::new(error.to_string())))?;
        Ok(self.send_heartbeat(Some(details)).await?)
    }

    async fn send_heartbeat(&self, details: Option<Value>) -> Result<(), Cancelled> {
        if self.is_cancelled() {
            return Err(Cancelled);
        }
        match self.inner.heartbeats.heartbeat(details).await {
            HeartbeatReply::Continue => Ok(()),
            HeartbeatReply::Stop => {
                self.cancel();
                Err(Cancelled)
            }
        }
    }

    /// Returns whether a heartbeat was answered with the request to stop.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns the session in which the activity runs, if it runs in one.
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

/// Why a heartbeat with details failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeartbeatError {
    /// The activity must stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The details cannot be written as JSON.
    #[error(transparent)]
    Details(PayloadError),
}

/// A session in activity code.
#[derive(Clone, Debug)]
pub struct ActivitySession {
    pub(crate) id: String,
    pub(crate) generation: u64,
    pub(crate) active: Arc<AtomicBool>,
}

impl ActivitySession {
    /// Returns the id of the session.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether this worker holds the session, as far as it knows.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Returns a number that increases whenever this worker acquires the session again. A resource that was created under another
    /// generation is lost and must be created again.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}
