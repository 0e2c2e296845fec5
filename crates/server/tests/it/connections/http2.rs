//! HTTP/2 in clear, with prior knowledge: requests side by side, and the bounds on each of them and on the connection.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use longhaul_server::connections::Limits;

use super::{Http2, LARGE, SHORT, Serving, http1_get, short, soon, text};
use crate::support::Server;

#[tokio::test]
async fn one_port_has_http2_in_clear_and_http1() {
    let server = Serving::start(Limits::default(), None).await;
    let connection = Http2::over(server.connect().await).await;
    assert_eq!(text(connection.get("/version").await).await, "HTTP/2.0");
    let plain = http1_get(server.connect().await, "/version").await;
    assert_eq!(text(plain).await, "HTTP/1.1");
}

#[tokio::test]
async fn requests_are_served_side_by_side_on_one_connection() {
    let server = Serving::start(Limits::default(), None).await;
    let connection = Http2::over(server.connect().await).await;
    let waiting = join_all((0..50).map(|_| connection.get("/wait")));
    let release = async {
        server.arrived(50).await;
        assert_eq!(text(connection.get("/version").await).await, "HTTP/2.0");
        server.permits.add_permits(50);
    };
    let (responses, ()) = futures::join!(waiting, release);
    for response in responses {
        assert_eq!(text(response).await, "done");
    }
}

#[tokio::test]
async fn a_connection_has_a_largest_number_of_requests() {
    let server = Serving::start(Limits::default(), None).await;
    let connection = Http2::over(server.connect().await).await;
    let waiting = join_all((0..300).map(|_| connection.get("/wait")));
    let release = async {
        server.arrived(256).await;
        server.permits.add_permits(300);
        server.arrived(44).await;
    };
    let (responses, ()) = futures::join!(waiting, release);
    assert_eq!(responses.len(), 300);
    assert_eq!(server.waiting_most.load(Ordering::Relaxed), 256);
}

#[tokio::test]
async fn a_waiting_request_outlives_the_time_outs_and_an_idle_connection_does_not() {
    let server = Serving::start(short(), None).await;
    let connection = Http2::over(server.connect().await).await;
    let waiting = tokio::spawn({
        let requests = connection.requests.clone();
        let request = Request::get("http://localhost/wait");
        let request = request.body(Full::default()).unwrap();
        let mut requests = requests;
        async move { requests.send_request(request).await }
    });
    server.arrived(1).await;
    // Its pings do not make an idle connection busy. Its end shows that the time-outs have passed for the other one too.
    let mut pinging = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    pinging
        .timer(TokioTimer::new())
        .keep_alive_interval(SHORT / 10)
        .keep_alive_while_idle(true);
    let idle = Http2::built(&pinging, server.connect().await).await;
    assert_eq!(text(idle.get("/version").await).await, "HTTP/2.0");
    idle.closed().await;
    server.permits.add_permits(1);
    let response = soon(waiting).await.unwrap().unwrap();
    assert_eq!(text(response).await, "done");
    connection.closed().await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let server = Serving::start(short(), None).await;
    Http2::over(server.connect().await).await.closed().await;
}

#[tokio::test]
async fn a_body_that_stops_is_refused_and_other_requests_go_on() {
    let app = Server::open().await;
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let server = Serving::with_router(app.router.clone(), limits, None).await;
    let stream = TokioIo::new(server.connect().await);
    let (requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
    tokio::spawn(connection);
    let other = Request::get("http://localhost/wait");
    let other = other.body(half("")).unwrap();
    let waiting = tokio::spawn(requests.clone().send_request(other));
    server.arrived(1).await;
    let request = Request::post("http://localhost/api/workflows")
        .header("x-durable-workflow-control-plane-version", "2")
        .header("content-type", "application/json")
        .body(half("{\"workflow_type\""))
        .unwrap();
    let refused = soon(requests.clone().send_request(request)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
    let body = soon(refused.into_body().collect())
        .await
        .unwrap()
        .to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["reason"], "request_timeout");
    server.permits.add_permits(1);
    let response = soon(waiting).await.unwrap().unwrap();
    assert_eq!(text(response).await, "done");
}

type Half =
    StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>>;

/// A body that begins and never ends.
fn half(beginning: &'static str) -> Half {
    use futures::StreamExt as _;
    let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(beginning.as_bytes())))]);
    StreamBody::new(first.chain(futures::stream::pending()).boxed())
}

#[tokio::test]
async fn a_response_is_whole_and_one_that_is_not_read_closes_the_connection() {
    let limits = Limits {
        write_timeout: SHORT,
        ..Limits::default()
    };
    let server = Serving::start(limits, None).await;
    let connection = Http2::over(server.connect().await).await;
    let response = connection.get("/large").await;
    assert_eq!(response.headers()["content-length"], LARGE.to_string());
    let body = soon(response.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes().len(), LARGE);
    // The client reads the socket, so only the window of the stream is full. Each 64 KiB that it takes gain it a second.
    let mut narrow = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    narrow.initial_stream_window_size(16 * 1024);
    let connection = Http2::built(&narrow, server.connect().await).await;
    let unread = connection.get("/large").await;
    assert_eq!(text(connection.get("/version").await).await, "HTTP/2.0");
    connection.closed().await;
    assert!(unread.into_body().collect().await.is_err());
}

#[tokio::test]
async fn headers_are_bounded() {
    let server = Serving::start(Limits::default(), None).await;
    let connection = Http2::over(server.connect().await).await;
    let with_header = |bytes: usize| {
        Request::get("http://localhost/version")
            .header("x-long", "x".repeat(bytes))
            .body(Full::default())
            .unwrap()
    };
    let mut requests = connection.requests.clone();
    let response = soon(requests.send_request(with_header(100_000))).await;
    assert_eq!(response.unwrap().status(), StatusCode::OK);
    let refused = soon(requests.send_request(with_header(200_000))).await;
    let status = refused.unwrap().status();
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

/// A request whose client gave it up ends, and the connection is not busy because of it.
#[tokio::test]
async fn abandoned_requests_are_forgotten() {
    let limits = Limits {
        idle_timeout: SHORT,
        ..Limits::default()
    };
    let server = Serving::start(limits, None).await;
    let connection = Http2::over(server.connect().await).await;
    for _ in 0..20 {
        let request = Request::get("http://localhost/wait");
        let request = request.body(Full::default()).unwrap();
        let abandoned = tokio::spawn(connection.requests.clone().send_request(request));
        server.arrived(1).await;
        abandoned.abort();
    }
    // No request is open, so the connection is idle.
    connection.closed().await;
}

#[tokio::test]
async fn a_stop_answers_what_has_begun_and_closes_what_is_idle() {
    let server = Serving::start(Limits::default(), None).await;
    let idle = Http2::over(server.connect().await).await;
    assert_eq!(text(idle.get("/version").await).await, "HTTP/2.0");
    let _unused = server.connect().await;
    let connection = Http2::over(server.connect().await).await;
    let waiting = async {
        let waiting = connection.get("/wait");
        let large = connection.get("/large");
        let (waiting, large) = futures::join!(waiting, large);
        assert_eq!(text(waiting).await, "done");
        assert_eq!(text(large).await.len(), LARGE);
    };
    let Serving {
        permits, arrivals, ..
    } = &server;
    let (permits, arrivals) = (permits.clone(), arrivals.clone());
    let stopping = async {
        soon(arrivals.acquire()).await.unwrap().forget();
        server.stop.send(()).unwrap();
        idle.closed().await;
        permits.add_permits(1);
        soon(server.serving).await.unwrap();
    };
    futures::join!(waiting, stopping);
}
