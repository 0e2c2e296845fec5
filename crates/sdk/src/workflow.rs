//! Workflow code and its replay.
//!
//! [`WorkflowContext`] is what workflow code uses. Behind it, an execution replays a run's history against the code and collects the
//! commands for the server: history in, commands out, without clock, I/O or threads.

mod activity;
mod call;
mod child;
mod context;
mod event;
mod execution;
mod handler;
mod journal;
mod local;
mod options;
mod replay_error;
mod saga;
mod scope;
mod select;
mod session;
mod state;
mod wait;

pub use activity::{ActivityFuture, CallActivity, CancellationPolicy};
pub use child::{CallChild, ChildFuture, ParentClosePolicy};
pub use context::{CancellationScope, JoinHandle, Signals, WaitUntil, WorkflowContext, session};
pub use event::HistoryEvent;
pub use journal::RunInfo;
pub use local::{LocalActivity, LocalActivityOptions};
pub use options::{OptionError, RetryPolicy};
pub use replay_error::{Divergence, ReplayError};
pub use saga::Saga;
pub use select::{Either, join, join_all, select, select_all, try_join, try_join_all};
pub use session::{Session, WorkerSessionOptions};
pub use state::State;

pub(crate) use activity::merge;
pub(crate) use call::{FailedLocal, Outcome};
pub(crate) use event::either_form;
pub(crate) use execution::{Decision, Execution, Handled};
pub(crate) use local::{LocalCall, LocalPhase};
