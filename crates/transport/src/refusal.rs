//! Why a request failed, and whether a retry may help.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longhaul_protocol::Reason;
use serde_json::Value;

use crate::{Response, TransportError};

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There was no response.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server refused the request.
    #[error(transparent)]
    Refused(Refusal),
    /// The server accepted the request, and its response is not valid.
    #[error("the response of the server is not valid: {0}")]
    Malformed(String),
}

impl RequestError {
    /// Returns the refusal, if the server refused the request.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Transport(_) | Self::Malformed(_) => None,
        }
    }

    /// Returns whether the server refused for this reason.
    #[must_use]
    pub fn is(&self, reason: Reason) -> bool {
        self.refusal().is_some_and(|refusal| refusal.is(reason))
    }

    /// Returns whether the same request may succeed later. The server may have processed it already: see
    /// [`Self::is_without_effect`].
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport(TransportError::Invalid(_) | TransportError::Insecure(_))
            | Self::Malformed(_) => false,
            Self::Transport(_) => true,
            Self::Refused(refusal) => refusal.is_retryable(),
        }
    }

    /// Returns whether the request certainly had no effect.
    #[must_use]
    pub fn is_without_effect(&self) -> bool {
        match self {
            Self::Transport(
                TransportError::Unreachable(_)
                | TransportError::Invalid(_)
                | TransportError::Insecure(_),
            ) => true,
            Self::Transport(_) | Self::Malformed(_) => false,
            // A 5xx of a gateway does not show what the server did. A response with a reason comes from the server itself.
            Self::Refused(refusal) => {
                refusal.status < 500 || refusal.status == 503 && refusal.is_typed()
            }
        }
    }

    /// Returns how long the server asks to wait before the next attempt.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal().and_then(Refusal::retry_after)
    }
}

/// A refusal, with the whole response of the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Refusal {
    status: u16,
    body: Arc<Value>,
}

impl Refusal {
    /// Reads a response that is not a success. A body that is not JSON, as from a gateway, is kept as text.
    #[must_use]
    pub fn read(response: &Response) -> Self {
        let body = serde_json::from_slice(&response.body).unwrap_or_else(|_| {
            Value::String(String::from_utf8_lossy(&response.body).into_owned())
        });
        Self {
            status: response.status,
            body: Arc::new(body),
        }
    }

    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the machine-readable reason. Empty if the response is not from a server of this protocol.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.text("reason").unwrap_or_default()
    }

    /// Returns whether this is the reason.
    #[must_use]
    pub fn is(&self, reason: Reason) -> bool {
        self.reason() == reason.as_str()
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        self.text("message")
            .or_else(|| self.text("error"))
            .or_else(|| self.body.as_str())
            .unwrap_or_default()
    }

    /// Returns the whole response.
    #[must_use]
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Returns the validation errors, each with its field.
    pub fn validation_errors(&self) -> impl Iterator<Item = (&str, &str)> {
        let by_field = self
            .body
            .get("validation_errors")
            .and_then(Value::as_object);
        let by_field = by_field.into_iter().flatten();
        let of_fields = by_field.flat_map(|(field, messages)| {
            let messages = messages.as_array().into_iter().flatten();
            messages.filter_map(move |message| Some((field.as_str(), message.as_str()?)))
        });
        // Conductor servers send a list.
        let listed = self.body.get("validationErrors").and_then(Value::as_array);
        let of_list = listed.into_iter().flatten().filter_map(|error| {
            let path = error.get("path").and_then(Value::as_str);
            let message = error.get("message").and_then(Value::as_str)?;
            Some((path.unwrap_or_default(), message))
        });
        of_fields.chain(of_list)
    }

    /// Returns how long the server asks to wait before the next attempt.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.body.get("retry_after_seconds")?.as_f64()?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Returns whether the same request may succeed later. The field `retryable` of the response decides, then its status.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let retryable = self.body.get("retryable").and_then(Value::as_bool);
        retryable.unwrap_or_else(|| match self.status {
            408 | 429 | 503 => true,
            500.. => !self.is_typed(),
            _ => false,
        })
    }

    /// Returns a member of the response that is text.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<&str> {
        self.body.get(field).and_then(Value::as_str)
    }

    fn is_typed(&self) -> bool {
        !self.reason().is_empty()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason(), self.message()) {
            ("", "") => write!(f, "the server responded with status {}", self.status),
            ("", message) => {
                write!(
                    f,
                    "the server responded with status {}: {message}",
                    self.status
                )
            }
            (reason, "") => write!(f, "refused ({reason})"),
            (reason, message) => write!(f, "{message} ({reason})"),
        }?;
        for (field, message) in self.validation_errors() {
            write!(f, "; {field}: {message}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusal({} {})", self.status, self.body)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> RequestError {
        RequestError::Refused(Refusal::read(&Response {
            status,
            body: body.to_owned().into(),
        }))
    }

    #[test]
    fn the_response_decides_whether_to_retry() {
        // Status, body, may succeed later, certainly had no effect.
        for (status, body, retryable, without_effect) in [
            (409, r#"{"reason":"run_not_active"}"#, false, true),
            (
                429,
                r#"{"reason":"namespace_request_rate_exhausted"}"#,
                true,
                true,
            ),
            (
                503,
                r#"{"reason":"backend_lock_pressure","retryable":true}"#,
                true,
                true,
            ),
            (503, "", true, false),
            (502, "<html>bad gateway</html>", true, false),
            (
                500,
                r#"{"reason":"internal_error","retryable":false}"#,
                false,
                false,
            ),
            (504, r#"{"reason":"query_worker_timeout"}"#, false, false),
            (
                504,
                r#"{"reason":"update_validation_task_not_claimed","retryable":true}"#,
                true,
                false,
            ),
            (504, "", true, false),
            (408, "", true, true),
        ] {
            let error = refusal(status, body);
            assert_eq!(error.is_retryable(), retryable, "{status} {body}");
            assert_eq!(error.is_without_effect(), without_effect, "{status} {body}");
        }
    }

    #[test]
    fn the_whole_response_is_kept() {
        let error = refusal(
            422,
            r#"{"message":"That does not fit.","reason":"validation_failed","retry_after_seconds":2,
                "validation_errors":{"priority":["must be 0 to 9","must be an integer"]}}"#,
        );
        assert_eq!(
            error.to_string(),
            "That does not fit. (validation_failed); priority: must be 0 to 9; priority: must be an integer"
        );
        assert!(error.is(Reason::ValidationFailed));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(2)));
        let refusal = error.refusal().unwrap();
        assert_eq!(
            (refusal.status(), refusal.reason()),
            (422, "validation_failed")
        );
        assert_eq!(refusal.body()["retry_after_seconds"], 2);
    }

    #[test]
    fn validation_errors_of_conductor_servers_are_shown() {
        let error = refusal(
            400,
            r#"{"status":400,"message":"Validation failed.","validationErrors":[
                {"path":"tasks[0].name","message":"must not be empty","invalidValue":""}]}"#,
        );
        assert_eq!(
            error.to_string(),
            "the server responded with status 400: Validation failed.; tasks[0].name: must not be empty"
        );
    }

    #[test]
    fn responses_of_gateways_are_shown_unchanged() {
        let refusal = refusal(502, "upstream gone");
        assert_eq!(
            refusal.to_string(),
            "the server responded with status 502: upstream gone"
        );
    }
}
