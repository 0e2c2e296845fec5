//! A slow background check of open runs: a bounded number per pass, every run in turn. A stuck run is a bug, so it is logged; the
//! repair is an ordinary command, decided on the run as it then is. If several servers use the store, one of them makes each pass.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use longhaul_engine::Moment;
use longhaul_engine::command::AuditRun;
use longhaul_engine::run::health::stuck;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId};
use longhaul_store::{RunFilter, StatusFilter};
use serde::{Deserialize, Serialize};

use crate::Host;
use crate::error::Result;
use crate::sweeps::Sweep;

/// Between two passes. Nothing waits for them.
const INTERVAL_SECONDS: u64 = 60;

/// Runs of one pass: a few milliseconds of reading.
const RUNS_PER_PASS: usize = 200;

/// Runs that are read at once: a remote store reads them with one statement.
const RUNS_AT_ONCE: usize = 50;

/// Where the next pass continues; the beginning at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPlace {
    namespace: Option<Namespace>,
    after: Option<(Timestamp, RunId)>,
}

/// Checks open runs, a bounded number per pass.
#[derive(Default)]
pub(crate) struct Audit {
    /// `None` before the first wait: a starting server has more urgent work.
    place: Option<AuditPlace>,
}

impl Sweep for Audit {
    const NAME: &'static str = "audit";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        match &mut self.place {
            Some(_) if host.inner.store.shared().is_some() => {
                let turn = host.take_audit_turn(INTERVAL_SECONDS).await?;
                if let Some(mut place) = turn {
                    host.audit(&mut place).await?;
                    host.end_audit_turn(place).await?;
                    host.delete_old_rates().await?;
                }
                Ok(())
            }
            Some(place) => host.audit(place).await.map(drop),
            None => {
                self.place = Some(AuditPlace::default());
                Ok(())
            }
        }
    }

    async fn wait(&self, _host: &Host) {
        tokio::time::sleep(Duration::from_secs(INTERVAL_SECONDS)).await;
    }
}

impl Host {
    /// Checks runs from `place` on, and moves it. Returns how many runs were repaired.
    pub async fn audit(&self, place: &mut AuditPlace) -> Result<usize> {
        let mut budget = RUNS_PER_PASS;
        let mut repaired = 0;
        let mut names: Vec<Namespace> = self
            .namespaces()
            .list()
            .await?
            .into_iter()
            .map(|row| row.name)
            .collect();
        names.sort();
        while budget > 0 {
            let from = place.namespace.take();
            let next = names
                .iter()
                .find(|name| from.as_ref().is_none_or(|from| *name >= from));
            let Some(namespace) = next.cloned() else {
                *place = AuditPlace::default();
                break;
            };
            let filter = RunFilter {
                namespace: namespace.clone(),
                program: None,
                workflow_type: None,
                status: Some(StatusFilter::Running),
                condition: None,
                after: place.after.take(),
                limit: budget,
            };
            let page = self.inner.store.list_runs(&filter).await?;
            let run_ids: Vec<RunId> = page.iter().map(|row| row.run_id.clone()).collect();
            let mut audited = stream::iter(run_ids)
                .map(|run_id| async move {
                    let outcome = audit_run(self, &run_id).await;
                    (run_id, outcome)
                })
                .buffer_unordered(RUNS_AT_ONCE);
            while let Some((run_id, outcome)) = audited.next().await {
                match outcome {
                    Ok(was_stuck) => repaired += usize::from(was_stuck),
                    // One run that cannot be read must not hide the others.
                    Err(error) => tracing::warn!(%run_id, %error, "a run could not be audited"),
                }
            }
            if page.len() == budget {
                place.after = page.last().map(|row| (row.started_at, row.run_id.clone()));
                place.namespace = Some(namespace);
                break;
            }
            budget -= page.len();
            place.namespace = names.iter().find(|name| **name > namespace).cloned();
            if place.namespace.is_none() {
                break;
            }
        }
        Ok(repaired)
    }
}

/// Reads the stored run first, so that a healthy one costs one read and takes no lock. Returns whether it was stuck.
async fn audit_run(host: &Host, run_id: &RunId) -> Result<bool> {
    let Some(run) = host.inner.store.run(run_id).await? else {
        return Ok(false);
    };
    let moment = Moment {
        now: host.now(),
        entropy: 0,
        limits: &host.inner.config.limits,
    };
    if stuck(&run, moment).is_none() {
        return Ok(false);
    }
    let found = host.inner.executor.execute(run_id, &AuditRun).await?;
    let Some(found) = found.flatten() else {
        return Ok(false);
    };
    tracing::error!(
        namespace = %run.spec.namespace, workflow_id = %run.spec.workflow_id, %run_id, found = found.as_str(),
        "repaired an open run that was stuck; please report this"
    );
    Ok(true)
}
