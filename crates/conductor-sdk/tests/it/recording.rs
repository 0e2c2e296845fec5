//! A transport that records requests and returns prepared answers.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_conductor_sdk::transport::{Request, Response, Transport, TransportError};
use parking_lot::Mutex;

#[derive(Clone, Debug, Default)]
pub(crate) struct Recording(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Result<(u16, String), TransportError>>,
    requests: Vec<Request>,
}

impl Recording {
    /// The next request gets this answer. Without one, a request gets status 200 and no body.
    pub(crate) fn answer(&self, status: u16, body: impl Into<String>) {
        self.0.lock().answers.push_back(Ok((status, body.into())));
    }

    /// The next request gets no answer.
    pub(crate) fn fail(&self, error: TransportError) {
        self.0.lock().answers.push_back(Err(error));
    }

    /// Returns the requests since the last call.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.0.lock().requests)
    }

    /// Returns the requests since the last call as text: method, path and body.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |request: Request| {
            let body = request.body.unwrap_or_default();
            let body = String::from_utf8(body.to_vec()).unwrap();
            format!("{} {} {body}", request.method.as_str(), request.path)
                .trim_end()
                .to_owned()
        };
        self.take().into_iter().map(line).collect()
    }
}

impl Transport for Recording {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        let mut state = self.0.lock();
        state.requests.push(request);
        let answer = state.answers.pop_front();
        let answer = answer.unwrap_or(Ok((200, String::new())));
        let response = answer.map(|(status, body)| Response {
            status,
            body: body.into(),
        });
        Box::pin(async move { response })
    }
}

/// Returns the value of a header.
pub(crate) fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let mut headers = request.all_headers();
    headers
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}
