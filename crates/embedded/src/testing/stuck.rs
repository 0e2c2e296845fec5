//! A workflow that does not end, and what it waits for, in words.

use longhaul_host::api::{Part, Run, TimerKind, WaitFor};
use std::fmt;
use std::time::Duration;

use longhaul_host::{DebugView, Host, RunFilter, StatusFilter};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkflowId};

use super::QUEUE;
use super::fakes::Fakes;

/// Open runs that are described.
const DESCRIBED_MAX: usize = 20;

/// A workflow that does not end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("workflow `{workflow_id}` does not end: {why}. It is {at}; {}", Waits(.open))]
#[non_exhaustive]
pub struct Stuck {
    /// The workflow that was waited for.
    pub workflow_id: String,
    /// Why the waiting ended.
    pub why: Why,
    /// The time in the environment.
    pub at: Timestamp,
    /// The open workflows, the one that was waited for first, each with what it waits for.
    pub open: Vec<(String, Vec<String>)>,
}

/// Why waiting for a workflow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Nothing happens by itself any more.
    NothingDue,
    /// The code of a workflow failed, or does not fit its history.
    TaskFailed,
    /// It would take longer than the environment waits.
    TooLong(Duration),
    /// Time was moved so often that the workflow seems to go in circles.
    TooManyJumps(u32),
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingDue => out.write_str("nothing happens by itself any more"),
            Self::TaskFailed => out.write_str("the code of a workflow failed"),
            Self::TooLong(limit) => {
                let days = limit.as_secs() / 86_400;
                write!(out, "it would take more than {days} days")
            }
            Self::TooManyJumps(jumps) => write!(out, "time was moved {jumps} times for it"),
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
        fakes: &Fakes,
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

/// The server's debug view of every open run.
pub(super) async fn open_runs(
    host: &Host,
    namespace: &Namespace,
) -> longhaul_host::Result<Vec<DebugView>> {
    let filter = RunFilter {
        namespace: namespace.clone(),
        workflow_type: None,
        status: Some(StatusFilter::Running),
        condition: None,
        after: None,
        limit: DESCRIBED_MAX,
    };
    let mut views = Vec::new();
    for run in host.list_workflows(&filter).await?.runs {
        let view = host.debug_workflow(namespace, &run.workflow_id, Some(&run.run_id));
        views.push(view.await?);
    }
    Ok(views)
}

fn waits(view: &DebugView, fakes: &Fakes) -> Vec<String> {
    let run = &view.description.run;
    let parts = run.parts.values();
    let mut waits: Vec<String> = parts.filter_map(|part| wait(part, fakes)).collect();
    waits.extend(workflow_task(run));
    if waits.is_empty() {
        waits.push("nothing that the server knows of".to_owned());
    }
    for finding in &view.findings {
        waits.push(format!("{}: {}", finding.severity, finding.message));
    }
    waits
}

fn workflow_task(run: &Run) -> Option<String> {
    run.core.workflow_task.as_ref()?;
    Some("its workflow task".to_owned())
}

fn wait(part: &Part, fakes: &Fakes) -> Option<String> {
    match part {
        Part::Activity(activity) => {
            let name = &activity.activity_type;
            Some(match &activity.attempt {
                Some(attempt) => format!("attempt {} of activity `{name}`", attempt.number),
                None if activity.queue.as_str() == QUEUE && !fakes.has(name) => {
                    format!("activity `{name}`, which the environment neither has nor fakes")
                }
                None => format!("activity `{name}`"),
            })
        }
        Part::LocalActivity(local) => Some(format!("local activity `{}`", local.activity_type)),
        Part::Timer(timer) => match timer.kind {
            TimerKind::Plain => Some(format!("a timer until {}", timer.fire_at)),
            TimerKind::ConditionTimeout | TimerKind::SignalTimeout => {
                Some(format!("a timeout at {}", timer.fire_at))
            }
        },
        Part::Wait(wait) => Some(match &wait.what {
            WaitFor::Condition { key, .. } => match key {
                Some(key) => format!("`{key}`"),
                None => "a condition".to_owned(),
            },
            WaitFor::Signal { name, .. } => format!("`signal:{name}`"),
        }),
        Part::Child(child) => Some(format!(
            "child workflow `{}` ({})",
            child.workflow_id, child.workflow_type
        )),
        _ => None,
    }
}
