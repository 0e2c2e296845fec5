//! The models of the Conductor API: definitions, tasks, workflows and the small requests and answers around them.
//!
//! All models are read from a [`serde_json::Value`] by [`parse`] or [`read`], which report every wrong member with its path, and
//! written with serde. The rules are the same everywhere:
//! - a null member is absent, and an absent member has its default;
//! - an integer may arrive as `3.0` or as text, other scalars may arrive as the text that they would be written as;
//! - an unknown member of a stored definition is kept and written back, elsewhere it is ignored;
//! - members that are absent are not written, but nulls inside free maps are kept.
//!
//! [`member`] has the reading, `model` the macros that make a model from a table of its members.

#[macro_use]
mod model;

mod answers;
pub mod member;
mod requests;
mod schema;
mod status;
mod summary;
mod task;
mod task_def;
mod workflow;
mod workflow_def;
mod workflow_task;

pub use answers::{
    BulkResponse, PollData, SearchResult, Tag, TagType, TaskRun, WorkflowDefSummary, WorkflowRun,
    WorkflowStatusView,
};
pub use member::{Object, ParseError, WrongMember, parse, read};
pub use requests::{
    CorrelatedRequest, RerunWorkflowRequest, SkipTaskRequest, StartWorkflowRequest, TaskMock,
    WorkflowStateUpdate, WorkflowTestRequest,
};
pub use schema::{SchemaDef, SchemaType};
pub use status::{
    IdempotencyStrategy, JoinMode, RateLimitPolicy, ResultStatus, RetryLogic, ReturnStrategy,
    TaskStatus, TimeoutPolicy, UnknownWord, WorkflowStatus, WorkflowTimeoutPolicy,
};
pub use summary::{TaskSummary, WorkflowSummary, summary_time};
pub use task::{Task, TaskExecLog, TaskResult};
pub use task_def::{RESPONSE_TIMEOUT_DEFAULT, TaskDef};
pub use workflow::Workflow;
pub use workflow_def::{RateLimitConfig, SCHEMA_VERSION, WorkflowDef};
pub use workflow_task::{CacheConfig, NodeList, NumberOrText, SubWorkflowParams, WorkflowTask};

#[cfg(test)]
mod tests;
