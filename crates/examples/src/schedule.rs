//! A workflow that is started by the clock.
//!
//! A server without schedules answers that it has none; the example then says so.

use std::time::Duration;

use longhaul_sdk::client::{OverlapPolicy, Schedule, ScheduleAction, ScheduleSpec};
use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{Client, WorkflowContext, WorkflowResult, workflow};

use crate::{Shown, unique};

/// The queue of this example.
pub const QUEUE: &str = "reports";

/// Writes a report about the day.
#[workflow]
pub async fn report(ctx: WorkflowContext, about: String) -> WorkflowResult<String> {
    Ok(format!("{about}, as of {}", ctx.now()))
}

/// Adds the example to a worker.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder.workflow::<report>()
}

/// Every minute, and on weekdays at eight in the morning; never two at once.
fn often() -> Schedule {
    let spec = ScheduleSpec::every(Duration::from_secs(60))
        .and_cron("0 8 * * 1-5")
        .timezone("Europe/Berlin");
    let action = ScheduleAction::new(report("sales".to_owned())).queue(QUEUE);
    Schedule::new(spec, action).overlap(OverlapPolicy::Skip)
}

/// Sets a schedule up, lets it fire once at once, and removes it.
///
/// # Errors
/// As the client fails.
pub async fn show(client: &Client) -> Shown {
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
