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
    /// [`Error::Request`] if a schedule with the id exists, the definition is not valid, the server has no schedules, or the server
    /// cannot be reached; [`Error::Payload`] if an argument of the action cannot be encoded.
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
            schedule: schedule.into_body()?,
        };
        let call = self.connection().post(Plane::Control, &["schedules"]);
        call.json(&body).send_raw().await?;
        Ok(self.schedule(schedule_id))
    }

    /// Returns a handle to an existing schedule. Sends no request.
    pub fn schedule(&self, schedule_id: impl Into<Arc<str>>) -> ScheduleHandle {
        ScheduleHandle {
            client: self.clone(),
            schedule_id: schedule_id.into(),
        }
    }

    /// Returns a list of the schedules of the namespace, newest first. Sends no request.
    pub fn schedules(&self) -> ListSchedules {
        ListSchedules {
            client: self.clone(),
            status: None,
            workflow_type: None,
            query: None,
        }
    }
}

/// A handle to a schedule. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ScheduleHandle {
    client: Client,
    schedule_id: Arc<str>,
}

impl ScheduleHandle {
    /// Returns the schedule id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.schedule_id
    }

    /// Returns the description of the schedule.
    ///
    /// # Errors
    /// [`Error::Request`] if the schedule does not exist, or if the server cannot be reached.
    pub async fn describe(&self) -> Result<ScheduleDescription, Error> {
        let segments = ["schedules", self.id()];
        let call = self.client.connection().get(Plane::Control, &segments);
        Ok(call.send().await?)
    }

    /// Changes the schedule.
    ///
    /// # Errors
    /// [`Error::Request`] if the schedule does not exist, the change is not valid, or the server cannot be reached;
    /// [`Error::Payload`] if an argument of the action cannot be encoded.
    pub async fn update(&self, update: ScheduleUpdate) -> Result<(), Error> {
        let segments = ["schedules", self.id()];
        let call = self.client.connection().put(Plane::Control, &segments);
        call.json(&update.into_body()?).send_raw().await?;
        Ok(())
    }

    /// Deletes the schedule. Workflows that it has started continue.
    ///
    /// # Errors
    /// [`Error::Request`] if the schedule does not exist, or if the server cannot be reached.
    pub async fn delete(&self) -> Result<(), Error> {
        let segments = ["schedules", self.id()];
        let call = self.client.connection().delete(Plane::Control, &segments);
        call.send_raw().await?;
        Ok(())
    }

    /// Pauses the schedule.
    ///
    /// # Errors
    /// [`Error::Request`] if the schedule does not exist, or if the server cannot be reached.
    pub async fn pause(&self, note: Option<&str>) -> Result<(), Error> {
        self.note("pause", note).await
    }

    /// Resumes the schedule from the current time.
    ///
    /// # Errors
    /// [`Error::Request`] if the schedule does not exist, or if the server cannot be reached.
    pub async fn resume(&self, note: Option<&str>) -> Result<(), Error> {
        self.note("resume", note).await
    }

    /// Starts the workflow now. The outcome depends on the overlap policy: `overlap`, or the policy of the schedule.
    ///
    /// # Errors
    /// [`Error::Request`] if the schedule does not exist, the workflow cannot be started, or the server cannot be reached.
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

    /// Starts a workflow for every time of the schedule from `start` until before `end`, oldest first.
    ///
    /// # Errors
    /// [`Error::Request`] if the schedule does not exist, the range is empty or too long, or the server cannot be reached.
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

    /// Returns at most 500 events of the schedule after an event number. Use 0 for the first events.
    ///
    /// # Errors
    /// [`Error::Request`] if the schedule does not exist, or if the server cannot be reached.
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

/// A list of schedules, with filters.
#[derive(Clone, Debug)]
#[must_use = "a list is not fetched until it is read"]
pub struct ListSchedules {
    client: Client,
    status: Option<String>,
    workflow_type: Option<String>,
    query: Option<String>,
}

impl ListSchedules {
    /// Filters by status: `active` or `paused`.
    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Filters by the type of the started workflow.
    pub fn workflow_type(mut self, workflow_type: impl Into<String>) -> Self {
        self.workflow_type = Some(workflow_type.into());
        self
    }

    /// Filters by a query: `Field = literal`, joined by `AND`.
    pub fn query(mut self, query: impl Into<String>) -> Self {
        self.query = Some(query.into());
        self
    }

    /// Fetches one page: the first one, or the one of a page token.
    ///
    /// # Errors
    /// [`Error::Request`] if a filter is not valid, or if the server cannot be reached.
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

    /// Returns all schedules. Pages are fetched as needed.
    pub fn stream(self) -> impl Stream<Item = Result<ScheduleDescription, Error>> + Send {
        page::items(move |token| {
            let list = self.clone();
            Box::pin(async move { list.page(token.as_deref()).await })
        })
    }
}
