//! Outputs of tasks that later tasks of the same name and key take. They are documents, so that all servers of a store see them.

use std::sync::Arc;

use longhaul_engine::change::ReusableOutput;
use longhaul_engine::conductor::execution::lookup::OutputKey;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use longhaul_store::{Error as StoreError, ReusableOutputRow, document};
use serde_json::Value;

use super::Finder;
use crate::error::Result;

impl Finder {
    /// Returns the output that an earlier task left, unless it has expired.
    pub(super) async fn reusable_output(
        &self,
        namespace: &Namespace,
        key: &OutputKey,
        now: Timestamp,
    ) -> Result<Option<Arc<Value>>> {
        let slot = format!("{:05}", ReusableOutput::slot(&key.name, &key.key));
        let row = self
            .store
            .get::<ReusableOutputRow>(namespace, &slot)
            .await?;
        let is_current = |row: &ReusableOutputRow| {
            row.name == key.name && row.key == key.key && row.expires_at > now
        };
        Ok(row.filter(is_current).map(|row| row.output))
    }

    /// Keeps outputs for later tasks. The tasks have ended whatever happens here.
    pub(crate) async fn keep_outputs(&self, outputs: &[ReusableOutput], now: Timestamp) {
        for output in outputs {
            let row = ReusableOutputRow {
                namespace: output.namespace.clone(),
                slot: ReusableOutput::slot(&output.name, &output.key),
                name: output.name.clone(),
                key: output.key.clone(),
                output: Arc::clone(&output.output),
                expires_at: output.expires_at,
            };
            let key = document::key_of(&row);
            let kept = self
                .store
                .change_quietly(key, now, |_| Ok::<_, StoreError>(Some(row.clone())));
            if let Err(error) = kept.await {
                tracing::warn!(task = output.name, %error, "the output of a task could not be kept for later tasks");
            }
        }
    }
}
