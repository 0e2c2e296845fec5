//! Lists of workflows.

use futures::stream::Stream;
use longhaul_protocol::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Client, Error, Page, Status, page};
use crate::transport::Plane;

/// A list of runs, with filters.
#[derive(Clone, Debug)]
#[must_use = "a list is not fetched until it is read"]
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
    /// The workflow id.
    pub workflow_id: String,
    /// The run id.
    pub run_id: String,
    /// The workflow type.
    pub workflow_type: String,
    /// The status of the run.
    pub status: Status,
    /// The business key.
    pub business_key: Option<String>,
    /// The task queue.
    pub task_queue: Option<String>,
    /// The build to which the run is pinned.
    pub compatibility: Option<String>,
    /// The start time.
    pub started_at: Option<Timestamp>,
    /// The close time.
    pub closed_at: Option<Timestamp>,
    /// The search attributes.
    #[serde(default)]
    pub search_attributes: Map<String, Value>,
}

impl Client {
    /// Returns a list of runs of all workflows, newest first. Sends no request.
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
    /// Filters by a query: comparisons of `WorkflowType`, `Status`, `StartTime` and your own search attributes with `AND`, `OR`
    /// and `NOT`, or plain text, which is searched in ids and business keys.
    pub fn query(mut self, query: impl Into<String>) -> Self {
        self.query = Some(query.into());
        self
    }

    /// Filters by workflow type.
    pub fn workflow_type(mut self, workflow_type: impl Into<String>) -> Self {
        self.workflow_type = Some(workflow_type.into());
        self
    }

    /// Filters by status: `running`, `completed`, `failed`, `cancelled` or `terminated`.
    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Sets the page size, from 1 to 200. The default is 50.
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.page_size = Some(page_size.to_string());
        self
    }

    /// Fetches one page: the first one, or the one of a page token.
    ///
    /// # Errors
    /// [`Error::Request`] if a filter is not valid, or if the server cannot be reached.
    pub async fn page(&self, token: Option<&str>) -> Result<Page<WorkflowSummary>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            workflows: Vec<WorkflowSummary>,
            next_page_token: Option<String>,
        }
        let reply: Reply = self
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
            items: reply.workflows,
            next_page_token: reply.next_page_token,
        })
    }

    /// Returns all runs. Pages are fetched as needed.
    pub fn stream(self) -> impl Stream<Item = Result<WorkflowSummary, Error>> + Send {
        page::items(move |token| {
            let list = self.clone();
            Box::pin(async move { list.page(token.as_deref()).await })
        })
    }
}
