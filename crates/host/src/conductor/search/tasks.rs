//! Searches for tasks of definition runs, and for the runs of such tasks.

use std::collections::HashMap;

use longhaul_engine::conductor::limits::{SEARCH_SIZE_MAX, SEARCH_START_MAX};
use longhaul_engine::visibility::execution::{
    Order, TaskField, free_text, parse_task_search, parse_task_sort,
};
use longhaul_engine::visibility::{Condition, Field, Matcher, QueryError, Term, Test};
use longhaul_protocol::conductor::{
    Object, Task, TaskStatus, TaskSummary, Workflow, WorkflowSummary, summary_time,
};
use longhaul_protocol::id::{Namespace, RunId};
use longhaul_store::{ExecutionSearch, TaskPage, TaskResults, TaskSearch};
use serde_json::Value;

use super::{ANSWER_BYTES_MAX, SHOWN_BYTES_MAX, Searched, one_of};
use crate::conductor::refusal::ConductorRefusal;
use crate::error::Result;
use crate::views::{ExecutionTasks, Executions};

/// A search for tasks.
#[derive(Clone, Debug, Default)]
pub struct SearchTasks {
    /// How many results come before the page.
    pub start: i64,
    /// How many results the page has.
    pub size: i64,
    pub sort: Option<String>,
    pub free_text: Option<String>,
    pub query: Option<String>,
}

impl SearchTasks {
    fn read(
        &self,
        namespace: &Namespace,
        results: TaskResults,
    ) -> std::result::Result<TaskSearch, ConductorRefusal> {
        let refuse = |message: String| ConductorRefusal::BadSearch(message);
        let within = |number: i64, most: usize, name: &str| {
            let number = usize::try_from(number)
                .ok()
                .filter(|number| *number <= most);
            number.ok_or_else(|| refuse(format!("{name} must be from 0 to {most}")))
        };
        let mut parts = Vec::new();
        let query = self.query.as_deref().unwrap_or_default();
        if !query.trim().is_empty() {
            let refused =
                |error: QueryError| refuse(format!("Incorrectly formatted query string: {error}"));
            parts.push(parse_task_search(query).map_err(refused)?);
        }
        let searched = free_text(self.free_text.as_deref().unwrap_or_default());
        parts.extend(searched.map_err(|error| refuse(format!("freeText: {error}")))?);
        let order = match &self.sort {
            Some(sort) => {
                parse_task_sort(sort).map_err(|error| refuse(format!("sort: {error}")))?
            }
            None => Order::default(),
        };
        Ok(TaskSearch {
            namespace: namespace.clone(),
            // One part as it is, so that its alternatives are seen.
            condition: if parts.len() > 1 {
                Some(Condition::All(parts))
            } else {
                parts.pop()
            },
            order,
            offset: within(self.start, SEARCH_START_MAX, "start")?,
            limit: within(self.size, SEARCH_SIZE_MAX, "size")?,
            results,
        })
    }
}

impl ExecutionTasks<'_> {
    /// Returns one page of tasks.
    pub async fn search(
        self,
        namespace: &Namespace,
        search: &SearchTasks,
    ) -> Result<Searched<Task>> {
        let search = search.read(namespace, TaskResults::Tasks)?;
        let page = self.host.inner.store.search_tasks(&search).await?;
        self.page(page, ANSWER_BYTES_MAX).await
    }

    /// Returns one page of summaries of tasks.
    pub async fn search_summaries(
        self,
        namespace: &Namespace,
        search: &SearchTasks,
    ) -> Result<Searched<TaskSummary>> {
        let found = self.search(namespace, search).await?;
        let mut room = SHOWN_BYTES_MAX;
        let mut text = |object: Object| {
            let text = Value::Object(object).to_string();
            match room.checked_sub(text.len() as u64) {
                Some(left) => {
                    room = left;
                    text
                }
                None => String::new(),
            }
        };
        let results = found.results.into_iter();
        Ok(Searched {
            total: found.total,
            results: results.map(|task| summary(task, &mut text)).collect(),
        })
    }

    /// Returns the tasks of a type that have not ended, oldest first.
    pub async fn pending(
        self,
        namespace: &Namespace,
        task_type: &str,
        start: i64,
        count: i64,
    ) -> Result<Vec<Task>> {
        let page = SearchTasks {
            start,
            size: count,
            sort: Some("scheduledTime:ASC".to_owned()),
            ..SearchTasks::default()
        };
        let mut search = page.read(namespace, TaskResults::Tasks)?;
        let open = [TaskStatus::Scheduled, TaskStatus::InProgress];
        search.condition = Some(of_type(task_type, &open));
        let page = self.host.inner.store.search_tasks(&search).await?;
        Ok(self.page(page, ANSWER_BYTES_MAX).await?.results)
    }

    /// Returns how many tasks of a type wait in their queues. None is ever missing there, so nothing must be put back.
    pub async fn waiting(self, namespace: &Namespace, task_type: &str) -> Result<u64> {
        let search = TaskSearch {
            namespace: namespace.clone(),
            condition: Some(of_type(task_type, &[TaskStatus::Scheduled])),
            order: Order::default(),
            offset: 0,
            limit: 0,
            results: TaskResults::Tasks,
        };
        Ok(self.host.inner.store.search_tasks(&search).await?.total)
    }

    /// Returns the records of found tasks. Refuses an answer that would be too large.
    async fn page(self, page: TaskPage, most: u64) -> Result<Searched<Task>> {
        let mut numbers: HashMap<RunId, Vec<u64>> = HashMap::new();
        for (run_id, number) in &page.found {
            numbers.entry(run_id.clone()).or_default().push(*number);
        }
        // The number that a record shows is not that of the task: it counts from the last restart.
        let mut tasks: HashMap<(RunId, u64), Task> = HashMap::new();
        let mut room = most;
        for (run_id, numbers) in &numbers {
            for (number, task) in self.shown_by_number(run_id, numbers).await? {
                let bytes =
                    |object: &Object| Value::Object(object.clone()).to_string().len() as u64;
                let size = bytes(&task.input_data) + bytes(&task.output_data);
                room = room.checked_sub(size).ok_or_else(|| {
                    ConductorRefusal::BadSearch(format!(
                        "The answer would have more than {} MiB. Ask for fewer tasks.",
                        most >> 20
                    ))
                })?;
                tasks.insert((run_id.clone(), number), task);
            }
        }
        let results = page
            .found
            .iter()
            .filter_map(|(run_id, number)| tasks.remove(&(run_id.clone(), *number)));
        Ok(Searched {
            total: page.total,
            results: results.collect(),
        })
    }
}

