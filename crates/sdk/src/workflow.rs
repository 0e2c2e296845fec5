//! Workflow code and its replay.
//!
//! Workflow code uses a [`WorkflowContext`]. Internally, an execution replays the history of a run against the code and collects
//! the commands for the server. It uses no clock, no I/O and no threads.

mod activity;
mod call;
mod child;
mod context;
mod handler;
mod local;
mod options;
mod replay;
mod saga;
mod scope;
mod select;
mod session;
mod state;
mod wait;

pub use activity::{ActivityCallBuilder, ActivityFuture};
pub use child::{ChildFuture, ChildWorkflowCallBuilder};
pub use context::{CancellationScope, JoinHandle, Signals, WaitUntil, WorkflowContext};
pub use local::{LocalActivityCallBuilder, LocalActivityOptions};
/// What happens to an activity or child workflow when its workflow is cancelled while it waits for it.
///
/// * `TryCancel`: the call is asked to stop, and the workflow continues at once.
/// * `WaitCancellationCompleted`: the call is asked to stop, and the workflow continues when it has stopped.
/// * `Abandon`: the call runs to its end, and the workflow does not wait for it.
#[doc(inline)]
pub use longhaul_protocol::workflow_command::CancellationPolicy;
/// What happens to a child workflow that is open when its parent closes.
///
/// * `Abandon`: the child continues. This is the default.
/// * `RequestCancel`: the child is cancelled at once.
/// * `Terminate`: the child is terminated.
/// * `RequestCancellation`: the child is asked to clean up and end.
#[doc(inline)]
pub use longhaul_protocol::workflow_command::ParentClosePolicy;
pub use options::RetryPolicy;
pub use replay::event::HistoryEvent;
pub use replay::journal::RunInfo;
pub use replay::replay_error::{Divergence, MessageKind, ReplayError};
pub use saga::Saga;
pub use select::{Either, join, join_all, select, select_all, try_join, try_join_all};
pub use session::{Session, WorkerSessionOptions};
pub use state::State;

pub(crate) use activity::merge;
pub(crate) use call::{FailedLocal, Outcome};
pub(crate) use local::{LocalCall, LocalPhase};
pub(crate) use replay::event::either_form;
pub(crate) use replay::execution::{Decision, Execution, Handled};
