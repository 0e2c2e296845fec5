//! External commands and the request ids that name them.

use longhaul_engine::change::RunChange;
use longhaul_protocol::sequence::RequestSeq;
use rusqlite::{Connection, params};

use crate::Error;
use crate::encode::signed;

/// Writes a command of a run under its number.
pub(in crate::sqlite) fn put(
    transaction: &Connection,
    run_key: i64,
    sequence: i64,
    body: &str,
) -> Result<(), Error> {
    transaction
        .prepare_cached(
            "INSERT INTO commands (run_key, sequence, body) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET body = excluded.body",
        )?
        .execute(params![run_key, sequence, body])?;
    Ok(())
}

/// Writes the command that a request id of a workflow belongs to: its run and its number.
pub(in crate::sqlite) fn put_request(
    transaction: &Connection,
    [namespace, workflow_id]: [&str; 2],
    request_id: &str,
    (run_key, sequence): (i64, i64),
) -> Result<(), Error> {
    transaction
        .prepare_cached(
            "INSERT INTO requests (namespace, workflow_id, request_id, run_key, sequence) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE SET run_key = excluded.run_key",
        )?
        .execute(params![namespace, workflow_id, request_id, run_key, sequence])?;
    Ok(())
}

/// Deletes a command and, if it had one, its request id.
pub(in crate::sqlite) fn delete(
    transaction: &Connection,
    run_key: i64,
    change: &RunChange,
    sequence: RequestSeq,
) -> Result<(), Error> {
    transaction
        .prepare_cached(
            "DELETE FROM requests WHERE namespace = ?1 AND workflow_id = ?2 AND run_key = ?3 AND sequence = ?4 AND request_id =
             (SELECT json_extract(body, '$.request_id') FROM commands WHERE run_key = ?3 AND sequence = ?4)",
        )?
        .execute(params![
            change.spec.namespace.as_str(),
            change.spec.workflow_id.as_str(),
            run_key,
            signed(sequence),
        ])?;
    transaction
        .prepare_cached("DELETE FROM commands WHERE run_key = ?1 AND sequence = ?2")?
        .execute(params![run_key, signed(sequence)])?;
    Ok(())
}
