//! Logs of tasks of definition runs.

use longhaul_engine::command::AddTaskLog;
use longhaul_engine::conductor::execution::command::log::NewLog;
use longhaul_protocol::conductor::TaskExecLog;
use longhaul_protocol::id::Namespace;

use crate::conductor::refusal::ConductorRefusal;
use crate::error::Result;
use crate::views::ExecutionTasks;

impl ExecutionTasks<'_> {
    /// Adds a line to the log of a task, open or ended.
    pub async fn add_log(self, namespace: &Namespace, task_id: &str, text: String) -> Result<()> {
        let row = self.row(namespace, task_id).await?;
        let command = AddTaskLog {
            task_id: row.task_id,
            seq: row.sequence.get(),
            log: NewLog {
                text,
                created_at: None,
            },
        };
        let executor = &self.host.inner.executor;
        let added = executor.execute(&row.run_id, &command).await?;
        added.ok_or_else(|| ConductorRefusal::NoSuchTask(task_id.to_owned()).into())
    }

    /// Returns the log of a task in the order of time.
    pub async fn log(self, namespace: &Namespace, task_id: &str) -> Result<Vec<TaskExecLog>> {
        let row = self.row(namespace, task_id).await?;
        let store = &self.host.inner.store;
        let lines = store.task_log(&row.run_id, row.sequence.get()).await?;
        let mut log: Vec<TaskExecLog> = lines
            .into_iter()
            .map(|line| TaskExecLog {
                log: line.text,
                task_id: Some(task_id.to_owned()),
                created_time: i64::try_from(line.created_at.as_millis()).unwrap_or(i64::MAX),
            })
            .collect();
        log.sort_by_key(|line| line.created_time);
        Ok(log)
    }
}
