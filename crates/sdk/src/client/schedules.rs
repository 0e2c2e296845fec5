//! Schedules: the server starts a workflow at given times.
//!
//! For servers that have schedules; longhaul does not yet. Only with the cargo feature `schedules`.

use std::sync::Arc;

use futures::stream::Stream;
use longhaul_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Client, Error, Page, page};
use crate::connection::Call;
use crate::transport::Plane;

mod definition;
mod description;

pub use definition::{
    Interval, OverlapPolicy, Schedule, ScheduleAction, ScheduleSpec, ScheduleUpdate,
};
pub use description::{BackfillResult, ScheduleDescription, TriggerOutcome};

impl Client {
    /// Creates a schedule.
    ///
    /// ```no_run
    /// # use longhaul_sdk::{Client, WorkflowCall};
    /// use longhaul_sdk::client::{Schedule, ScheduleAction, ScheduleSpec};
    ///
    /// # async fn example(client: Client) -> Result<(), longhaul_sdk::client::Error> {
    /// let rollup = ScheduleAction::new(WorkflowCall::<()>::named("rollup")).queue("reports");
    /// let mornings = ScheduleSpec::cron("0 6 * * *").timezone("Europe/Berlin");
    /// let schedule = client.create_schedule("daily-rollup", Schedule::new(mornings, rollup)).await?;
    /// schedule.trigger(None).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The id is taken, or the specification is not understood.
    pub async fn create_schedule(
        &self,
        schedule_id: &str,
        schedule: Schedule,
    ) -> Result<ScheduleHandle, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            schedule_id: &'a str,
            #[serde(flatten)]
            schedule: definition::Body,
        }
        let body = Body {
            schedule_id,
            schedule: schedule.settle()?,
        };
        let call = self.connection().post(Plane::Control, &["schedules"]);
        call.json(&body).send_raw().await?;
        Ok(self.schedule(schedule_id))
    }

    /// A schedule that was created before. Nothing is sent yet.
    pub fn schedule(&self, schedule_id: impl Into<Arc<str>>) -> ScheduleHandle {
        ScheduleHandle {
            client: self.clone(),
            schedule_id: schedule_id.into(),
        }
    }

    /// The schedules of the namespace, newest first.
    pub fn schedules(&self) -> ListSchedules {
        ListSchedules {
            client: self.clone(),
            status: None,
            workflow_type: None,
            query: None,
        }
    }
}

/// One schedule. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ScheduleHandle {
    client: Client,
    schedule_id: Arc<str>,
}

