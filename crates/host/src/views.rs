//! Views of a host, one per subject. [`Host`] itself starts, stops and has the settings; an operation is a method of the view of
//! its subject, in the file of the subject.

use crate::Host;

macro_rules! views {
    ($($(#[$doc:meta])* $vis:vis $view:ident by $method:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            $vis struct $view<'h> {
                pub(crate) host: &'h Host,
            }
        )*

        impl Host {
            $(
                $(#[$doc])*
                $vis fn $method(&self) -> $view<'_> {
                    $view { host: self }
                }
            )*
        }
    };
}

views! {
    /// Workflows: start, describe, list, signal, update, cancel, stop.
    pub Workflows by workflows;
    /// Workflow tasks: poll, claim, history, complete, fail, heartbeat.
    pub WorkflowTasks by workflow_tasks;
    /// Activity tasks: poll, claim, complete, fail, heartbeat.
    pub ActivityTasks by activity_tasks;
    /// Local activities of a leased workflow task.
    pub LocalActivities by local_activities;
    /// Queries: ask, and the query tasks of workers.
    pub Queries by queries;
    /// Validations of updates by workers.
    pub Validations by validations;
    /// Worker sessions.
    pub Sessions by sessions;
    /// Registered workers.
    pub Workers by workers;
    /// Namespaces.
    pub Namespaces by namespaces;
    /// Search attribute definitions.
    pub SearchAttributes by search_attributes;
    /// Rollouts of worker builds.
    pub Rollouts by rollouts;
    /// Registered definitions of tasks and workflows.
    pub Definitions by definitions;
    /// Event handlers, and the messages that they act on.
    pub Events by events;
    /// Definition runs: start, read, terminate, pause, resume.
    pub Executions by executions;
    /// Tasks of definition runs: poll, report, read.
    pub ExecutionTasks by execution_tasks;
    /// Task queues as callers see them.
    pub TaskQueues by task_queues;
    /// Matching of ready tasks and polls.
    pub(crate) Matching by matching;
    /// Commands on the run of a task.
    pub(crate) Tasks by tasks;
    /// Questions to workers, and their results.
    pub(crate) Questions by questions;
}
