//! One request and its answer, over a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::HttpCalls;
use super::answer::Answer;
use super::connect::connect;
use super::request::Request;

/// Bytes that the head of an answer may have. It is stored with the task.
const HEAD_BYTES_MAX: usize = 128 * 1024;

/// Sends a request and reads the whole answer.
pub(super) async fn send(calls: &HttpCalls, request: &Request) -> Result<Answer, String> {
    let stream = connect(calls, &request.url, request.connect_within).await?;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(|error| explained(&error))?;
    let message = request.message()?;
    let exchange = async {
        let answer = within(request.read_within, sender.send_request(message)).await?;
        read(answer, request.read_within, calls.answer_bytes_max).await
    };
    // The connection works only while this future is polled, so a call that is dropped ends at once.
    let exchange = exchange.fuse();
    let connection = connection.fuse();
    futures::pin_mut!(exchange, connection);
    futures::select_biased! {
        answer = exchange => return answer,
        _ended = connection => {}
    }
    // The connection ended with everything that belongs to the answer.
    exchange.await
}

async fn read(
    answer: hyper::Response<Incoming>,
    read_within: Duration,
    bytes_max: usize,
) -> Result<Answer, String> {
    let (head, mut body) = answer.into_parts();
    let mut bytes = Vec::new();
    loop {
        let Ok(frame) = tokio::time::timeout(read_within, body.frame()).await else {
            return Err(silent(read_within));
        };
        match frame {
            None => break,
            Some(Err(error)) => return Err(explained(&error)),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    if bytes.len() + data.len() > bytes_max {
                        return Err(format!(
                            "The answer has more than {bytes_max} bytes (limit: HTTP answer)"
                        ));
                    }
                    bytes.extend_from_slice(data);
                }
            }
        }
    }
    Ok(Answer::new(&head, &bytes))
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = hyper::Result<T>>,
) -> Result<T, String> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result.map_err(|error| explained(&error)),
        Err(_) => Err(silent(limit)),
    }
}

fn silent(limit: Duration) -> String {
    format!("No answer within {} ms", limit.as_millis())
}

/// Returns an error with its causes: the first of them alone says little.
fn explained(error: &hyper::Error) -> String {
    use std::error::Error as _;
    let mut text = format!("The connection failed: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
