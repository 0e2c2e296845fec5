//! Updates for the control plane: validation, admission, and waiting for the result. Waiting is not part of any transaction: a
//! caller that hangs up, or a server that restarts, does not affect the update.

use std::time::Duration;

use longhaul_engine::change::{CommandRow, UpdateStatus};
use longhaul_engine::run::message::external::Receipt;
use longhaul_engine::run::message::update::UpdateRun;
use longhaul_engine::run::state::PartKey;
use longhaul_protocol::Payload;
use longhaul_protocol::id::RunId;
use longhaul_store::CommandKey;

use crate::error::Result;
use crate::operations::workflows::{CommandTarget, Handlers};
use crate::views::Workflows;

/// The stage that the caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateWait {
    Accepted,
    /// Until the handler is done, or this long.
    Completed(Duration),
}

impl Workflows<'_> {
    /// Sends an update, and waits as requested. The receipt shows the update as it is then.
    pub async fn update(
        self,
        target: &CommandTarget,
        name: &str,
        arguments: Payload,
        wait: UpdateWait,
    ) -> Result<Receipt> {
        let validator_refusal = self
            .host
            .validations()
            .validate(target, name, &arguments)
            .await?;
        let receipt = self
            .command(target, |request, run| UpdateRun {
                request,
                name: name.to_owned(),
                arguments: arguments.clone(),
                declared: self.declared_handlers(run, Handlers::Updates),
                validator_refusal: validator_refusal.clone(),
            })
            .await?;
        match wait {
            UpdateWait::Accepted => Ok(receipt),
            UpdateWait::Completed(longest) => self.wait_for_update(receipt, longest).await,
        }
    }

    /// Returns the receipt of an update that has ended, or of its progress after this time.
    async fn wait_for_update(self, mut receipt: Receipt, longest: Duration) -> Result<Receipt> {
        let deadline = tokio::time::Instant::now() + longest;
        loop {
            let watch = self.host.inner.wakes.watch(&receipt.run_id);
            let changed = watch.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (run_id, command) = self
                .update_command(receipt.run_id.clone(), &receipt.command)
                .await?;
            let moved = run_id != receipt.run_id;
            receipt.run_id = run_id;
            receipt.command = command;
            if !is_open(&receipt.command) {
                return Ok(receipt);
            }
            if moved {
                continue;
            }
            tokio::select! {
                () = &mut changed => {}
                () = tokio::time::sleep_until(deadline) => return Ok(receipt),
                () = self.host.inner.stopping.cancelled() => return Ok(receipt),
            }
        }
    }

    /// Returns the update as it is now, and its run: it follows a workflow that continued as new.
    async fn update_command(
        self,
        mut run_id: RunId,
        known: &CommandRow,
    ) -> Result<(RunId, CommandRow)> {
        let mut newest = known.clone();
        loop {
            let Some(run) = self.host.inner.executor.read(&run_id).await? else {
                return Ok((run_id, newest));
            };
            // The run shows that the update is still open: the usual case while waiting, without a read.
            let is_here = [PartKey::Update, PartKey::Buffered]
                .into_iter()
                .any(|part| run.parts.contains_key(&part(known.sequence)));
            if is_here {
                return Ok((run_id, newest));
            }
            let key = CommandKey::Sequence(&run_id, known.sequence);
            let found = self.host.inner.store.command(key).await?;
            newest = found.map_or(newest, |(_, command)| command);
            let next = run.core.closed.and_then(|closed| closed.continued_to);
            match next {
                Some(next) if is_open(&newest) => run_id = next,
                _ => return Ok((run_id, newest)),
            }
        }
    }
}

fn is_open(command: &CommandRow) -> bool {
    command
        .update
        .as_ref()
        .is_some_and(|update| update.status == UpdateStatus::Accepted)
}
