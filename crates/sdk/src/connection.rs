//! The connection to a server that clients and workers use: transport, namespace and tokens. Every request is a [`Call`], which
//! repeats it if allowed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use longhaul_transport::Repeat;
use longhaul_transport::json_body;
use longhaul_transport::path::{add_query, path};

use crate::transport::{
    Method, Plane, Request, RequestError, RequestRetry, Token, Transport, TransportError,
};

/// Longer than the longest time for which the server holds a request: 55 seconds, for a query.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Transport, namespace, tokens and retries. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) namespace: Arc<str>,
    pub(crate) control_token: Option<Token>,
    pub(crate) worker_token: Option<Token>,
    pub(crate) retry: RequestRetry,
}

impl Connection {
    /// A read. It may be repeated.
    pub(crate) fn get(&self, plane: Plane, segments: &[&str]) -> Call<'_> {
        self.call(plane, Method::Get, segments)
            .repeat(Repeat::Freely)
    }

    pub(crate) fn post(&self, plane: Plane, segments: &[&str]) -> Call<'_> {
        self.call(plane, Method::Post, segments)
    }

    #[cfg(feature = "schedules")]
    pub(crate) fn put(&self, plane: Plane, segments: &[&str]) -> Call<'_> {
        self.call(plane, Method::Put, segments)
            .repeat(Repeat::Freely)
    }

    pub(crate) fn delete(&self, plane: Plane, segments: &[&str]) -> Call<'_> {
        self.call(plane, Method::Delete, segments)
    }

    fn call(&self, plane: Plane, method: Method, segments: &[&str]) -> Call<'_> {
        Call {
            connection: self,
            method,
            plane,
            path: path("/api", segments),
            body: Ok(None),
            repeat: Repeat::IfWithoutEffect,
            timeout: TIMEOUT,
        }
    }
}

/// Builds and sends one request.
#[derive(Debug)]
#[must_use = "a call does nothing until it is sent"]
pub(crate) struct Call<'a> {
    connection: &'a Connection,
    method: Method,
    plane: Plane,
    path: Result<String, TransportError>,
    body: Result<Option<Bytes>, TransportError>,
    repeat: Repeat,
    timeout: Duration,
}

impl Call<'_> {
    /// Adds a query parameter, if there is a value.
    pub(crate) fn query(mut self, name: &str, value: Option<&str>) -> Self {
        if let (Ok(path), Some(value)) = (&mut self.path, value) {
            add_query(path, name, value);
        }
        self
    }

    pub(crate) fn json<B: Serialize + ?Sized>(mut self, body: &B) -> Self {
        self.body = json_body(body).map(Some);
        self
    }

    pub(crate) fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    /// Sets the timeout of one attempt.
    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends the request, repeats it if allowed, and parses the response.
    pub(crate) async fn send<R: DeserializeOwned>(self) -> Result<R, RequestError> {
        let body = self.send_raw().await?;
        serde_json::from_slice(&body).map_err(|error| RequestError::Malformed(error.to_string()))
    }

    /// Sends the request as [`Self::send`] does, and returns the body of the response.
    pub(crate) async fn send_raw(self) -> Result<Bytes, RequestError> {
        let connection = self.connection;
        let (version_header, version) = self.plane.version_header();
        let mut request = Request::new(self.method, self.path?)
            .header(version_header, version)
            .header("X-Namespace", &*connection.namespace);
        let token = match self.plane {
            Plane::Control => &connection.control_token,
            Plane::Worker => &connection.worker_token,
        };
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {}", token.secret()));
        }
        request.body = self.body?;
        request.timeout = self.timeout;
        longhaul_transport::send(
            &*connection.transport,
            request,
            &connection.retry,
            self.repeat,
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use parking_lot::Mutex;

    use super::*;
    use crate::transport::Response;

    /// Responds with `{}` and keeps the headers of the requests.
    #[derive(Debug, Default)]
    struct Listener(Mutex<Vec<Vec<(&'static str, String)>>>);

    impl Transport for Listener {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
            let headers = request.all_headers();
            let headers = headers.map(|(name, value)| (name, value.to_owned()));
            self.0.lock().push(headers.collect());
            let response = Response {
                status: 200,
                body: "{}".into(),
            };
            Box::pin(async { Ok(response) })
        }
    }

    #[tokio::test]
    async fn each_plane_has_its_version_and_its_token() {
        let listener = Arc::new(Listener::default());
        let connection = Connection {
            transport: listener.clone(),
            namespace: "n".into(),
            control_token: Some(Token::new("c")),
            worker_token: Some(Token::new("w")),
            retry: RequestRetry::NEVER,
        };
        for plane in [Plane::Control, Plane::Worker] {
            let call = connection.post(plane, &["x"]).json(&1);
            call.send_raw().await.unwrap();
        }
        let requests = listener.0.lock();
        let header = |request: usize, name: &str| {
            let found = requests[request].iter().find(|(header, _)| *header == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(header(0, "Authorization"), Some("Bearer c"));
        assert_eq!(
            header(0, "X-Durable-Workflow-Control-Plane-Version"),
            Some("2")
        );
        assert_eq!(header(1, "Authorization"), Some("Bearer w"));
        assert_eq!(
            header(1, "X-Durable-Workflow-Protocol-Version"),
            Some("1.20")
        );
        assert_eq!(header(1, "X-Namespace"), Some("n"));
        assert_eq!(header(1, "Content-Type"), Some("application/json"));
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_part_of_a_path_is_not_sent() {
        let listener = Arc::new(Listener::default());
        let connection = Connection {
            transport: listener.clone(),
            namespace: "n".into(),
            control_token: None,
            worker_token: None,
            retry: RequestRetry::default(),
        };
        let call = connection.get(Plane::Control, &["workflows", ".."]);
        let error = call.send_raw().await.unwrap_err();
        assert_eq!(error.to_string(), "\"..\" cannot be an id or a name");
        assert!(error.is_without_effect() && !error.is_retryable());
        assert!(listener.0.lock().is_empty());
    }
}
