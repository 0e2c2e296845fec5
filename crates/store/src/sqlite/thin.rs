//! Reads the payloads that rows were written without (`crate::thin`).

use longhaul_engine::change::CommandRow;
use longhaul_engine::run::state::Run;
use longhaul_protocol::id::RunId;
use longhaul_protocol::sequence::HistorySeq;
use rusqlite::{Connection, params};

use crate::encode::signed;
use crate::{Error, thin};

/// Restores the arguments of the parts of a run.
pub(super) fn complete(connection: &Connection, run: &mut Run) -> Result<(), Error> {
    for (key, sequence) in thin::missing(run) {
        let payload = payload(connection, run.run_id(), sequence)?;
        thin::restore(run, key, &payload)?;
    }
    Ok(())
}

/// Restores the result of a finished update.
pub(super) fn complete_command(
    connection: &Connection,
    run_id: &RunId,
    command: &mut CommandRow,
) -> Result<(), Error> {
    if let Some(sequence) = thin::missing_result(command) {
        let payload = payload(connection, run_id, sequence)?;
        thin::restore_result(run_id, command, &payload)?;
    }
    Ok(())
}

fn payload(connection: &Connection, run_id: &RunId, sequence: HistorySeq) -> Result<String, Error> {
    Ok(connection
        .prepare_cached(
            "SELECT events.payload FROM runs JOIN events USING (run_key) WHERE runs.run_id = ?1 AND events.sequence = ?2",
        )?
        .query_row(params![run_id.as_str(), signed(sequence)], |row| row.get(0))?)
}
