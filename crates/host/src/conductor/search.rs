//! Lists of definition runs: search, open runs of a definition, runs by correlation id.

pub(crate) mod tasks;

use std::collections::BTreeMap;

use longhaul_engine::conductor::execution::state::Stored;
use longhaul_engine::conductor::limits::{BULK_IDS_MAX, SEARCH_SIZE_MAX, SEARCH_START_MAX};
use longhaul_engine::run::state::{Part, Program, Run};
use longhaul_engine::visibility::execution::{
    ExecutionField, Order, free_text, parse_search, parse_sort,
};
use longhaul_engine::visibility::{Comparison, Condition, Field, Matcher, QueryError, Term, Test};
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{Workflow, WorkflowStatus, WorkflowSummary};
use longhaul_protocol::id::{Namespace, RunId};
use longhaul_store::{ExecutionPage, ExecutionSearch, RunFilter};

use super::refusal::ConductorRefusal;
use crate::error::Result;
use crate::views::Executions;

/// Bytes of the large inputs and outputs that the summaries of one answer show. Values beyond that are left empty; their sizes are
/// shown.
const SHOWN_BYTES_MAX: u64 = 16 << 20;

/// Bytes of values in an answer with whole workflows: more than a run of the largest size has.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Workflows in one answer that is not a page.
const WORKFLOWS_MAX: usize = 1000;

/// Ids of open runs in one answer: some megabytes of text.
const RUNNING_MAX: usize = 100_000;

/// A search for definition runs.
#[derive(Clone, Debug, Default)]
pub struct SearchExecutions {
    /// How many results come before the page.
    pub start: i64,
    /// How many results the page has.
    pub size: i64,
    pub sort: Option<String>,
    pub free_text: Option<String>,
    pub query: Option<String>,
    /// Only runs with one of these classifiers; empty for all.
    pub classifiers: Vec<String>,
    /// Only runs without a parent.
    pub top_level_only: bool,
}

/// One page of a search.
#[derive(Clone, Debug)]
pub struct Searched<T> {
    /// How many results all pages have.
    pub total: u64,
    pub results: Vec<T>,
}

/// Which runs with a correlation id are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Correlated<'a> {
    pub names: &'a [String],
    pub ids: &'a [String],
    pub include_closed: bool,
    pub include_tasks: bool,
}

/// Which runs of a definition are wanted.
#[derive(Clone, Copy, Debug)]
pub enum Instances {
    /// Those that have not ended.
    Open,
    /// Those that began in a time, in milliseconds.
    BegunBetween(i64, i64),
}

impl SearchExecutions {
    /// Reads the search.
    fn read(
        &self,
        namespace: &Namespace,
    ) -> std::result::Result<ExecutionSearch, ConductorRefusal> {
        let refuse = |message: String| ConductorRefusal::BadSearch(message);
        let offset = usize::try_from(self.start)
            .ok()
            .filter(|start| *start <= SEARCH_START_MAX)
            .ok_or_else(|| {
                refuse(format!(
                    "start must be from 0 to {SEARCH_START_MAX}; a query on startTime finds runs beyond that"
                ))
            })?;
        let limit = usize::try_from(self.size)
            .ok()
            .filter(|size| *size <= SEARCH_SIZE_MAX)
            .ok_or_else(|| refuse(format!("size must be from 0 to {SEARCH_SIZE_MAX}")))?;
        let query_refused =
            |error: QueryError| refuse(format!("Incorrectly formatted query string: {error}"));
        let mut parts = Vec::new();
        if let Some(query) = self
            .query
            .as_deref()
            .filter(|query| !query.trim().is_empty())
        {
            parts.push(parse_search(query).map_err(query_refused)?);
        }
        let searched = free_text(self.free_text.as_deref().unwrap_or(""));
        parts.extend(searched.map_err(|error| refuse(format!("freeText: {error}")))?);
        if !self.classifiers.is_empty() {
            if self.classifiers.len() > BULK_IDS_MAX {
                return Err(refuse(format!(
                    "classifier may name at most {BULK_IDS_MAX}"
                )));
            }
            parts.push(one_of(
                Field::Execution(ExecutionField::Classifier),
                &self.classifiers,
            ));
        }
        if self.top_level_only {
            parts.push(one_of(
                Field::Execution(ExecutionField::ParentId),
                &[String::new()],
            ));
        }
        let order = match &self.sort {
            Some(sort) => parse_sort(sort).map_err(|error| refuse(format!("sort: {error}")))?,
            None => Order::default(),
        };
        Ok(ExecutionSearch {
            namespace: namespace.clone(),
            condition: (!parts.is_empty()).then_some(Condition::All(parts)),
            order,
            offset,
            limit,
        })
    }
}

