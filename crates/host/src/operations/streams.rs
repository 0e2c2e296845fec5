//! Message streams for the control plane.

use longhaul_engine::run::message::stream::{AppendMessage, Appended, Stream};
use longhaul_protocol::Payload;
use longhaul_protocol::id::{Namespace, WorkflowId};

use crate::error::Result;
use crate::operations::workflows::CommandTarget;
use crate::views::Workflows;

impl Workflows<'_> {
    /// Appends a message, or returns the position that it already has.
    pub async fn append_message(
        self,
        target: &CommandTarget,
        stream_name: &str,
        message_id: &str,
        arguments: Payload,
    ) -> Result<Appended> {
        let target = CommandTarget {
            request_id: Some(AppendMessage::request_id(stream_name, message_id)),
            ..target.clone()
        };
        self.command(&target, |request, _| AppendMessage {
            request,
            stream_name: stream_name.to_owned(),
            message_id: message_id.to_owned(),
            arguments: arguments.clone(),
        })
        .await
    }

    /// Returns every stream of a workflow, by name.
    pub async fn message_streams(
        self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
    ) -> Result<Vec<(String, Stream)>> {
        let (run, _) = self.run(namespace, workflow_id, None).await?;
        let streams = run.core.streams.iter();
        Ok(streams
            .map(|(name, stream)| (name.clone(), stream.clone()))
            .collect())
    }
}
