//! Sizes of the queues of definition runs.

use std::collections::BTreeMap;

use longhaul_engine::change::TaskKind;
use longhaul_engine::conductor::definition::kind::is_queued;
use longhaul_engine::conductor::execution::record::queue_name;
use longhaul_protocol::id::Namespace;

use crate::error::Result;
use crate::views::ExecutionTasks;

impl ExecutionTasks<'_> {
    /// Returns the number of waiting tasks by queue, delayed ones included: of every queue that has open tasks or was polled.
    pub async fn queue_sizes(self, namespace: &Namespace) -> Result<BTreeMap<String, u64>> {
        let polls = self.last_polls(namespace, None);
        let polled = polls.iter().map(|poll| {
            let queue = queue_name(&poll.task_type, poll.domain.as_deref());
            (queue.to_string(), 0)
        });
        let mut sizes: BTreeMap<String, u64> = polled.collect();
        for count in self.host.inner.store.queue_counts(namespace).await? {
            let is_queue = count.kind == TaskKind::Execution && is_queued(count.queue.as_str());
            if is_queue {
                sizes.insert(count.queue.to_string(), count.ready + count.delayed);
            }
        }
        Ok(sizes)
    }
}
