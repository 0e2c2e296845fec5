//! A small HTTP server whose answers are bytes, so that a test can also send what no library sends.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Received {
    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// What the server does with a request.
pub(super) enum Does {
    /// Sends these bytes and closes the connection.
    Sends(Vec<u8>),
    /// Sends these bytes, then more of the same chunk until the client goes away.
    SendsWithoutEnd(Vec<u8>),
    /// Sends these bytes and keeps the connection open.
    SendsAndWaits(Vec<u8>),
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) received: Arc<Mutex<Vec<Received>>>,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    pub(super) async fn start(answer: impl Fn(&Received) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        let answer = Arc::new(answer);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                tokio::spawn(serve(stream, log, answer));
            }
        });
        Self {
            address,
            received,
            accepting,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn only(&self) -> Received {
        let received = self.received.lock();
        assert_eq!(received.len(), 1, "{received:?}");
        received[0].clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<Received>>>,
    answer: Arc<impl Fn(&Received) -> Does>,
) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    log.lock().push(request.clone());
    // A client that goes away ends the answer.
    match answer(&request) {
        Does::Sends(bytes) => drop(stream.write_all(&bytes).await),
        Does::SendsWithoutEnd(bytes) => while stream.write_all(&bytes).await.is_ok() {},
        Does::SendsAndWaits(bytes) => {
            if stream.write_all(&bytes).await.is_ok() {
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Received {
        method,
        target,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// Returns an answer with a status line, headers and a body.
pub(super) fn answer(status: &str, headers: &[&str], body: &str) -> Does {
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.push_str(body);
    Does::Sends(text.into_bytes())
}
