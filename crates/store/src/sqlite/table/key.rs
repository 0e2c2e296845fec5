//! Idempotency keys of definition runs.

use longhaul_engine::change::RunChange;
use longhaul_protocol::id::{Namespace, RunId};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::Error;

/// Returns the run that has a key of a workflow type.
pub(in crate::sqlite) fn find(
    connection: &Connection,
    namespace: &Namespace,
    workflow_type: &str,
    key: &str,
) -> Result<Option<RunId>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT runs.run_id FROM workflow_keys JOIN runs USING (run_key)
         WHERE workflow_keys.namespace = ?1 AND workflow_keys.workflow_type = ?2 AND key = ?3",
    )?;
    let found = statement.query_row(params![namespace.as_str(), workflow_type, key], |row| {
        row.get::<_, String>(0)
    });
    Ok(found.optional()?.map(RunId::from))
}

/// Refuses a claim if the key belongs to another run than the claim names.
pub(in crate::sqlite) fn check(
    transaction: &Transaction<'_>,
    change: &RunChange,
) -> Result<(), Error> {
    let Some(claim) = &change.key_claim else {
        return Ok(());
    };
    let spec = &change.spec;
    let owner = find(
        transaction,
        &spec.namespace,
        &spec.workflow_type,
        &claim.key,
    )?;
    if owner == claim.earlier {
        Ok(())
    } else {
        Err(Error::Conflict)
    }
}

/// Gives the key to the run.
pub(in crate::sqlite) fn write(
    transaction: &Transaction<'_>,
    run_key: i64,
    change: &RunChange,
) -> Result<(), Error> {
    let Some(claim) = &change.key_claim else {
        return Ok(());
    };
    let spec = &change.spec;
    let key = [spec.namespace.as_str(), &spec.workflow_type, &claim.key];
    put(transaction, key, run_key)
}

/// Gives a key of a namespace and a workflow type to a run.
pub(in crate::sqlite) fn put(
    transaction: &Connection,
    [namespace, workflow_type, key]: [&str; 3],
    run_key: i64,
) -> Result<(), Error> {
    transaction
        .prepare_cached(
            "INSERT INTO workflow_keys (namespace, workflow_type, key, run_key) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET run_key = excluded.run_key",
        )?
        .execute(params![namespace, workflow_type, key, run_key])?;
    Ok(())
}
