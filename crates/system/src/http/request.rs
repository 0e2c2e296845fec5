//! The request that the input of a task describes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use longhaul_protocol::conductor::Object;
use serde_json::Value;
use url::{Position, Url};

/// The time-outs of a task that names none, in milliseconds.
const TIMEOUT_MS_DEFAULT: u64 = 3000;

/// The longest time-out in milliseconds. Zero means it.
const TIMEOUT_MS_MAX: u64 = 30 * 60 * 1000;

/// The type of a body, and of the answer that is asked for, if the task names none.
const JSON: &str = "application/json";

/// The methods that a task may use.
const METHODS: [&str; 8] = [
    "GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE",
];

/// Headers that describe the connection or the length of the body. The server sets them itself.
const OWN_HEADERS: [HeaderName; 6] = [
    CONNECTION,
    CONTENT_LENGTH,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    method: Method,
    pub(super) url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
    pub(super) connect_within: Duration,
    pub(super) read_within: Duration,
}

impl Request {
    /// Reads the input of a task: its member `http_request`, or the input itself.
    pub(super) fn of(input: &Object) -> Result<Self, String> {
        let input = match input.get("http_request") {
            None | Some(Value::Null) => input,
            Some(Value::Object(request)) => request,
            Some(_) => return Err("http_request must be an object".to_owned()),
        };
        let uri = text(input, "uri").ok_or(
            "Missing HTTP URI.  See documentation for HttpTask for required input parameters",
        )?;
        let method = text(input, "method").ok_or("No HTTP method specified")?;
        let url = parse(uri.trim())?;
        let method = method.to_ascii_uppercase();
        if !METHODS.contains(&method.as_str()) {
            return Err(format!(
                "{method} is not a method of HTTP tasks; use one of {}",
                METHODS.join(", ")
            ));
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| error.to_string())?;
        let body = match input.get("body") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(Bytes::from(text.clone())),
            Some(value) => Some(Bytes::from(value.to_string())),
        };
        let mut headers = HeaderMap::new();
        let accept = list(input.get("accept")).join(", ");
        let accept = if accept.is_empty() { JSON } else { &accept };
        headers.insert(ACCEPT, header_value("accept", accept)?);
        let content_type = text(input, "contentType");
        if content_type.is_some() || body.is_some() {
            let content_type = content_type.unwrap_or(JSON);
            headers.insert(CONTENT_TYPE, header_value("contentType", content_type)?);
        }
        add_headers(&mut headers, input.get("headers"))?;
        Ok(Self {
            method,
            url,
            headers,
            body,
            connect_within: timeout(input, "connectionTimeOut"),
            read_within: timeout(input, "readTimeOut"),
        })
    }

    /// Changes the request into the one that a redirect asks for. The headers of the task are for the server that it named: another
    /// server gets only the type of the body and of the answer.
    pub(super) fn redirect(&mut self, status: StatusCode, location: &str) -> Result<(), String> {
        let target = self.url.join(location);
        let target = target.map_err(|error| format!("The redirect has no valid URI: {error}"))?;
        let url = check(target)?;
        if url.origin() != self.url.origin() {
            let mut kept = HeaderMap::new();
            for name in [ACCEPT, CONTENT_TYPE] {
                if let Some(value) = self.headers.remove(&name) {
                    kept.insert(name, value);
                }
            }
            self.headers = kept;
        }
        self.url = url;
        let is_read = matches!(self.method, Method::GET | Method::HEAD);
        let changes = match status {
            StatusCode::SEE_OTHER => !is_read,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            _ => false,
        };
        if changes {
            self.method = Method::GET;
            self.body = None;
            self.headers.remove(CONTENT_TYPE);
        }
        Ok(())
    }

    /// Returns the message to send.
    pub(super) fn message(&self) -> Result<hyper::Request<Full<Bytes>>, String> {
        let target = &self.url[Position::BeforePath..Position::AfterQuery];
        let mut message = hyper::Request::new(Full::new(self.body.clone().unwrap_or_default()));
        *message.method_mut() = self.method.clone();
        *message.uri_mut() = target
            .parse()
            .map_err(|error| format!("The URI cannot be sent: {error}"))?;
        let headers = message.headers_mut();
        headers.clone_from(&self.headers);
        if !headers.contains_key(HOST) {
            let host = &self.url[Position::BeforeHost..Position::AfterPort];
            headers.insert(HOST, header_value("host", host)?);
        }
        Ok(message)
    }
}

fn parse(uri: &str) -> Result<Url, String> {
    let url = Url::parse(uri).map_err(|error| format!("The URI is not valid: {error}"))?;
    check(url)
}

fn check(url: Url) -> Result<Url, String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "The scheme {} is not supported; use http or https",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "A URI with a user name is not supported; use the header Authorization".to_owned(),
        );
    }
    Ok(url)
}

/// Returns a text that is not blank.
fn text<'a>(input: &'a Object, name: &str) -> Option<&'a str> {
    let text = input.get(name)?.as_str()?;
    (!text.trim().is_empty()).then_some(text)
}

fn timeout(input: &Object, name: &str) -> Duration {
    let given = match input.get(name) {
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    };
    let millis = match given.filter(|millis| *millis >= 0.0) {
        None => TIMEOUT_MS_DEFAULT,
        Some(0.0) => TIMEOUT_MS_MAX,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and the value is not negative"
        )]
        Some(millis) => (millis as u64).clamp(1, TIMEOUT_MS_MAX),
    };
    Duration::from_millis(millis)
}

