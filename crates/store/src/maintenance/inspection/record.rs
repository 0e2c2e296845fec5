//! The rules of sessions, documents and idempotency keys.

use std::collections::BTreeMap;

use longhaul_engine::change::DocumentKind;
use longhaul_engine::inspection::{Problem, ProblemKind};
use longhaul_engine::rollout::Rollout;
use longhaul_engine::run::state::Core;
use longhaul_engine::session::Session;
use longhaul_protocol::Timestamp;

use super::rows::{DocumentRows, KeyRows, SessionRows, compare, parse};
use crate::document::key_of;
use crate::{
    DefinitionStampRow, EventExecutionRow, EventHandlerRow, NamespaceRow, Record,
    ReusableOutputRow, SchemaRow, SearchAttributeRow, ServerRow, SnapshotRow, TagsRow, TaskDefRow,
    WorkerRow, WorkflowDefRow,
};

/// Returns what is wrong with a session.
pub(super) fn check_session(rows: &SessionRows) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(session) = parse::<Session>("the session", Some(&rows.body), &mut problems) else {
        return problems;
    };
    let micros = |at: Option<Timestamp>| at.map(|at| at.as_micros().to_string());
    let expected = BTreeMap::from([
        ("namespace", Some(session.namespace.to_string())),
        ("session_id", Some(session.session_id.to_string())),
        ("version", Some(session.version.to_string())),
        ("status", Some(session.status.as_str().to_owned())),
        ("queue", Some(session.queue.to_string())),
        ("lease_owner", Some(session.lease_owner.to_string())),
        ("deadline", micros(session.deadline())),
        ("ended_at", micros(session.ended_at())),
        ("updated_at", micros(Some(session.updated_at))),
    ]);
    compare(
        &rows.columns,
        &expected,
        ProblemKind::SessionColumnDiffers,
        &mut problems,
    );
    if session.version < 1 {
        problems.push(Problem::new(ProblemKind::VersionWrong, "the version is 0"));
    }
    problems
}

/// Returns what is wrong with a document.
pub(super) fn check_document(rows: &DocumentRows) -> Vec<Problem> {
    let mut problems = Vec::new();
    if rows.version < 1 {
        let detail = format!("the version is {}", rows.version);
        problems.push(Problem::new(ProblemKind::VersionWrong, detail));
    }
    let kind = DocumentKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == rows.key[0]);
    match kind {
        Some(DocumentKind::Namespace) => check_record::<NamespaceRow>(rows, &mut problems),
        Some(DocumentKind::SearchAttribute) => {
            check_record::<SearchAttributeRow>(rows, &mut problems)
        }
        Some(DocumentKind::Worker) => check_record::<WorkerRow>(rows, &mut problems),
        Some(DocumentKind::Rollout) => check_record::<Rollout>(rows, &mut problems),
        Some(DocumentKind::TaskDef) => check_record::<TaskDefRow>(rows, &mut problems),
        Some(DocumentKind::WorkflowDef) => check_record::<WorkflowDefRow>(rows, &mut problems),
        Some(DocumentKind::Snapshot) => check_record::<SnapshotRow>(rows, &mut problems),
        Some(DocumentKind::EventHandler) => {
            check_record::<EventHandlerRow>(rows, &mut problems);
        }
        Some(DocumentKind::EventExecution) => {
            check_record::<EventExecutionRow>(rows, &mut problems);
        }
        Some(DocumentKind::ReusableOutput) => {
            check_record::<ReusableOutputRow>(rows, &mut problems);
        }
        Some(DocumentKind::Tags) => check_record::<TagsRow>(rows, &mut problems),
        Some(DocumentKind::Schema) => check_record::<SchemaRow>(rows, &mut problems),
        Some(DocumentKind::DefinitionStamp) => {
            check_record::<DefinitionStampRow>(rows, &mut problems);
        }
        Some(DocumentKind::Server) => check_record::<ServerRow>(rows, &mut problems),
        // Servers alone know their forms, and nothing is lost with them.
        Some(DocumentKind::Question | DocumentKind::Rate | DocumentKind::Turn) => {}
        None => {
            let detail = format!("no document is of kind {}", rows.key[0]);
            problems.push(Problem::new(ProblemKind::DocumentKeyDiffers, detail));
        }
    }
    problems
}

fn check_record<R: Record>(rows: &DocumentRows, problems: &mut Vec<Problem>) {
    let Some(record) = parse::<R>("the document", Some(&rows.body), problems) else {
        return;
    };
    let key = key_of(&record);
    if [&key.namespace, &key.name, &key.qualifier] != [&rows.key[1], &rows.key[2], &rows.key[3]] {
        let detail = format!(
            "the body has the key {}/{}/{}",
            key.namespace, key.name, key.qualifier
        );
        problems.push(Problem::new(ProblemKind::DocumentKeyDiffers, detail));
    }
}

/// Returns what is wrong with an idempotency key.
pub(super) fn check_key(rows: &KeyRows) -> Option<Problem> {
    let differs = |detail: &str| Some(Problem::new(ProblemKind::KeyDiffers, detail));
    let Some((namespace, workflow_type, state)) = &rows.run else {
        return differs("the run of the key is not stored");
    };
    if [namespace, workflow_type] != [&rows.key[0], &rows.key[1]] {
        return differs("the run of the key has another namespace or workflow type");
    }
    // A state that cannot be read is a problem of the run.
    let core: Core = parse("the state", Some(state), &mut Vec::new())?;
    let key = core.execution.as_ref()?.idempotency_key.as_ref();
    if key != Some(&rows.key[2]) {
        return differs("the run of the key was started with another one");
    }
    None
}