impl Executions<'_> {
    async fn page(self, namespace: &Namespace, search: &SearchExecutions) -> Result<ExecutionPage> {
        let search = search.read(namespace)?;
        Ok(self.host.inner.store.search_executions(&search).await?)
    }

    /// Returns one page of summaries.
    pub async fn search(
        self,
        namespace: &Namespace,
        search: &SearchExecutions,
    ) -> Result<Searched<WorkflowSummary>> {
        let page = self.page(namespace, search).await?;
        let mut room = SHOWN_BYTES_MAX;
        let mut results = Vec::with_capacity(page.runs.len());
        for run in page.runs {
            let input = self.text(&run.run_id, &run.input, &mut room).await?;
            let output = self.text(&run.run_id, &run.output, &mut room).await?;
            let mut texts = [input, output].into_iter();
            results.push(run.render(|_| texts.next().unwrap_or_default()));
        }
        Ok(Searched {
            total: page.total,
            results,
        })
    }

    /// Returns a value as JSON text. A large value that has no room is empty.
    async fn text(self, run_id: &RunId, stored: &Stored, room: &mut u64) -> Result<String> {
        match (stored.get(), stored) {
            (Ok(value), _) => Ok(value.to_string()),
            (Err(_), Stored::Event { bytes, .. }) if *bytes > *room => Ok(String::new()),
            (Err(reference), _) => {
                let finder = &self.host.inner.executor.finder;
                let text = finder.value(run_id, reference).await?.to_string();
                *room = room.saturating_sub(text.len() as u64);
                Ok(text)
            }
        }
    }

    /// Returns one page of runs without their tasks.
    pub async fn search_workflows(
        self,
        namespace: &Namespace,
        search: &SearchExecutions,
    ) -> Result<Searched<Workflow>> {
        let page = self.page(namespace, search).await?;
        let ids: Vec<RunId> = page.runs.into_iter().map(|run| run.run_id).collect();
        Ok(Searched {
            total: page.total,
            results: self.workflows(&ids, false).await?,
        })
    }

    /// Returns the records of these runs. Refuses an answer that would be too large.
    async fn workflows(self, ids: &[RunId], with_tasks: bool) -> Result<Vec<Workflow>> {
        let mut room = ANSWER_BYTES_MAX;
        let mut workflows = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(run) = self.host.inner.executor.read(id).await? else {
                continue;
            };
            room = room
                .checked_sub(value_bytes(&run, with_tasks))
                .ok_or_else(|| {
                    ConductorRefusal::BadSearch(format!(
                        "The answer would have more than {} MiB. Ask for fewer workflows, or without tasks.",
                        ANSWER_BYTES_MAX >> 20
                    ))
                })?;
            workflows.push(self.view(run, with_tasks).await?.workflow(with_tasks));
        }
        Ok(workflows)
    }

    /// Returns the ids of runs of one version of a definition, newest first.
    pub async fn instances(
        self,
        namespace: &Namespace,
        name: &str,
        version: i32,
        wanted: Instances,
    ) -> Result<Vec<RunId>> {
        let mut parts = vec![
            one_of(Field::WorkflowType, &[name.to_owned()]),
            Condition::Test(Test {
                field: Field::Execution(ExecutionField::Version),
                matcher: Matcher::OneOf(vec![Term::Integer(version.into())]),
            }),
        ];
        match wanted {
            Instances::Open => parts.push(Condition::ExecutionStatus(vec![
                WorkflowStatus::Running,
                WorkflowStatus::Paused,
            ])),
            Instances::BegunBetween(from, to) => {
                parts.push(begun(Comparison::GreaterOrEqual, from));
                parts.push(begun(Comparison::Less, to.saturating_add(1)));
            }
        }
        self.ids(namespace, Condition::All(parts), RUNNING_MAX)
            .await
    }

    /// Returns the ids of the runs that match, newest first. Refuses if there are too many.
    async fn ids(
        self,
        namespace: &Namespace,
        condition: Condition,
        most: usize,
    ) -> Result<Vec<RunId>> {
        let filter = RunFilter {
            namespace: namespace.clone(),
            program: Some(Program::Definition),
            workflow_type: None,
            status: None,
            condition: Some(condition),
            after: None,
            limit: most + 1,
        };
        let ids = self.host.inner.store.run_ids(&filter).await?;
        if ids.len() > most {
            let message = format!("More than {most} workflows match. Search for them in pages.");
            return Err(ConductorRefusal::BadSearch(message).into());
        }
        Ok(ids)
    }

    /// Returns the runs with each of the correlation ids, newest first.
    pub async fn correlated(
        self,
        namespace: &Namespace,
        wanted: Correlated<'_>,
    ) -> Result<BTreeMap<String, Vec<Workflow>>> {
        for (name, list) in [
            ("correlationIds", wanted.ids),
            ("workflowNames", wanted.names),
        ] {
            if list.len() > BULK_IDS_MAX {
                let message = format!("{name}: at most {BULK_IDS_MAX} can be named");
                return Err(ConductorRefusal::BadSearch(message).into());
            }
        }
        let mut parts = vec![
            one_of(Field::Execution(ExecutionField::CorrelationId), wanted.ids),
            one_of(Field::WorkflowType, wanted.names),
        ];
        if !wanted.include_closed {
            parts.push(Condition::ExecutionStatus(vec![WorkflowStatus::Running]));
        }
        let ids = self
            .ids(namespace, Condition::All(parts), WORKFLOWS_MAX)
            .await?;
        let mut found: BTreeMap<String, Vec<Workflow>> = wanted
            .ids
            .iter()
            .map(|id| (id.clone(), Vec::new()))
            .collect();
        for workflow in self.workflows(&ids, wanted.include_tasks).await? {
            let id = workflow.correlation_id.as_deref();
            if let Some(list) = id.and_then(|id| found.get_mut(id)) {
                list.push(workflow);
            }
        }
        Ok(found)
    }
}

/// Returns the condition that a text field has one of these values.
fn one_of(field: Field, values: &[String]) -> Condition {
    let terms = values.iter().cloned().map(Term::Text);
    Condition::Test(Test {
        field,
        matcher: Matcher::OneOf(terms.collect()),
    })
}

fn begun(comparison: Comparison, millis: i64) -> Condition {
    let at = Timestamp::from_micros(millis.saturating_mul(1000));
    Condition::Test(Test {
        field: Field::StartTime,
        matcher: Matcher::Compare(comparison, Term::Time(at)),
    })
}

/// Returns about how many bytes the values of a run's record have.
fn value_bytes(run: &Run, with_tasks: bool) -> u64 {
    let of_part = |part: &Part| match (part, part.as_task()) {
        (Part::Value(stored), _) => stored.bytes(),
        (_, Some(task)) if with_tasks => task.input.bytes() + task.output.bytes(),
        _ => 0,
    };
    run.parts.values().map(of_part).sum()
}
