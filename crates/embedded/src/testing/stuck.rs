//! The error for a workflow that does not end. It names what the workflow waits for.

use std::fmt;
use std::time::Duration;

use longhaul_host::api::{OpenWait, TimerKind, WaitFor, waits as open_waits};
use longhaul_host::{DebugView, Host, RunFilter, StatusFilter};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkflowId};

use super::QUEUE;
use super::fakes::Fakes;

/// The most open runs that the error describes.
const DESCRIBED_MAX: usize = 20;

/// A workflow that does not end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("workflow `{workflow_id}` does not end: {why}. It is {at}; {}", Waits(.open))]
#[non_exhaustive]
pub struct Stuck {
    /// The id of the workflow that the test waits for.
    pub workflow_id: String,
    /// Why the wait ended.
    pub why: Why,
    /// The time of the environment.
    pub at: Timestamp,
    /// The open workflows and what each waits for. The workflow that the test waits for comes first.
    pub open: Vec<(String, Vec<String>)>,
}

/// Why the wait for a workflow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// No timer, timeout or retry is due.
    NothingDue,
    /// The code of a workflow failed, or does not match its history.
    TaskFailed,
    /// The next due time is beyond the longest wait of the environment.
    TooLong(Duration),
    /// The clock was moved more often than the environment allows.
    TooManyJumps(u32),
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingDue => out.write_str("no timer, timeout or retry is due"),
            Self::TaskFailed => out.write_str("the code of a workflow failed"),
            Self::TooLong(limit) => {
                let days = limit.as_secs() / 86_400;
                write!(out, "it would take more than {days} days")
            }
            Self::TooManyJumps(jumps) => write!(out, "the clock was moved {jumps} times for it"),
        }
    }
}

struct Waits<'a>(&'a [(String, Vec<String>)]);

impl fmt::Display for Waits<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return out.write_str("no workflow is open");
        }
        for (index, (workflow, waits)) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { "; " };
            write!(out, "{before}{workflow} waits for {}", waits.join(", "))?;
        }
        Ok(())
    }
}

impl Stuck {
    pub(super) async fn describe(
        host: &Host,
        fakes: Option<&Fakes>,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        why: Why,
    ) -> longhaul_host::Result<Self> {
        let mut views = open_runs(host, namespace).await?;
        views.sort_by_key(|view| view.description.run.spec.workflow_id != *workflow_id);
        let open = views.iter().map(|view| {
            let spec = &view.description.run.spec;
            let name = format!("`{}` ({})", spec.workflow_id, spec.workflow_type);
            (name, waits(view, fakes))
        });
        Ok(Self {
            workflow_id: workflow_id.to_string(),
            why,
            at: host.now(),
            open: open.collect(),
        })
    }
}

/// Returns the debug view of every open run.
pub(super) async fn open_runs(
    host: &Host,
    namespace: &Namespace,
) -> longhaul_host::Result<Vec<DebugView>> {
    let filter = RunFilter {
        namespace: namespace.clone(),
        program: None,
        workflow_type: None,
        status: Some(StatusFilter::Running),
        condition: None,
        after: None,
        limit: DESCRIBED_MAX,
    };
    let mut views = Vec::new();
    for run in host.workflows().list(&filter).await?.runs {
        let view = host
            .workflows()
            .debug(namespace, &run.workflow_id, Some(&run.run_id));
        views.push(view.await?);
    }
    Ok(views)
}

fn waits(view: &DebugView, fakes: Option<&Fakes>) -> Vec<String> {
    let run = &view.description.run;
    let mut waits: Vec<String> = open_waits(run).map(|wait| shown(wait, fakes)).collect();
    if waits.is_empty() {
        waits.push("nothing that the server has recorded".to_owned());
    }
    for finding in &view.findings {
        waits.push(format!("{}: {}", finding.severity, finding.message));
    }
    waits
}

/// The words of the test environment, which knows the activities that the test fakes.
fn shown(wait: OpenWait<'_>, fakes: Option<&Fakes>) -> String {
    match wait {
        OpenWait::WorkflowTask(_) => "its workflow task".to_owned(),
        OpenWait::Activity(activity) => {
            let name = &activity.activity_type;
            match &activity.attempt {
                Some(attempt) => format!("attempt {} of activity `{name}`", attempt.number),
                None if activity.queue.as_str() == QUEUE
                    && fakes.is_some_and(|fakes| !fakes.has(name)) =>
                {
                    format!("activity `{name}`, which the environment neither has nor fakes")
                }
                None => format!("activity `{name}`"),
            }
        }
        OpenWait::LocalActivity(local) => format!("local activity `{}`", local.activity_type),
        OpenWait::Timer(timer) => match timer.kind {
            TimerKind::Plain => format!("a timer until {}", timer.fire_at),
            TimerKind::ConditionTimeout | TimerKind::SignalTimeout => {
                format!("a timeout at {}", timer.fire_at)
            }
        },
        OpenWait::Wait(wait) => match &wait.what {
            WaitFor::Condition { key: Some(key), .. } => format!("`{key}`"),
            WaitFor::Condition { key: None, .. } => "a condition".to_owned(),
            WaitFor::Signal { name, .. } => format!("`signal:{name}`"),
        },
        OpenWait::Child(child) => format!(
            "child workflow `{}` ({})",
            child.workflow_id, child.workflow_type
        ),
        OpenWait::Task(task) => format!("task `{}`", task.reference),
        OpenWait::Update(update) => {
            let name = update.command.target_name.as_deref();
            format!("update `{}`", name.unwrap_or_default())
        }
    }
}
