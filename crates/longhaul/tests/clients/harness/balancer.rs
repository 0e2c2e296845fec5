//! A balancer that sends each request to the next server, whatever connection it comes on. A server that does not accept connections
//! is passed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use tokio::task::JoinHandle;

/// More than any request of a client has.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Headers that belong to one connection.
const OF_CONNECTION: [&str; 4] = ["host", "connection", "transfer-encoding", "content-length"];

/// A running balancer. Dropping it ends it.
pub(crate) struct Balancer {
    url: String,
    serving: JoinHandle<()>,
}

struct Servers {
    urls: Vec<String>,
    next: AtomicUsize,
    client: reqwest::Client,
}

impl Balancer {
    pub(crate) async fn start(urls: Vec<String>) -> Self {
        let servers = Servers {
            urls,
            next: AtomicUsize::new(0),
            // Answers pass through as they are.
            client: reqwest::Client::builder()
                .no_gzip()
                .no_deflate()
                .no_proxy()
                .build()
                .expect("a client"),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new()
            .fallback(forward)
            .with_state(Arc::new(servers));
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves");
        });
        Self {
            url: format!("http://{address}"),
            serving,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn forward(State(servers): State<Arc<Servers>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return failed(StatusCode::BAD_REQUEST);
    };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    for _ in 0..servers.urls.len() {
        let place = servers.next.fetch_add(1, Ordering::Relaxed) % servers.urls.len();
        let url = format!("{}{path}", servers.urls[place]);
        let mut headers = head.headers.clone();
        for name in OF_CONNECTION {
            headers.remove(name);
        }
        let sent = servers
            .client
            .request(head.method.clone(), url)
            .headers(headers)
            .body(body.clone())
            .send()
            .await;
        match sent {
            Ok(answer) => return passed_on(answer).await,
            // Nothing was sent, so another server may get it.
            Err(error) if error.is_connect() => {}
            Err(_) => return failed(StatusCode::BAD_GATEWAY),
        }
    }
    failed(StatusCode::SERVICE_UNAVAILABLE)
}

async fn passed_on(answer: reqwest::Response) -> Response {
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    let Ok(body) = answer.bytes().await else {
        return failed(StatusCode::BAD_GATEWAY);
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn failed(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