impl Executions<'_> {
    /// Returns one page of summaries of the runs that have tasks like this.
    pub async fn search_by_tasks(
        self,
        namespace: &Namespace,
        search: &SearchTasks,
    ) -> Result<Searched<WorkflowSummary>> {
        let page = self.runs_by_tasks(namespace, search).await?;
        let ids: Vec<String> = page.found.iter().map(|(id, _)| id.to_string()).collect();
        let found = ExecutionSearch {
            namespace: namespace.clone(),
            condition: Some(one_of(Field::RunId, &ids)),
            order: Order::default(),
            offset: 0,
            limit: ids.len(),
        };
        let runs = self.host.inner.store.search_executions(&found).await?.runs;
        let mut room = SHOWN_BYTES_MAX;
        let mut summaries = HashMap::new();
        for run in runs {
            let input = self.text(&run.run_id, &run.input, &mut room).await?;
            let output = self.text(&run.run_id, &run.output, &mut room).await?;
            let mut texts = [input, output].into_iter();
            let summary = run.render(|_| texts.next().unwrap_or_default());
            summaries.insert(run.run_id.to_string(), summary);
        }
        Ok(Searched {
            total: page.total,
            results: ids.iter().filter_map(|id| summaries.remove(id)).collect(),
        })
    }

    /// Returns one page of the runs that have tasks like this, without their tasks.
    pub async fn search_workflows_by_tasks(
        self,
        namespace: &Namespace,
        search: &SearchTasks,
    ) -> Result<Searched<Workflow>> {
        let page = self.runs_by_tasks(namespace, search).await?;
        let ids: Vec<RunId> = page.found.into_iter().map(|(id, _)| id).collect();
        Ok(Searched {
            total: page.total,
            results: self.workflows(&ids, false).await?,
        })
    }

    async fn runs_by_tasks(self, namespace: &Namespace, search: &SearchTasks) -> Result<TaskPage> {
        let search = search.read(namespace, TaskResults::Runs)?;
        Ok(self.host.inner.store.search_tasks(&search).await?)
    }
}

/// Returns the condition that a task is of a type and has one of these statuses.
fn of_type(task_type: &str, statuses: &[TaskStatus]) -> Condition {
    let words = statuses.iter().map(|status| status.as_str().to_owned());
    Condition::All(vec![
        one_of(Field::Task(TaskField::TaskType), &[task_type.to_owned()]),
        Condition::Test(Test {
            field: Field::Task(TaskField::Status),
            matcher: Matcher::OneOf(words.map(Term::Text).collect()),
        }),
    ])
}

fn summary(task: Task, text: &mut impl FnMut(Object) -> String) -> TaskSummary {
    let time = |millis: i64| (millis > 0).then(|| summary_time(millis));
    let execution_time = if task.end_time > 0 && task.start_time > 0 {
        task.end_time - task.start_time
    } else {
        0
    };
    TaskSummary {
        workflow_id: task.workflow_instance_id,
        workflow_type: task.workflow_type,
        correlation_id: task.correlation_id,
        scheduled_time: time(task.scheduled_time),
        start_time: time(task.start_time),
        update_time: time(task.update_time),
        end_time: time(task.end_time),
        status: task.status,
        reason_for_incompletion: task.reason_for_incompletion,
        execution_time,
        queue_wait_time: task.queue_wait_time,
        task_def_name: task.task_def_name,
        task_type: task.task_type,
        input: text(task.input_data),
        output: text(task.output_data),
        task_id: task.task_id,
        workflow_priority: task.workflow_priority,
        domain: task.domain,
        ..TaskSummary::default()
    }
}
