//! A workflow that a schedule starts.
//!
//! For servers that have schedules; longhaul does not yet. On other servers the example prints that.

use std::time::Duration;

use longhaul_sdk::client::{OverlapPolicy, Schedule, ScheduleAction, ScheduleSpec};
use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{Client, WorkflowContext, WorkflowResult, workflow};

use crate::{ExampleResult, unique};

/// The task queue of this example.
pub const QUEUE: &str = "reports";

/// Writes a report.
#[workflow]
pub async fn report(ctx: WorkflowContext, about: String) -> WorkflowResult<String> {
    Ok(format!("{about}, as of {}", ctx.now()))
}

/// Registers the workflows and activities of the example.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder.workflow::<report>()
}

/// Every minute, and on weekdays at eight in the morning. Never two at once.
fn often() -> Schedule {
    let spec = ScheduleSpec::every(Duration::from_secs(60))
        .and_cron("0 8 * * 1-5")
        .timezone("Europe/Berlin");
    let action = ScheduleAction::new(report("sales".to_owned())).queue(QUEUE);
    Schedule::new(spec, action).overlap(OverlapPolicy::Skip)
}

/// Creates a schedule, triggers it once, and deletes it.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow fails unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    let schedule = match client.create_schedule(&unique("report"), often()).await {
        Ok(schedule) => schedule,
        Err(error)
            if error
                .refusal()
                .is_some_and(|refusal| refusal.status() == 404) =>
        {
            say!("schedule: this server has no schedules");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    schedule.trigger(None).await?;
    say!("schedule: {} fires every minute", schedule.id());
    schedule.delete().await?;
    Ok(())
}
