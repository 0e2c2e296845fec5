//! Waits for the result of a workflow. The client reads the description, then sends a long poll for the history, which returns
//! when the run closes.

use std::time::Duration;

use longhaul_protocol::Payload;

use super::{Error, ResultError, Status, WorkflowDescription, WorkflowFailure, WorkflowHandle};

/// The closed reason of a run that continued as new.
const CONTINUED: &str = "continued";

/// The first and the longest pause between two requests to a server that does not return `last_history_sequence`.
const ASK_AGAIN_FIRST: Duration = Duration::from_millis(50);
const ASK_AGAIN_LAST: Duration = Duration::from_secs(1);

/// Waits for the last run of the workflow and returns its output.
pub(super) async fn wait(handle: &WorkflowHandle) -> Result<Payload, ResultError> {
    let mut handle = handle.clone();
    let mut ask_again = ASK_AGAIN_FIRST;
    loop {
        let run = handle.describe().await?;
        if run.status.is_terminal() {
            if run.closed_reason.as_deref() != Some(CONTINUED) {
                return outcome(run);
            }
            // The newest run has the result.
            handle = handle.client().workflow(run.workflow_id.as_str());
            if !run.is_current_run {
                continue;
            }
        } else if let Some(sequence) = run.last_history_sequence {
            wait_for_close(&handle.of_run(run.run_id), sequence).await?;
            continue;
        }
        tokio::time::sleep(ask_again).await;
        ask_again = (ask_again * 2).min(ASK_AGAIN_LAST);
    }
}

/// Returns when the run may have closed.
async fn wait_for_close(run: &WorkflowHandle, after: u64) -> Result<(), Error> {
    while !run.history().wait_for_close(after).await? {}
    Ok(())
}

fn outcome(run: WorkflowDescription) -> Result<Payload, ResultError> {
    match run.status {
        Status::Completed => Ok(run.output_payload()),
        Status::Cancelled => Err(ResultError::Cancelled(run.reason)),
        Status::Terminated => Err(ResultError::Terminated(run.reason)),
        _ if run.closed_reason.as_deref() == Some("timed_out") => Err(ResultError::TimedOut(
            run.reason.unwrap_or_else(|| "timed_out".to_owned()),
        )),
        _ => {
            let failure = run.failure.unwrap_or_else(|| WorkflowFailure {
                message: "the server returned no failure".to_owned(),
                ..WorkflowFailure::default()
            });
            Err(ResultError::Failed(Box::new(failure)))
        }
    }
}
