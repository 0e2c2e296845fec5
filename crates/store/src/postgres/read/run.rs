//! Reads runs with everything open in them, or what changed in them since the copies of a server.
//!
//! Every part has the version of the run that wrote it. A release before that did not write these versions, so a run has two more
//! columns: `parts_version` is the newest commit that wrote them, and `parts_since` the commit from which on all have. If an older
//! release wrote in between, the whole run is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_engine::run::state::{Part, PartKey, Run};
use longhaul_protocol::id::RunId;
use longhaul_protocol::sequence::HistorySeq;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{parse, payload, query};
use crate::encode::signed;
use crate::postgres::connect::Connected;
use crate::postgres::text::escaped;
use crate::{Error, RunRead, thin};

/// One row for each wanted run, in their order. `n.known` is the version of the copy, or null. The fourth column tells whether the parts
/// are only those that changed since; then the last one has the names of all.
const READ: &str = "SELECT s.version, CASE WHEN s.is_new THEN s.state END,
         CASE WHEN s.is_new AND NOT s.is_part THEN (SELECT body FROM run_specs p WHERE p.run_id = s.run_id) END,
         s.is_part,
         CASE WHEN s.is_new THEN ARRAY(SELECT part FROM run_parts p
              WHERE p.run_id = s.run_id AND (NOT s.is_part OR p.version > n.known) ORDER BY part) END,
         CASE WHEN s.is_new THEN ARRAY(SELECT body FROM run_parts p
              WHERE p.run_id = s.run_id AND (NOT s.is_part OR p.version > n.known) ORDER BY part) END,
         CASE WHEN s.is_new AND s.is_part THEN ARRAY(SELECT part FROM run_parts p WHERE p.run_id = s.run_id) END
     FROM unnest($1::text[], $2::int8[]) WITH ORDINALITY n (run_id, known, place)
     LEFT JOIN LATERAL (
         SELECT run_id, version, state, version IS DISTINCT FROM n.known AS is_new,
                coalesce(n.known < version AND parts_version = version AND parts_since <= n.known + 1, false) AS is_part
         FROM run_states WHERE run_id = n.run_id) s ON true
     ORDER BY n.place";

/// A run that a caller reads, and the version of its copy, if it has one.
pub(in crate::postgres) type WantedRun = (RunId, Option<u64>);

/// A run as it is stored, or what changed in it since the version of a copy.
pub(in crate::postgres) struct StoredRun {
    version: u64,
    /// Null if the copy is current.
    state: Option<String>,
    /// Null if the parts are only those that changed.
    spec: Option<String>,
    is_part: bool,
    keys: Vec<String>,
    bodies: Vec<String>,
    /// The names of all parts, if the others are only those that changed.
    all_keys: Vec<String>,
}

/// Reads runs, each with the version of the caller's copy. Returns them in their order, `None` for one that does not exist.
pub(in crate::postgres) async fn read(
    client: &Connected,
    wanted: &[WantedRun],
) -> Result<Vec<Option<StoredRun>>, Error> {
    let ids: Vec<_> = wanted.iter().map(|(id, _)| escaped(id.as_str())).collect();
    let versions: Vec<Option<i64>> = wanted
        .iter()
        .map(|(_, version)| version.map(signed))
        .collect();
    let parameters: [&(dyn ToSql + Sync); 2] = [&ids, &versions];
    let rows = query(client, READ, &parameters).await?;
    rows.iter().map(StoredRun::of).collect()
}

impl StoredRun {
    fn of(row: &Row) -> Result<Option<Self>, Error> {
        let Some(version) = row.try_get::<_, Option<i64>>(0)? else {
            return Ok(None);
        };
        let texts = |column: usize| -> Result<Vec<String>, Error> {
            let texts: Option<Vec<String>> = row.try_get(column)?;
            Ok(texts.unwrap_or_default())
        };
        Ok(Some(Self {
            version: version.cast_unsigned(),
            state: row.try_get(1)?,
            spec: row.try_get(2)?,
            is_part: row.try_get(3)?,
            keys: texts(4)?,
            bodies: texts(5)?,
            all_keys: texts(6)?,
        }))
    }

    /// Returns the run, made of the copy and what changed. Also returns what its parts were stored without.
    pub(in crate::postgres) fn into_run(
        self,
        run_id: &RunId,
        known: Option<Box<Run>>,
    ) -> Result<(RunRead, Missing), Error> {
        let Some(state) = &self.state else {
            let known = known.ok_or_else(|| {
                Error::Corrupt(format!("run {run_id} has a version and no state"))
            })?;
            return Ok((RunRead::Unchanged(known), Missing::new()));
        };
        let core = parse(state, "run", run_id.as_str())?;
        let run = match known {
            Some(known) if self.is_part => {
                let Run {
                    spec, mut parts, ..
                } = *known;
                let stored = self.all_keys.iter().map(|key| part_key(run_id, key));
                let stored = stored.collect::<Result<BTreeSet<PartKey>, _>>()?;
                parts.retain(|key, _| stored.contains(key));
                for part in self.parts(run_id) {
                    let (key, part) = part?;
                    parts.insert(key, part);
                }
                Run::new(self.version, spec, core, parts)
            }
            _ => {
                let spec = self.spec.as_deref().unwrap_or_default();
                let spec = Arc::new(parse(spec, "specification of run", run_id.as_str())?);
                let parts = self.parts(run_id).collect::<Result<BTreeMap<_, _>, _>>()?;
                Run::new(self.version, spec, core, parts)
            }
        };
        let missing = thin::missing(&run);
        Ok((RunRead::Found(Box::new(run)), missing))
    }

    fn parts<'a>(
        &'a self,
        run_id: &'a RunId,
    ) -> impl Iterator<Item = Result<(PartKey, Part), Error>> + 'a {
        self.keys.iter().zip(&self.bodies).map(move |(key, body)| {
            let part = parse::<Part>(body, "part of run", run_id.as_str())?;
            Ok((part_key(run_id, key)?, part))
        })
    }
}

/// Parts whose payloads are stored with events only.
type Missing = Vec<(PartKey, HistorySeq)>;

/// Adds what parts were stored without. Events never change, so this may be read later than the run.
pub(in crate::postgres) async fn restore(
    client: &Connected,
    run_id: &RunId,
    read: RunRead,
    missing: Missing,
) -> Result<RunRead, Error> {
    let RunRead::Found(mut run) = read else {
        return Ok(read);
    };
    for (key, sequence) in missing {
        let payload = payload(client, run_id, sequence).await?;
        thin::restore(&mut run, key, &payload)?;
    }
    Ok(RunRead::Found(run))
}

fn part_key(run_id: &RunId, key: &str) -> Result<PartKey, Error> {
    key.parse()
        .map_err(|error| Error::unreadable("part of run", run_id.as_str(), error))
}
