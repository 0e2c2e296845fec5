//! Workflow definitions.

use std::sync::Arc;

use serde_json::Value;

use super::{
    CacheConfig, NodeList, Object, RateLimitPolicy, SchemaDef, WorkflowTask, WorkflowTimeoutPolicy,
};

/// The only version of the language.
pub const SCHEMA_VERSION: i32 = 2;

model! {
    /// A registered or inline definition of a workflow.
    pub struct WorkflowDef [other] {
        "ownerApp" owner_app: Option<String>;
        "createTime" create_time: i64;
        "updateTime" update_time: i64;
        "createdBy" created_by: Option<String>;
        "updatedBy" updated_by: Option<String>;
        "name" name: String;
        "description" description: Option<String>;
        "version" version: i32 = 1;
        "tasks" tasks: NodeList;
        /// Documentation only.
        "inputParameters" input_parameters: Vec<String>;
        /// The template of the output. Empty is the output of the last task.
        "outputParameters" output_parameters: Object;
        /// The workflow to start when this one fails. Empty is none.
        "failureWorkflow" failure_workflow: Option<String>;
        "failureWorkflowVersion" failure_workflow_version: Option<i32>;
        "schemaVersion" schema_version: i32 = SCHEMA_VERSION;
        /// Whether a completed run can be restarted.
        "restartable" restartable: bool = true;
        "workflowStatusListenerEnabled" workflow_status_listener_enabled: bool;
        "workflowStatusListenerSink" workflow_status_listener_sink: Option<String>;
        "ownerEmail" owner_email: Option<String>;
        "timeoutPolicy" timeout_policy: WorkflowTimeoutPolicy = WorkflowTimeoutPolicy::AlertOnly;
        /// 0 is no limit.
        "timeoutSeconds" timeout_seconds: i64;
        /// First values of the variables.
        "variables" variables: Object;
        /// Values for input members that a start does not set.
        "inputTemplate" input_template: Object;
        "inputSchema" input_schema: Option<SchemaDef>;
        "outputSchema" output_schema: Option<SchemaDef>;
        "enforceSchema" enforce_schema: bool = true;
        "metadata" metadata: Object;
        "rateLimitConfig" rate_limit_config: Option<RateLimitConfig>;
        "cacheConfig" cache_config: Option<CacheConfig>;
        "maskedFields" masked_fields: Vec<Value>;
    }
}

model! {
    /// How many runs of a workflow may be open at a time. Stored, not enforced.
    pub struct RateLimitConfig [other] {
        "rateLimitKey" rate_limit_key: Option<String>;
        "concurrentExecLimit" concurrent_exec_limit: Option<i32>;
        "policy" policy: Option<RateLimitPolicy>;
    }
}

impl WorkflowDef {
    /// Calls `visit` for every node of the tree with its path, containers before the nodes inside them.
    pub fn visit_nodes<'a>(&'a self, visit: &mut dyn FnMut(&str, &'a Arc<WorkflowTask>)) {
        visit_list("tasks", &self.tasks, visit);
    }

    /// Returns the name of the failure workflow, if there is one.
    pub fn failure_workflow(&self) -> Option<&str> {
        self.failure_workflow
            .as_deref()
            .filter(|name| !name.trim().is_empty())
    }
}

/// The recursion is as deep as the nesting of the lists, which the reader of JSON bounds.
fn visit_list<'a>(
    path: &str,
    list: &'a NodeList,
    visit: &mut dyn FnMut(&str, &'a Arc<WorkflowTask>),
) {
    for (index, node) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        visit(&path, node);
        for (name, list) in node.lists() {
            visit_list(&format!("{path}.{name}"), list, visit);
        }
    }
}
