//! A slow second look at open runs (engine.md §12.4): a bounded number per pass, every run in turn. What it finds is a bug, so it
//! is logged; the repair is an ordinary command, decided on the run as it then is.

use std::time::Duration;

use longhaul_engine::Moment;
use longhaul_engine::command::AuditRun;
use longhaul_engine::run::health::stuck;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId};
use longhaul_store::{RunFilter, StatusFilter};

use crate::Host;
use crate::error::Result;

/// Between two passes. Nothing waits for them.
const INTERVAL: Duration = Duration::from_secs(60);

/// Runs of one pass: a few milliseconds of reading.
const RUNS_PER_PASS: usize = 200;

/// Where the next pass goes on; the beginning at first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPlace {
    namespace: Option<Namespace>,
    after: Option<(Timestamp, RunId)>,
}

/// Runs until told to stop.
pub(crate) async fn run(host: Host) {
    let mut place = AuditPlace::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = host.inner.stopping.cancelled() => return,
        }
        if let Err(error) = host.audit(&mut place).await {
            tracing::warn!(%error, "open runs could not be audited; the next pass begins anew");
        }
    }
}

impl Host {
    /// One pass from `place` on; how many runs were put right.
    pub async fn audit(&self, place: &mut AuditPlace) -> Result<usize> {
        let mut budget = RUNS_PER_PASS;
        let mut repaired = 0;
        let mut names: Vec<Namespace> = self
            .namespaces()
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
                workflow_type: None,
                status: Some(StatusFilter::Running),
                condition: None,
                after: place.after.take(),
                limit: budget,
            };
            let page = self.inner.store.list_runs(&filter).await?;
            for row in &page {
                match self.audit_run(&row.run_id).await {
                    Ok(was_stuck) => repaired += usize::from(was_stuck),
                    // One run that cannot be read must not hide the others.
                    Err(error) => {
                        tracing::warn!(run_id = %row.run_id, %error, "a run could not be audited")
                    }
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

    /// Looks at the stored run first, so that healthy ones cost one read and take no lock.
    async fn audit_run(&self, run_id: &RunId) -> Result<bool> {
        let Some(run) = self.inner.store.run(run_id).await? else {
            return Ok(false);
        };
        let moment = Moment {
            now: self.now(),
            entropy: 0,
            limits: &self.inner.config.limits,
        };
        if stuck(&run, moment).is_none() {
            return Ok(false);
        }
        let found = self.inner.executor.execute(run_id, &AuditRun).await?;
        let Some(found) = found.flatten() else {
            return Ok(false);
        };
        tracing::error!(
            namespace = %run.spec.namespace, workflow_id = %run.spec.workflow_id, %run_id, found = found.as_str(),
            "an open run was stuck and was put right; please report this"
        );
        Ok(true)
    }
}
