//! What a task shows of an answer.

use http::response::Parts;
use http::{HeaderMap, StatusCode, header};
use hyper::ext::ReasonPhrase;
use longhaul_protocol::conductor::Object;
use serde_json::{Map, Value, json};

/// An answer, as the output of the task shows it.
#[derive(Debug)]
pub(super) struct Answer {
    status: Option<StatusCode>,
    reason_phrase: String,
    headers: Object,
    body: Value,
    location: Option<String>,
}

impl Answer {
    pub(super) fn new(head: &Parts, body: &[u8]) -> Self {
        let given = head.extensions.get::<ReasonPhrase>();
        let given = given.map(|phrase| String::from_utf8_lossy(phrase.as_bytes()).into_owned());
        let known = || {
            head.status
                .canonical_reason()
                .unwrap_or_default()
                .to_owned()
        };
        let location = head.headers.get(header::LOCATION);
        Self {
            status: Some(head.status),
            reason_phrase: given.unwrap_or_else(known),
            headers: headers(&head.headers),
            body: value(&text(&head.headers, body)),
            location: location
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
        }
    }

    /// Returns what a task shows if there was no answer.
    pub(super) fn none(reason: &str) -> Self {
        Self {
            status: None,
            reason_phrase: reason.to_owned(),
            headers: Object::new(),
            body: Value::Null,
            location: None,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status.unwrap_or_default()
    }

    pub(super) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.is_success())
    }

    /// Returns where the answer sends the caller, if it does.
    pub(super) fn redirect(&self) -> Option<&str> {
        let redirects = [301, 302, 303, 307, 308];
        let is_redirect = redirects.contains(&self.status().as_u16());
        self.location.as_deref().filter(|_| is_redirect)
    }

    /// Returns the reason of a failure: the body, or the status line.
    pub(super) fn failure(&self) -> String {
        match &self.body {
            Value::Null => format!("{} {}", self.status().as_u16(), self.reason_phrase),
            Value::String(text) => text.clone(),
            body => body.to_string(),
        }
    }

    pub(super) fn into_output(self) -> Object {
        let response = json!({
            "statusCode": self.status.map_or(0, |status| status.as_u16()),
            "reasonPhrase": self.reason_phrase,
            "headers": self.headers,
            "body": self.body,
        });
        Map::from_iter([("response".to_owned(), response)])
    }
}

/// Returns the values of each header. Names have capitals after hyphens, however they were sent, so that expressions find them.
fn headers(map: &HeaderMap) -> Object {
    let mut headers = Object::new();
    for name in map.keys() {
        let values = map.get_all(name).iter();
        let values: Vec<Value> = values
            .map(|value| {
                String::from_utf8_lossy(value.as_bytes())
                    .into_owned()
                    .into()
            })
            .collect();
        headers.insert(capitalised(name.as_str()), Value::Array(values));
    }
    headers
}

fn capitalised(name: &str) -> String {
    let mut starts = true;
    name.chars()
        .map(|letter| {
            let shown = if starts {
                letter.to_ascii_uppercase()
            } else {
                letter
            };
            starts = letter == '-';
            shown
        })
        .collect()
}

/// Returns the text of a body. It is UTF-8, unless the answer says Latin-1.
fn text(headers: &HeaderMap, body: &[u8]) -> String {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_ascii_lowercase();
    if content_type.contains("charset=iso-8859-1") || content_type.contains("charset=latin1") {
        return body.iter().map(|byte| char::from(*byte)).collect();
    }
    String::from_utf8_lossy(body).into_owned()
}

/// Returns a JSON object, list or number as such, and everything else as text. The text of a JSON string is shown without its quotes.
fn value(text: &str) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    match serde_json::from_str(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_) | Value::Number(_) | Value::String(_))) => {
            value
        }
        Ok(Value::Null | Value::Bool(_)) | Err(_) => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_or_text() {
        assert_eq!(value(""), Value::Null);
        assert_eq!(value(r#"{"a": [1]}"#), json!({"a": [1]}));
        assert_eq!(value("17"), json!(17));
        assert_eq!(value("1.5"), json!(1.5));
        assert_eq!(value(r#""words""#), json!("words"));
        assert_eq!(value("plain words"), json!("plain words"));
        assert_eq!(value("true"), json!("true"));
        assert_eq!(value("{broken"), json!("{broken"));
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(value(&deep), json!(deep));
    }

    #[test]
    fn header_names_have_capitals() {
        assert_eq!(capitalised("content-type"), "Content-Type");
        assert_eq!(capitalised("etag"), "Etag");
        assert_eq!(capitalised("x-request-id"), "X-Request-Id");
    }
}
