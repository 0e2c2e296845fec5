//! HTTP/1.1 by hand: an attack must be able to send requests that a client library refuses to send.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest wait for a response. A server that needs longer hangs.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// A request as it is written to the socket. Nothing in it needs to be valid.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: None,
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers
            .push((name.to_owned(), value.as_bytes().to_vec()));
        self
    }

    /// A control-plane or worker-plane request, by its path.
    pub(crate) fn versioned(self) -> Self {
        if self.target.starts_with("/api/worker/") {
            self.header("X-Durable-Workflow-Protocol-Version", "1.20")
        } else {
            self.header("X-Durable-Workflow-Control-Plane-Version", "2")
        }
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self.header("Content-Type", "application/json")
    }

    fn bytes(&self, host: SocketAddr) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        let has = |wanted: &str| {
            let mut names = self.headers.iter();
            names.any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        if !has("host") {
            bytes.extend(format!("Host: {host}\r\n").bytes());
        }
        for (name, value) in &self.headers {
            bytes.extend(name.bytes());
            bytes.extend(b": ");
            bytes.extend(value);
            bytes.extend(b"\r\n");
        }
        if let Some(body) = &self.body
            && !has("content-length")
        {
            bytes.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(self.body.iter().flatten());
        bytes
    }
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// Whether the body is compressed, as an attack may have asked for.
    pub(crate) is_compressed: bool,
    is_last: bool,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        let shown = &self.body[..self.body.len().min(2000)];
        String::from_utf8_lossy(shown).into_owned()
    }
}

/// One connection, kept open over several requests and opened again when the server has closed it.
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    ///
    /// The connection ended without a response, or no response arrived in time.
    pub(crate) async fn send(&mut self, request: &Request) -> Result<Answer> {
        match timeout(ANSWER_DEADLINE, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.stream = None;
                Err(Error::new(ErrorKind::TimedOut, "no answer in time"))
            }
        }
    }

    /// Sends a request and hangs up unless the answer comes soon.
    pub(crate) async fn send_and_hang_up(
        &mut self,
        request: &Request,
        after: Duration,
    ) -> Result<Option<Answer>> {
        match timeout(after, self.exchange(request)).await {
            Ok(answer) => answer.map(Some),
            Err(_) => {
                self.stream = None;
                Ok(None)
            }
        }
    }

    async fn exchange(&mut self, request: &Request) -> Result<Answer> {
        let bytes = request.bytes(self.address);
        // The server may have closed a reused connection while it was idle. A new connection must work.
        if let Some(stream) = self.stream.take()
            && let Ok((answer, stream)) = exchange(stream, &bytes, &request.method).await
        {
            self.keep(&answer, stream);
            return Ok(answer);
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (answer, stream) = exchange(BufReader::new(stream), &bytes, &request.method).await?;
        self.keep(&answer, stream);
        Ok(answer)
    }

    fn keep(&mut self, answer: &Answer, stream: BufReader<TcpStream>) {
        self.stream = (!answer.is_last).then_some(stream);
    }

    /// Sends JSON that must be accepted. Returns the body of the response.
    pub(crate) async fn accepted(
        &mut self,
        method: &str,
        target: &str,
        body: Option<&Value>,
    ) -> Value {
        let mut request = Request::new(method, target).versioned();
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = self.send(&request).await.expect("the server answers");
        assert!(
            (200..300).contains(&answer.status),
            "{method} {target} → {}: {}",
            answer.status,
            answer.text()
        );
        answer.json()
    }

    pub(crate) async fn get(&mut self, target: &str) -> Value {
        self.accepted("GET", target, None).await
    }

    pub(crate) async fn post(&mut self, target: &str, body: Value) -> Value {
        self.accepted("POST", target, Some(&body)).await
    }
}

async fn exchange(
    mut stream: BufReader<TcpStream>,
    bytes: &[u8],
    method: &str,
) -> Result<(Answer, BufReader<TcpStream>)> {
    // A refused request may be answered before all of it was read, so a failed write is not the end.
    let written = stream.get_mut().write_all(bytes).await;
    let answer = match read_answer(&mut stream, method).await {
        Ok(answer) => answer,
        Err(error) => return Err(written.err().unwrap_or(error)),
    };
    Ok((answer, stream))
}

async fn read_answer(stream: &mut BufReader<TcpStream>, method: &str) -> Result<Answer> {
    let malformed = |what: &str| Error::new(ErrorKind::InvalidData, what.to_owned());
    let first = read_line(stream).await?;
    let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status: u16 = status.ok_or_else(|| malformed(&format!("not a status line: {first}")))?;
    let (mut length, mut is_chunked) = (None, false);
    let (mut is_last, mut is_compressed) = (false, false);
    loop {
        let line = read_line(stream).await?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| malformed(&line))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse::<usize>().ok(),
            "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
            "content-encoding" => is_compressed = true,
            "connection" => is_last = value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if method == "HEAD" || status == 204 || status == 304 {
        // These have no body, whatever their headers contain.
    } else if is_chunked {
        loop {
            let size = read_line(stream).await?;
            let size = usize::from_str_radix(&size, 16).map_err(|_| malformed(&size))?;
            let start = body.len();
            body.resize(start + size, 0);
            stream.read_exact(&mut body[start..]).await?;
            read_line(stream).await?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = length {
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
    } else {
        is_last = true;
        stream.read_to_end(&mut body).await?;
    }
    Ok(Answer {
        status,
        body,
        is_compressed,
        is_last,
    })
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    while line.last().is_some_and(u8::is_ascii_whitespace) {
        line.pop();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
