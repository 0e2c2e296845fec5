//! Reads by key: the history of a run, its commands, a task, a document. Each is one statement, hence one snapshot; what a row was
//! written without is read from an event, which never changes.

pub(super) mod run;

use longhaul_engine::change::{CommandRow, Document, DocumentKey, DocumentKind, LogLine, TaskRow};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, TaskId, WorkflowId};
use longhaul_protocol::json::from_stored;
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::Connected;
use super::text::{escaped, unescaped};
use crate::encode::signed;
use crate::{CommandKey, CommandRows, Error, Instance, Page, StoredEvent, thin};

/// Runs a fixed statement, prepared once per connection.
pub(super) async fn query(
    client: &Connected,
    sql: &'static str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, parameters).await?)
}

/// As [`query`], for at most one row.
pub(super) async fn query_opt(
    client: &Connected,
    sql: &'static str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Option<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_opt(&statement, parameters).await?)
}

/// Returns the payload of an event.
async fn payload(
    client: &Connected,
    run_id: &RunId,
    sequence: HistorySeq,
) -> Result<String, Error> {
    let row = query_opt(
        client,
        "SELECT payload FROM events WHERE run_id = $1 AND sequence = $2",
        &[&escaped(run_id.as_str()), &signed(sequence)],
    )
    .await?;
    let row = row
        .ok_or_else(|| Error::Corrupt(format!("event {sequence} of run {run_id} is not stored")))?;
    Ok(row.try_get(0)?)
}

pub(super) async fn instance(
    client: &Connected,
    namespace: &Namespace,
    workflow_id: &WorkflowId,
) -> Result<Option<Instance>, Error> {
    let row = query_opt(
        client,
        "SELECT run_id, run_number FROM workflow_runs WHERE namespace = $1 AND workflow_id = $2
         ORDER BY run_number DESC LIMIT 1",
        &[&escaped(namespace.as_str()), &escaped(workflow_id.as_str())],
    )
    .await?;
    row.map(|row| {
        Ok(Instance {
            current_run_id: text(&row, 0)?.into(),
            run_count: row.try_get::<_, i64>(1)?.cast_unsigned(),
        })
    })
    .transpose()
}

pub(super) async fn run_by_key(
    client: &Connected,
    namespace: &Namespace,
    workflow_type: &str,
    key: &str,
) -> Result<Option<RunId>, Error> {
    let row = query_opt(
        client,
        "SELECT run_id FROM workflow_keys WHERE namespace = $1 AND workflow_type = $2 AND key = $3",
        &[
            &escaped(namespace.as_str()),
            &escaped(workflow_type),
            &escaped(key),
        ],
    )
    .await?;
    row.map(|row| Ok(text(&row, 0)?.into())).transpose()
}

pub(super) async fn history(
    client: &Connected,
    run_id: &RunId,
    after: HistorySeq,
    up_to: HistorySeq,
    page: Page,
) -> Result<Vec<StoredEvent>, Error> {
    // The server adds up the bytes, so that nothing is sent which does not fit on the page.
    let rows = query(
        client,
        "SELECT sequence, id, event_type, recorded_at, workflow_task_id, workflow_command_id, principal, payload
         FROM (SELECT *, sum(octet_length(payload)) OVER (ORDER BY sequence) AS bytes, row_number() OVER (ORDER BY sequence) AS place
               FROM (SELECT * FROM events WHERE run_id = $1 AND sequence > $2 AND sequence <= $3 ORDER BY sequence LIMIT $4) page)
         counted WHERE bytes <= $5 OR place = 1 ORDER BY sequence",
        &[
            &escaped(run_id.as_str()),
            &signed(after),
            &signed(up_to),
            &signed(page.events as u64),
            &signed(page.bytes as u64),
        ],
    )
    .await?;
    rows.iter().map(event).collect()
}

fn event(row: &Row) -> Result<StoredEvent, Error> {
    let optional = |column: usize| -> Result<Option<String>, Error> {
        let found: Option<String> = row.try_get(column)?;
        Ok(found.map(unescaped))
    };
    Ok(StoredEvent {
        sequence: row.try_get::<_, i64>(0)?.cast_unsigned().into(),
        id: text(row, 1)?.into(),
        event_type: text(row, 2)?,
        recorded_at: Timestamp::from_micros(row.try_get(3)?),
        workflow_task_id: optional(4)?.map(TaskId::from),
        workflow_command_id: optional(5)?,
        principal: optional(6)?,
        payload: row.try_get(7)?,
    })
}

pub(super) async fn commands(
    client: &Connected,
    run_id: &RunId,
    before: Option<RequestSeq>,
    limit: usize,
) -> Result<CommandRows, Error> {
    let row = query_opt(
        client,
        "SELECT (SELECT count(*) FROM commands WHERE run_id = $1),
                ARRAY(SELECT body FROM commands WHERE run_id = $1 AND sequence < $2 ORDER BY sequence DESC LIMIT $3)",
        &[
            &escaped(run_id.as_str()),
            &signed(before.unwrap_or(RequestSeq::MAX)),
            &signed(limit as u64),
        ],
    )
    .await?;
    let Some(row) = row else {
        return Ok(CommandRows::default());
    };
    let bodies: Vec<&str> = row.try_get(1)?;
    let mut commands = Vec::with_capacity(bodies.len());
    for body in bodies {
        let mut command: CommandRow = parse(body, "command of run", run_id.as_str())?;
        if let Some(update) = command.update.as_deref_mut() {
            update.result = None;
        }
        commands.push(command);
    }
    Ok(CommandRows {
        total: row.try_get::<_, i64>(0)?.cast_unsigned(),
        commands,
    })
}

