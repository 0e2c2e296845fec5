//! Views of a draft, one per family of open things. [`Draft`] itself has everything that all families need: events, parts, and the
//! lookups. A change of a family's own parts is a method of its view, in the folder of the family.

use super::Draft;

macro_rules! views {
    ($($(#[$doc:meta])* $view:ident by $method:ident;)*) => {
        $(
            $(#[$doc])*
            pub(crate) struct $view<'d, 'a> {
                pub(crate) draft: &'d mut Draft<'a>,
            }
        )*

        impl<'a> Draft<'a> {
            $(
                $(#[$doc])*
                pub(crate) fn $method(&mut self) -> $view<'_, 'a> {
                    $view { draft: self }
                }
            )*
        }
    };
}

views! {
    /// Open activities: scheduling, claims, retries and ends.
    Activities by activities;
    /// The open workflow task.
    WorkflowTasks by workflow_task;
    /// Messages to other runs.
    Outbox by outbox;
    /// Child workflows.
    Children by children;
    /// Timers of the workflow, and the timeouts of its waits.
    Timers by timers;
    /// Waits for conditions and signals.
    Waits by waits;
    /// Parallel groups and selections.
    Groups by groups;
    /// Signals, and messages that wait behind a lease.
    Signals by signals;
    /// Message streams.
    StreamCursors by streams;
    /// Updates.
    Updates by updates;
    /// Local activities.
    LocalActivities by local_activities;
    /// Cooperative cancellation.
    Cancelling by cancellation;
}
