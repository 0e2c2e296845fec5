//! A transport that records requests, and can change responses.

use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_embedded::EmbeddedTransport;
use longhaul_sdk::transport::{Request, Response, Transport, TransportError};
use parking_lot::Mutex;
use serde_json::Value;

/// A sent request.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// All sent requests, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape(Arc<Mutex<Vec<Sent>>>);

impl Tape {
    pub(crate) fn all(&self) -> Vec<Sent> {
        self.0.lock().clone()
    }

    /// Returns the requests whose path ends with `end`.
    pub(crate) fn to(&self, end: &str) -> Vec<Sent> {
        let mut sent = self.all();
        sent.retain(|sent| sent.path.ends_with(end));
        sent
    }

    /// Returns the commands of a type in all completions and checkpoints.
    pub(crate) fn commands(&self, kind: &str) -> Vec<Value> {
        let commands =
            self.all()
                .into_iter()
                .filter_map(|sent| match sent.body["commands"].clone() {
                    Value::Array(commands) => Some(commands),
                    _ => None,
                });
        commands
            .flatten()
            .filter(|command| command["type"] == kind)
            .collect()
    }
}

type ChangeResponse = Box<dyn Fn(&Sent, Response) -> Response + Send + Sync>;

pub(crate) struct Recording {
    inner: EmbeddedTransport,
    tape: Tape,
    change: ChangeResponse,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Recording")
    }
}

impl Recording {
    pub(crate) fn new(inner: EmbeddedTransport) -> (Self, Tape) {
        let tape = Tape::default();
        let recording = Self {
            inner,
            tape: tape.clone(),
            change: Box::new(|_, response| response),
        };
        (recording, tape)
    }

    /// Changes responses.
    pub(crate) fn changing(
        mut self,
        change: impl Fn(&Sent, Response) -> Response + Send + Sync + 'static,
    ) -> Self {
        self.change = Box::new(change);
        self
    }

    /// Replaces a text in every response.
    pub(crate) fn replacing(self, from: &'static str, to: &'static str) -> Self {
        self.changing(move |_, mut response| {
            let text = String::from_utf8_lossy(&response.body).replace(from, to);
            response.body = text.into_bytes().into();
            response
        })
    }
}

impl Transport for Recording {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        let sent = Sent {
            method: request.method.as_str(),
            path: request.path.clone(),
            body: serde_json::from_slice(request.body.as_deref().unwrap_or_default())
                .unwrap_or_default(),
        };
        self.tape.0.lock().push(sent.clone());
        Box::pin(async move {
            let response = self.inner.send(request).await?;
            Ok((self.change)(&sent, response))
        })
    }
}