pub(super) async fn command(
    client: &Connected,
    key: CommandKey<'_>,
) -> Result<Option<(RunId, CommandRow)>, Error> {
    let row = match key {
        CommandKey::Sequence(run_id, sequence) => {
            query_opt(
                client,
                "SELECT run_id, body FROM commands WHERE run_id = $1 AND sequence = $2",
                &[&escaped(run_id.as_str()), &signed(sequence)],
            )
            .await?
        }
        CommandKey::Request(namespace, workflow_id, request_id) => {
            query_opt(
                client,
                "SELECT run_id, body FROM requests JOIN commands USING (run_id, sequence)
                 WHERE namespace = $1 AND workflow_id = $2 AND request_id = $3",
                &[
                    &escaped(namespace.as_str()),
                    &escaped(workflow_id.as_str()),
                    &escaped(request_id),
                ],
            )
            .await?
        }
    };
    let Some(row) = row else {
        return Ok(None);
    };
    let run_id = RunId::from(text(&row, 0)?);
    let mut command: CommandRow = parse(row.try_get(1)?, "command of run", run_id.as_str())?;
    if let Some(sequence) = thin::missing_result(&command) {
        let payload = payload(client, &run_id, sequence).await?;
        thin::restore_result(&run_id, &mut command, &payload)?;
    }
    Ok(Some((run_id, command)))
}

/// Returns the task of each id, in their order.
pub(super) async fn tasks(
    client: &Connected,
    task_ids: &[TaskId],
) -> Result<Vec<Option<TaskRow>>, Error> {
    let ids = task_ids.iter();
    let ids: Vec<_> = ids.map(|task_id| escaped(task_id.as_str())).collect();
    let rows = query(
        client,
        "SELECT t.body FROM unnest($1::text[]) WITH ORDINALITY n (task_id, place)
         LEFT JOIN tasks t ON t.task_id = n.task_id ORDER BY n.place",
        &[&ids],
    )
    .await?;
    let task = |(row, task_id): (&Row, &TaskId)| {
        let body: Option<&str> = row.try_get(0)?;
        body.map(|body| parse(body, "task", task_id.as_str()))
            .transpose()
    };
    rows.iter().zip(task_ids).map(task).collect()
}

pub(super) async fn task_log(
    client: &Connected,
    run_id: &RunId,
    task: u64,
) -> Result<Vec<LogLine>, Error> {
    let rows = query(
        client,
        "SELECT created_at, text FROM task_logs WHERE run_id = $1 AND task = $2 ORDER BY line",
        &[&escaped(run_id.as_str()), &signed(task)],
    )
    .await?;
    rows.iter()
        .map(|row| {
            Ok(LogLine {
                created_at: Timestamp::from_micros(row.try_get(0)?),
                text: parse(row.try_get(1)?, "log of run", run_id.as_str())?,
            })
        })
        .collect()
}

pub(super) async fn document(
    client: &Connected,
    key: &DocumentKey,
) -> Result<Option<Document>, Error> {
    let row = query_opt(
        client,
        "SELECT version, body FROM documents WHERE kind = $1 AND namespace = $2 AND name = $3 AND qualifier = $4",
        &[
            &key.kind.as_str(),
            &escaped(&key.namespace),
            &escaped(&key.name),
            &escaped(&key.qualifier),
        ],
    )
    .await?;
    row.map(|row| {
        Ok(Document {
            key: key.clone(),
            version: row.try_get::<_, i64>(0)?.cast_unsigned(),
            body: row.try_get(1)?,
        })
    })
    .transpose()
}

pub(super) async fn documents(
    client: &Connected,
    kind: DocumentKind,
    namespace: Option<&str>,
) -> Result<Vec<Document>, Error> {
    let rows = query(
        client,
        "SELECT namespace, name, qualifier, version, body FROM documents
         WHERE kind = $1 AND ($2::text IS NULL OR namespace = $2) ORDER BY namespace, name, qualifier",
        &[&kind.as_str(), &namespace.map(escaped)],
    )
    .await?;
    rows.iter()
        .map(|row| {
            Ok(Document {
                key: DocumentKey {
                    kind,
                    namespace: text(row, 0)?,
                    name: text(row, 1)?,
                    qualifier: text(row, 2)?,
                },
                version: row.try_get::<_, i64>(3)?.cast_unsigned(),
                body: row.try_get(4)?,
            })
        })
        .collect()
}

/// Returns the text of a column that is not null.
pub(super) fn text(row: &Row, column: usize) -> Result<String, Error> {
    Ok(unescaped(row.try_get(column)?))
}

/// Parses a stored body.
pub(super) fn parse<T: DeserializeOwned>(body: &str, what: &str, id: &str) -> Result<T, Error> {
    from_stored(body).map_err(|error| Error::unreadable(what, id, error))
}

/// Parses the only column of every row.
pub(super) fn bodies<T: DeserializeOwned>(
    rows: &[Row],
    what: &str,
    id: &str,
) -> Result<Vec<T>, Error> {
    rows.iter()
        .map(|row| parse(row.try_get(0)?, what, id))
        .collect()
}
