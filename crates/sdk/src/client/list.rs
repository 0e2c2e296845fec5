//! Finding workflows (control-plane.md §8.2 and §9).

use futures::stream::Stream;
use longhaul_protocol::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Client, Error, Page, Status, page};
use crate::transport::Plane;

/// A list of runs in the making.
#[derive(Clone, Debug)]
#[must_use = "a list is not fetched until it is asked for"]
pub struct ListWorkflows {
    client: Client,
    query: Option<String>,
    workflow_type: Option<String>,
    status: Option<String>,
    page_size: Option<String>,
}

/// One run in a list.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkflowSummary {
    /// The workflow's id.
    pub workflow_id: String,
    /// The run's id.
    pub run_id: String,
    /// The workflow's type.
    pub workflow_type: String,
    /// Where the run stands.
    pub status: Status,
    /// The business key it was started with.
    pub business_key: Option<String>,
    /// Its queue.
    pub task_queue: Option<String>,
    /// The build it is pinned to.
    pub compatibility: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// What it can be found by.
    #[serde(default)]
    pub search_attributes: Map<String, Value>,
}

impl Client {
    /// Runs of all workflows, newest first.
    ///
    /// ```no_run
    /// use futures::TryStreamExt as _;
    /// # async fn example(client: longhaul_sdk::Client) -> Result<(), longhaul_sdk::client::Error> {
    /// let open = client.list().query("Status = 'running' AND TaskQueue = 'orders'");
    /// let mut runs = std::pin::pin!(open.stream());
    /// while let Some(run) = runs.try_next().await? {
    ///     println!("{} since {:?}", run.workflow_id, run.started_at);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> ListWorkflows {
        ListWorkflows {
            client: self.clone(),
            query: None,
            workflow_type: None,
            status: None,
            page_size: None,
        }
    }
}

impl ListWorkflows {
    /// Only those that a query selects: comparisons of `WorkflowType`, `Status`, `StartTime` and your own search
    /// attributes with `AND`, `OR` and `NOT`; or plain text, to be found in ids and business keys.
    pub fn query(mut self, query: impl Into<String>) -> Self {
        self.query = Some(query.into());
        self
    }

    /// Only workflows of a type.
    pub fn workflow_type(mut self, workflow_type: impl Into<String>) -> Self {
        self.workflow_type = Some(workflow_type.into());
        self
    }

    /// Only `running`, `completed`, `failed`, `cancelled` or `terminated` ones.
    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// How many come at a time, 1 to 200; 50 unless said.
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.page_size = Some(page_size.to_string());
        self
    }

    /// One page: the first, or the one after the page that gave the token.
    ///
    /// # Errors
    /// The query is not understood, or the server cannot be asked.
    pub async fn page(&self, token: Option<&str>) -> Result<Page<WorkflowSummary>, Error> {
        #[derive(Deserialize)]
        struct Answer {
            workflows: Vec<WorkflowSummary>,
            next_page_token: Option<String>,
        }
        let answer: Answer = self
            .client
            .connection()
            .get(Plane::Control, &["workflows"])
            .query("query", self.query.as_deref())
            .query("workflow_type", self.workflow_type.as_deref())
            .query("status", self.status.as_deref())
            .query("page_size", self.page_size.as_deref())
            .query("next_page_token", token)
            .send()
            .await?;
        Ok(Page {
            items: answer.workflows,
            next_page_token: answer.next_page_token,
        })
    }

    /// All of them; pages are fetched as they are reached.
    pub fn stream(self) -> impl Stream<Item = Result<WorkflowSummary, Error>> + Send {
        page::items(move |token| {
            let list = self.clone();
            Box::pin(async move { list.page(token.as_deref()).await })
        })
    }
}