/// Returns the texts of a value: several of a list, none of null.
fn list(value: Option<&Value>) -> Vec<String> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(values)) => values.iter().flat_map(|value| list(Some(value))).collect(),
        Some(other) => vec![other.to_string()],
    }
}

/// Adds the headers of a task. They replace those that the server would set by itself.
fn add_headers(headers: &mut HeaderMap, given: Option<&Value>) -> Result<(), String> {
    let given = match given {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(given)) => given,
        Some(_) => return Err("headers must be an object".to_owned()),
    };
    for (text, values) in given {
        let name = HeaderName::from_bytes(text.trim().as_bytes())
            .map_err(|_| format!("{text} is not a name of a header"))?;
        if OWN_HEADERS.contains(&name) {
            continue;
        }
        let mut is_first = true;
        for value in list(Some(values)) {
            let value = header_value(text, &value)?;
            if std::mem::take(&mut is_first) {
                headers.insert(&name, value);
            } else {
                headers.append(&name, value);
            }
        }
    }
    Ok(())
}

/// Returns the value of a header. The error does not contain it, because it may be a secret.
fn header_value(name: &str, value: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| format!("The value of {name} has a character that headers cannot have"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(request: Value) -> Result<Request, String> {
        let Value::Object(input) = json!({"http_request": request, "asyncComplete": false}) else {
            unreachable!("it is an object")
        };
        Request::of(&input)
    }

    #[test]
    fn a_request_has_what_the_input_says() {
        let request = read(json!({
            "uri": "http://example.com/a b?q=1#part", "method": "post", "body": {"a": 1},
            "headers": {"X-One": "1", "x-many": ["a", 2, true], "None": null, "Connection": "close", "Content-Length": 9},
            "accept": ["text/plain", "text/html"], "connectionTimeOut": 10, "readTimeOut": "20",
        }))
        .unwrap();
        let message = request.message().unwrap();
        assert_eq!(message.method(), Method::POST);
        assert_eq!(message.uri().to_string(), "/a%20b?q=1");
        let headers: Vec<(String, &str)> = message
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap()))
            .collect();
        for (name, value) in [
            ("accept", "text/plain, text/html"),
            ("content-type", "application/json"),
            ("x-one", "1"),
            ("x-many", "a"),
            ("x-many", "2"),
            ("x-many", "true"),
            ("host", "example.com"),
        ] {
            assert!(headers.contains(&(name.to_owned(), value)), "{headers:?}");
        }
        assert_eq!(headers.len(), 7, "{headers:?}");
        assert_eq!(request.body.as_deref(), Some(&br#"{"a":1}"#[..]));
        assert_eq!(request.connect_within, Duration::from_millis(10));
        assert_eq!(request.read_within, Duration::from_millis(20));
    }

    #[test]
    fn a_text_is_sent_as_it_is() {
        let request = read(json!({
            "uri": "http://example.com", "method": "PUT", "body": "a=1&b=2", "contentType": "application/x-www-form-urlencoded",
        }))
        .unwrap();
        assert_eq!(request.body.as_deref(), Some(&b"a=1&b=2"[..]));
        assert_eq!(
            request.headers[CONTENT_TYPE],
            "application/x-www-form-urlencoded"
        );
        assert_eq!(request.headers[ACCEPT], JSON);
        assert_eq!(request.read_within, Duration::from_millis(3000));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let refused = |request: Value| read(request).unwrap_err();
        assert_eq!(
            refused(json!({"method": "GET"})),
            "Missing HTTP URI.  See documentation for HttpTask for required input parameters"
        );
        assert_eq!(
            refused(json!({"uri": "http://a.example"})),
            "No HTTP method specified"
        );
        let request = |uri: &str| json!({"uri": uri, "method": "GET"});
        assert!(refused(request("file:///etc/passwd")).contains("scheme file"));
        assert!(refused(request("no uri")).contains("not valid"));
        assert!(refused(request("http://user:secret@a.example/")).contains("Authorization"));
        assert!(!refused(request("http://user:secret@a.example/")).contains("secret"));
        let method = json!({"uri": "http://a.example", "method": "CONNECT"});
        assert!(refused(method).contains("CONNECT is not a method"));
        let header =
            json!({"uri": "http://a.example", "method": "GET", "headers": {"X-Key": "se\ncret"}});
        let reason = refused(header);
        assert!(
            reason.contains("X-Key") && !reason.contains("cret"),
            "{reason}"
        );
        assert_eq!(refused(json!([])), "http_request must be an object");
    }

    #[test]
    fn another_server_does_not_get_the_headers_of_the_task() {
        let mut request = read(json!({
            "uri": "https://a.example/x", "method": "POST", "body": "b", "headers": {"X-Key": "k", "Authorization": "t"},
        }))
        .unwrap();
        request
            .redirect(StatusCode::TEMPORARY_REDIRECT, "/y")
            .unwrap();
        assert_eq!(request.url.as_str(), "https://a.example/y");
        assert_eq!(
            (&request.method, request.headers["x-key"].to_str().unwrap()),
            (&Method::POST, "k")
        );
        request
            .redirect(StatusCode::PERMANENT_REDIRECT, "http://a.example/z")
            .unwrap();
        assert_eq!(request.method, Method::POST);
        assert!(request.body.is_some());
        let names: Vec<&str> = request.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept", "content-type"]);
        request.redirect(StatusCode::FOUND, "//b.example/").unwrap();
        assert_eq!(request.method, Method::GET);
        assert!(request.body.is_none());
        assert!(
            request
                .redirect(StatusCode::FOUND, "ftp://b.example/")
                .is_err()
        );
    }
}
