//! What happens in a runner, for listeners: metrics, audit, recovery.
//!
//! Events go through a bounded queue to one dispatcher, which calls the listeners in the order of their registration. So a listener
//! that is slow delays other listeners, and never a task. If the queue is full, events are dropped and counted.

mod dispatcher;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_protocol::conductor::TaskResult;
use longhaul_transport::RequestError;

pub use dispatcher::{Dispatching, EventDispatcher, EventDispatcherBuilder, QUEUE_EVENTS_MAX};

use crate::worker::TaskFailure;

/// Makes the events, the enumeration of all of them, and the listener with one method for each.
macro_rules! events {
    ($($(#[$meta:meta])* $name:ident, $method:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug)]
            pub struct $name {
                $($(#[$field_meta])* pub $field: $type,)*
            }

            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(event)
                }
            }
        )*

        /// Something that happened in a runner.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$meta])* $name($name),)*
        }

        /// Listens to the events of runners. Every method does nothing unless it is implemented.
        ///
        /// A listener that panics is logged and affects neither the task nor other listeners.
        pub trait TaskRunnerEventsListener: Send + Sync + 'static {
            $(
                $(#[$meta])*
                fn $method(&self, event: &$name, at: SystemTime) {
                    let _ = (event, at);
                }
            )*
        }

        impl<L: TaskRunnerEventsListener + ?Sized> TaskRunnerEventsListener for Arc<L> {
            $(
                fn $method(&self, event: &$name, at: SystemTime) {
                    (**self).$method(event, at);
                }
            )*
        }

        impl Event {
            /// Calls the method of the listener for this event.
            fn tell(&self, listener: &dyn TaskRunnerEventsListener, at: SystemTime) {
                match self {
                    $(Self::$name(event) => listener.$method(event, at),)*
                }
            }
        }
    };
}

events! {
    /// A poll begins.
    PollStarted, on_poll_started {
        /// The task type.
        task_type: Arc<str>,
        /// The worker.
        worker_id: String,
        /// How many tasks the poll asks for.
        poll_count: usize,
    }
    /// A poll ended, with or without tasks.
    PollCompleted, on_poll_completed {
        /// The task type.
        task_type: Arc<str>,
        /// How long it took.
        duration: Duration,
        /// How many tasks there were.
        tasks_received: usize,
    }
    /// A poll failed.
    PollFailure, on_poll_failure {
        /// The task type.
        task_type: Arc<str>,
        /// How long it took.
        duration: Duration,
        /// Why it failed.
        cause: Arc<RequestError>,
    }
    /// The function of a worker begins.
    TaskExecutionStarted, on_task_execution_started {
        /// The task type.
        task_type: Arc<str>,
        /// The task.
        task_id: String,
        /// The worker.
        worker_id: String,
        /// The workflow.
        workflow_instance_id: String,
    }
    /// The function of a worker returned.
    TaskExecutionCompleted, on_task_execution_completed {
        /// The task type.
        task_type: Arc<str>,
        /// The task.
        task_id: String,
        /// The worker.
        worker_id: String,
        /// The workflow.
        workflow_instance_id: String,
        /// How long the function took.
        duration: Duration,
        /// The bytes of the output as JSON.
        output_size_bytes: usize,
    }
    /// The function of a worker failed, whether the task may be tried again or not.
    TaskExecutionFailure, on_task_execution_failure {
        /// The task type.
        task_type: Arc<str>,
        /// The task.
        task_id: String,
        /// The worker.
        worker_id: String,
        /// The workflow.
        workflow_instance_id: String,
        /// Why it failed.
        cause: Arc<TaskFailure>,
        /// How long the function took.
        duration: Duration,
    }
    /// A result is lost: no attempt to report it succeeded. A listener can keep it and report it later.
    TaskUpdateFailure, on_task_update_failure {
        /// The task type.
        task_type: Arc<str>,
        /// The task.
        task_id: String,
        /// The worker.
        worker_id: String,
        /// The workflow.
        workflow_instance_id: String,
        /// Why the last attempt failed.
        cause: Arc<RequestError>,
        /// How often it was sent.
        retry_count: u32,
        /// How long it took, with all attempts.
        duration: Duration,
        /// The result.
        task_result: Arc<TaskResult>,
    }
    /// An attempt to report a result failed.
    TaskUpdateError, on_task_update_error {
        /// The task type.
        task_type: Arc<str>,
        /// The task.
        task_id: String,
        /// Why it failed.
        cause: Arc<RequestError>,
        /// The number of the attempt, from 1.
        attempt: u32,
    }
    /// A result was reported.
    TaskUpdateCompleted, on_task_update_completed {
        /// The task type.
        task_type: Arc<str>,
        /// The task.
        task_id: String,
        /// The worker.
        worker_id: String,
        /// The workflow.
        workflow_instance_id: String,
        /// How long it took, with all attempts.
        duration: Duration,
    }
    /// A runner did not poll because it is paused.
    TaskPaused, on_task_paused {
        /// The task type.
        task_type: Arc<str>,
    }
}
