//! The statuses that lists filter by, and the condition of a filter. A run of code has one of five list statuses, a
//! definition run one of six, so a list of one program never meets the runs of the other.

use longhaul_engine::run::state::{Program, Status};
use longhaul_engine::visibility::{Condition, Field, Matcher, Term, Test};
use longhaul_protocol::conductor::WorkflowStatus;

use crate::{RunFilter, StatusFilter};

/// The list statuses of runs of code.
const CODE_STATUSES: [&str; 5] = ["running", "completed", "failed", "cancelled", "terminated"];

/// Returns the whole filter except its place as one condition.
pub(crate) fn condition_of(filter: &RunFilter) -> Condition {
    let workflow_type = filter.workflow_type.as_ref().map(|workflow_type| {
        Condition::Test(Test {
            field: Field::WorkflowType,
            matcher: Matcher::OneOf(vec![Term::Text(workflow_type.clone())]),
        })
    });
    let status = filter.status.map(|status| {
        Condition::Status(match status {
            StatusFilter::Running => vec![Status::Pending, Status::Running, Status::Waiting],
            StatusFilter::Completed => vec![Status::Completed],
            StatusFilter::Failed => vec![Status::Failed, Status::Cancelled, Status::Terminated],
            StatusFilter::Cancelled => vec![Status::Cancelled],
            StatusFilter::Terminated => vec![Status::Terminated],
        })
    });
    let program = filter.program.map(Condition::Program);
    let parts = program.into_iter().chain(workflow_type).chain(status);
    Condition::All(parts.chain(filter.condition.clone()).collect())
}

/// Returns the list statuses of the runs of a program.
pub(crate) fn words_of_program(program: Program) -> Vec<&'static str> {
    match program {
        Program::Code => CODE_STATUSES.to_vec(),
        Program::Definition => {
            let all = WorkflowStatus::ALL.iter();
            all.map(|status| status.as_str()).collect()
        }
    }
}

/// Returns the list statuses of the runs that have a status, of both programs.
pub(crate) fn words_of_status(status: Status) -> &'static [&'static str] {
    match status {
        Status::Pending | Status::Running | Status::Waiting => &["running", "RUNNING", "PAUSED"],
        Status::Completed => &["completed", "COMPLETED"],
        Status::Failed => &["failed", "FAILED", "TIMED_OUT"],
        Status::Cancelled => &["cancelled"],
        Status::Terminated => &["terminated", "TERMINATED"],
    }
}
