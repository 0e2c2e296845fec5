//! Writes the rows of a copied store (`crate::transfer`) with the statements of commits.

use longhaul_engine::change::{LogKey, LogLine, TaskRow};
use longhaul_engine::run::state::{Part, PartKey};
use longhaul_engine::session::Session;
use longhaul_protocol::Timestamp;

use super::rows::{PartRow, Rows, searched};
use super::sql::PUT_DOCUMENTS;
use super::statements::Batch;
use crate::Error;
use crate::encode::EventColumns;
use crate::postgres::connect::Connected;
use crate::postgres::read::parse;
use crate::postgres::text::escaped;
use crate::transfer::{NewRun, Row};

/// What the columns of a row are computed from.
enum Parsed {
    Run(Box<NewRun>),
    /// The text that a search looks into.
    Part(Option<String>),
    Task(Box<TaskRow>),
    Session(Box<Session>),
    Log(LogKey, LogLine),
    /// The row has all columns.
    Whole,
}

/// Writes rows in the transaction of the connection.
///
/// # Errors
/// [`Error::Corrupt`] if a row cannot be read.
pub(in crate::postgres) async fn write(client: &Connected, rows: &[Row]) -> Result<(), Error> {
    let parsed = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let mut batch = Rows::default();
    for (row, parsed) in rows.iter().zip(&parsed) {
        add(&mut batch, row, parsed);
    }
    let batch = Batch {
        client,
        rows: &batch,
    };
    // Boxed: it has the futures of all tables.
    Box::pin(batch.send()).await?;
    put_documents(client, rows).await
}

fn read(row: &Row) -> Result<Parsed, Error> {
    Ok(match row {
        Row::Run {
            run_id,
            version,
            spec,
            state,
        } => Parsed::Run(Box::new(NewRun::read(run_id, *version, spec, state)?)),
        Row::Part { run_id, part, body } => {
            let key: PartKey = part
                .parse()
                .map_err(|error| Error::unreadable("part of run", run_id, error))?;
            let part: Part = parse(body, "part of run", run_id)?;
            Parsed::Part(searched(key, Some(&part)))
        }
        Row::Task { task_id, body } => Parsed::Task(Box::new(parse(body, "task", task_id)?)),
        Row::Session {
            session_id, body, ..
        } => Parsed::Session(Box::new(parse(body, "session", session_id)?)),
        Row::Log {
            task,
            line,
            created_at,
            text,
            ..
        } => {
            let key = LogKey {
                task: task.cast_unsigned(),
                line: line.cast_unsigned(),
            };
            let created_at = Timestamp::from_micros(*created_at);
            let text = text.clone();
            Parsed::Log(key, LogLine { created_at, text })
        }
        Row::Event(_)
        | Row::Command { .. }
        | Row::Request { .. }
        | Row::Key { .. }
        | Row::Document { .. } => Parsed::Whole,
    })
}

fn add<'a>(batch: &mut Rows<'a>, row: &'a Row, parsed: &'a Parsed) {
    match (row, parsed) {
        (
            Row::Run {
                run_id,
                spec,
                state,
                ..
            },
            Parsed::Run(run),
        ) => {
            let run_id = run_id.as_str();
            batch.created.insert(run_id, (&run.change, spec));
            batch.states.insert(run_id, (&run.change, state));
            if let Some(alarm) = run.change.core.alarm {
                batch.alarms.insert(run_id, Some(alarm.as_micros()));
            }
            if let Some(entries) = &run.bodies.attributes {
                batch.attributes.insert(run_id, entries);
            }
        }
        (Row::Part { run_id, part, body }, Parsed::Part(searched)) => {
            let searched = searched.clone();
            // No server has an older copy of the run.
            let row = PartRow {
                body,
                searched,
                version: 1,
            };
            batch.parts.insert((run_id, part), Some(row));
        }
        (Row::Task { task_id, body }, Parsed::Task(task)) => {
            batch.tasks.insert(task_id, (task, body));
        }
        (
            Row::Session {
                namespace,
                session_id,
                body,
            },
            Parsed::Session(session),
        ) => {
            batch
                .sessions
                .insert((namespace, session_id), (session, body));
        }
        (Row::Log { run_id, .. }, Parsed::Log(key, line)) => {
            batch.logs.insert((run_id, *key), Some(line));
        }
        (Row::Event(event), _) => {
            let columns = EventColumns::from(&**event);
            batch.events.push((&event.run_id, columns));
        }
        (
            Row::Command {
                run_id,
                sequence,
                body,
            },
            _,
        ) => {
            let key = (run_id.as_str(), sequence.cast_unsigned());
            batch.commands.insert(key, Some(body));
        }
        (
            Row::Request {
                namespace,
                workflow_id,
                request_id,
                run_id,
                sequence,
            },
            _,
        ) => {
            let name = (
                namespace.as_str(),
                workflow_id.as_str(),
                request_id.as_str(),
            );
            batch
                .requests
                .insert(name, (run_id, sequence.cast_unsigned()));
        }
        (
            Row::Key {
                namespace,
                workflow_type,
                key,
                run_id,
            },
            _,
        ) => {
            let name = (namespace.as_str(), workflow_type.as_str(), key.as_str());
            batch.keys.insert(name, run_id);
        }
        // Documents are written apart; `read` returns no other pair.
        _ => {}
    }
}

/// Writes documents of every kind, also of kinds that this release does not know.
async fn put_documents(client: &Connected, rows: &[Row]) -> Result<(), Error> {
    let mut columns: [Vec<_>; 4] = Default::default();
    let (mut versions, mut bodies) = (Vec::new(), Vec::new());
    for row in rows {
        if let Row::Document {
            kind,
            namespace,
            name,
            qualifier,
            version,
            body,
        } = row
        {
            for (column, text) in columns.iter_mut().zip([kind, namespace, name, qualifier]) {
                column.push(escaped(text));
            }
            versions.push(*version);
            bodies.push(body.as_str());
        }
    }
    if bodies.is_empty() {
        return Ok(());
    }
    let [kinds, namespaces, names, qualifiers] = &columns;
    let statement = client.prepare_cached(PUT_DOCUMENTS).await?;
    client
        .execute(
            &statement,
            &[kinds, namespaces, names, qualifiers, &versions, &bodies],
        )
        .await?;
    Ok(())
}
