//! Reads a run with everything open in it, or what changed in it since the copy of a server.
//!
//! Every part has the version of the run that wrote it. A release before that did not write these versions, so a run has two more
//! columns: `parts_version` is the newest commit that wrote them, and `parts_since` the commit from which on all have. If an older
//! release wrote in between, the whole run is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_engine::run::state::{Part, PartKey, Run};
use longhaul_protocol::id::RunId;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{parse, payload, query_opt};
use crate::encode::signed;
use crate::postgres::connect::Connected;
use crate::postgres::text::escaped;
use crate::{Error, RunRead, thin};

/// `$2` is the version of the copy, or null. The fourth column tells whether the parts are only those that changed since; then the last
/// one has the names of all.
const READ: &str = "SELECT s.version, CASE WHEN s.is_new THEN s.state END,
         CASE WHEN s.is_new AND NOT s.is_part THEN (SELECT body FROM run_specs p WHERE p.run_id = s.run_id) END,
         s.is_part,
         CASE WHEN s.is_new THEN ARRAY(SELECT part FROM run_parts p
              WHERE p.run_id = s.run_id AND (NOT s.is_part OR p.version > $2) ORDER BY part) END,
         CASE WHEN s.is_new THEN ARRAY(SELECT body FROM run_parts p
              WHERE p.run_id = s.run_id AND (NOT s.is_part OR p.version > $2) ORDER BY part) END,
         CASE WHEN s.is_new AND s.is_part THEN ARRAY(SELECT part FROM run_parts p WHERE p.run_id = s.run_id) END
     FROM (SELECT run_id, version, state, version IS DISTINCT FROM $2 AS is_new,
                  coalesce($2 < version AND parts_version = version AND parts_since <= $2 + 1, false) AS is_part
           FROM run_states WHERE run_id = $1) s";

pub(in crate::postgres) async fn read(
    client: &Connected,
    run_id: &RunId,
    known: Option<Box<Run>>,
) -> Result<RunRead, Error> {
    let version = known.as_ref().map(|run| run.version);
    let parameters: [&(dyn ToSql + Sync); 2] = [&escaped(run_id.as_str()), &version.map(signed)];
    let Some(row) = query_opt(client, READ, &parameters).await? else {
        return Ok(RunRead::Missing);
    };
    let mut run = match known {
        Some(known) if version == Some(row_version(&row)?) => {
            return Ok(RunRead::Unchanged(known));
        }
        Some(known) if row.try_get(3)? => renewed(run_id, *known, &row)?,
        _ => whole(run_id, &row)?,
    };
    for (key, sequence) in thin::missing(&run) {
        let payload = payload(client, run_id, sequence).await?;
        thin::restore(&mut run, key, &payload)?;
    }
    Ok(RunRead::Found(Box::new(run)))
}

fn row_version(row: &Row) -> Result<u64, Error> {
    Ok(row.try_get::<_, i64>(0)?.cast_unsigned())
}

fn whole(run_id: &RunId, row: &Row) -> Result<Run, Error> {
    let core = parse(row.try_get(1)?, "run", run_id.as_str())?;
    let spec = Arc::new(parse(
        row.try_get(2)?,
        "specification of run",
        run_id.as_str(),
    )?);
    let parts = parts(run_id, row)?.collect::<Result<BTreeMap<_, _>, _>>()?;
    Ok(Run::new(row_version(row)?, spec, core, parts))
}

/// Returns the copy with what changed since.
fn renewed(run_id: &RunId, known: Run, row: &Row) -> Result<Run, Error> {
    let core = parse(row.try_get(1)?, "run", run_id.as_str())?;
    let Run {
        spec,
        parts: mut all,
        ..
    } = known;
    let stored: Vec<&str> = row.try_get(6)?;
    let stored = stored.into_iter().map(|key| part_key(run_id, key));
    let stored = stored.collect::<Result<BTreeSet<PartKey>, _>>()?;
    all.retain(|key, _| stored.contains(key));
    for part in parts(run_id, row)? {
        let (key, part) = part?;
        all.insert(key, part);
    }
    Ok(Run::new(row_version(row)?, spec, core, all))
}

fn parts<'a>(
    run_id: &'a RunId,
    row: &'a Row,
) -> Result<impl Iterator<Item = Result<(PartKey, Part), Error>> + 'a, Error> {
    let (keys, bodies): (Vec<&str>, Vec<&str>) = (row.try_get(4)?, row.try_get(5)?);
    Ok(keys.into_iter().zip(bodies).map(move |(key, body)| {
        let part = parse::<Part>(body, "part of run", run_id.as_str())?;
        Ok((part_key(run_id, key)?, part))
    }))
}

fn part_key(run_id: &RunId, key: &str) -> Result<PartKey, Error> {
    key.parse()
        .map_err(|error| Error::unreadable("part of run", run_id.as_str(), error))
}