impl ScheduleHandle {
    /// The schedule's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.schedule_id
    }

    /// Everything about it.
    ///
    /// # Errors
    /// There is no such schedule.
    pub async fn describe(&self) -> Result<ScheduleDescription, Error> {
        let segments = ["schedules", self.id()];
        let call = self.client.connection().get(Plane::Control, &segments);
        Ok(call.send().await?)
    }

    /// Changes parts of it.
    ///
    /// # Errors
    /// There is no such schedule, or the change is not understood.
    pub async fn update(&self, update: ScheduleUpdate) -> Result<(), Error> {
        let segments = ["schedules", self.id()];
        let call = self.client.connection().put(Plane::Control, &segments);
        call.json(&update.settle()?).send_raw().await?;
        Ok(())
    }

    /// Removes it. Workflows that it started go on.
    ///
    /// # Errors
    /// There is no such schedule.
    pub async fn delete(&self) -> Result<(), Error> {
        let segments = ["schedules", self.id()];
        let call = self.client.connection().delete(Plane::Control, &segments);
        call.send_raw().await?;
        Ok(())
    }

    /// Starts nothing until it is resumed.
    ///
    /// # Errors
    /// There is no such schedule.
    pub async fn pause(&self, note: Option<&str>) -> Result<(), Error> {
        self.note("pause", note).await
    }

    /// Goes on from now.
    ///
    /// # Errors
    /// There is no such schedule.
    pub async fn resume(&self, note: Option<&str>) -> Result<(), Error> {
        self.note("resume", note).await
    }

    /// Acts now, whatever the time. What came of it depends on the overlap policy, this one or the schedule's own.
    ///
    /// # Errors
    /// There is no such schedule, or the workflow could not be started.
    pub async fn trigger(&self, overlap: Option<OverlapPolicy>) -> Result<TriggerOutcome, Error> {
        #[derive(Serialize)]
        struct Body {
            #[serde(skip_serializing_if = "Option::is_none")]
            overlap_policy: Option<OverlapPolicy>,
        }
        let body = Body {
            overlap_policy: overlap,
        };
        Ok(self.action("trigger").json(&body).send().await?)
    }

    /// Acts for every moment of the schedule from `start` on and before `end`, oldest first.
    ///
    /// # Errors
    /// There is no such schedule, or the range holds no time or too much.
    pub async fn backfill(
        &self,
        start: Timestamp,
        end: Timestamp,
        overlap: Option<OverlapPolicy>,
    ) -> Result<Vec<BackfillResult>, Error> {
        #[derive(Serialize)]
        struct Body {
            start_time: Timestamp,
            end_time: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            overlap_policy: Option<OverlapPolicy>,
        }
        #[derive(Deserialize)]
        struct Reply {
            results: Vec<BackfillResult>,
        }
        let body = Body {
            start_time: start,
            end_time: end,
            overlap_policy: overlap,
        };
        let reply: Reply = self.action("backfill").json(&body).send().await?;
        Ok(reply.results)
    }

    /// What happened to it after an event number (from 0), at most 500 events.
    ///
    /// # Errors
    /// There is no such schedule.
    pub async fn history(&self, after_sequence: u64) -> Result<Vec<Value>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            events: Vec<Value>,
        }
        let segments = ["schedules", self.id(), "history"];
        let reply: Reply = self
            .client
            .connection()
            .get(Plane::Control, &segments)
            .query("limit", Some("500"))
            .query("after_sequence", Some(&after_sequence.to_string()))
            .send()
            .await?;
        Ok(reply.events)
    }

    async fn note(&self, action: &str, note: Option<&str>) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            note: Option<&'a str>,
        }
        self.action(action).json(&Body { note }).send_raw().await?;
        Ok(())
    }

    fn action(&self, action: &str) -> Call<'_> {
        let segments = ["schedules", self.id(), action];
        self.client.connection().post(Plane::Control, &segments)
    }
}

/// A list of schedules in the making.
#[derive(Clone, Debug)]
#[must_use = "a list is not fetched until it is asked for"]
pub struct ListSchedules {
    client: Client,
    status: Option<String>,
    workflow_type: Option<String>,
    query: Option<String>,
}

impl ListSchedules {
    /// Only `active` or `paused` ones.
    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Only those that start workflows of a type.
    pub fn workflow_type(mut self, workflow_type: impl Into<String>) -> Self {
        self.workflow_type = Some(workflow_type.into());
        self
    }

    /// Only those that a query selects: `Field = literal`, joined by `AND`.
    pub fn query(mut self, query: impl Into<String>) -> Self {
        self.query = Some(query.into());
        self
    }

    /// One page: the first, or the one after the page that gave the token.
    ///
    /// # Errors
    /// The query is not understood, or the server cannot be asked.
    pub async fn page(&self, token: Option<&str>) -> Result<Page<ScheduleDescription>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            schedules: Vec<ScheduleDescription>,
            next_page_token: Option<String>,
        }
        let reply: Reply = self
            .client
            .connection()
            .get(Plane::Control, &["schedules"])
            .query("status", self.status.as_deref())
            .query("workflow_type", self.workflow_type.as_deref())
            .query("query", self.query.as_deref())
            .query("next_page_token", token)
            .send()
            .await?;
        Ok(Page {
            items: reply.schedules,
            next_page_token: reply.next_page_token,
        })
    }

    /// All of them; pages are fetched as they are reached.
    pub fn stream(self) -> impl Stream<Item = Result<ScheduleDescription, Error>> + Send {
        page::items(move |token| {
            let list = self.clone();
            Box::pin(async move { list.page(token.as_deref()).await })
        })
    }
}
