//! Reads a request of this plane.

use std::collections::BTreeMap;

use axum::body::Body as HttpBody;
use axum::extract::{FromRequestParts, RawPathParams};
use http::{Request, StatusCode};
use longhaul_host::{ConductorRefusal, Error, Host, RequestSlot};
use longhaul_protocol::Reason;
use longhaul_protocol::conductor::{ParseError, WrongMember, member::Member, parse};
use longhaul_protocol::id::Namespace;
use serde_json::{Value, json};

use crate::App;
use crate::auth::Role;
use crate::error;
use crate::gate::{Refusal, collect_body, namespace_of, require_namespace};
use crate::heavy::{Room, large_body};

/// A request that passed every check.
pub(super) struct Call {
    app: App,
    pub(super) namespace: Namespace,
    segments: BTreeMap<String, String>,
    query: Vec<(String, String)>,
    body: bytes::Bytes,
    /// Held until the answer is sent.
    _room: Option<Room>,
    _slot: Option<RequestSlot>,
}

impl Call {
    pub(super) async fn read(
        app: App,
        request: Request<HttpBody>,
        roles: &[Role],
    ) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let caller = app.auth().authenticate(&parts.headers).ok_or_else(|| {
            Refusal::new(
                StatusCode::UNAUTHORIZED,
                Reason::Unauthorized,
                "A valid token is required.",
            )
            .with("error", "INVALID_TOKEN")
        })?;
        if !caller.has_any(roles) {
            let message = "The token may not do this.";
            return Err(
                Refusal::new(StatusCode::FORBIDDEN, Reason::Forbidden, message)
                    .with("error", "NOT_ALLOWED"),
            );
        }
        let namespace = namespace_of(&parts.headers, &parts.uri);
        require_namespace(&app, &namespace).await?;
        let slot = app.host().admit_request(&namespace)?;
        let query = parts.uri.query().unwrap_or_default();
        let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            // Clients send these for parameters that they do not set.
            .filter(|(_, value)| !value.is_empty() && value != "None")
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let params = RawPathParams::from_request_parts(&mut parts, &()).await;
        let segments = params
            .map(|params| {
                params
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect()
            })
            .unwrap_or_default();
        let limit = app.options().max_request_bytes;
        let large = large_body(&parts.headers, &body);
        let room = app.heavy().room_for(large, limit).await?;
        let body = collect_body(&parts.headers, body, limit).await?;
        Ok(Self {
            app,
            namespace,
            segments,
            query,
            body,
            _room: room,
            _slot: slot,
        })
    }

    pub(super) fn host(&self) -> &Host {
        self.app.host()
    }

    /// Returns a part of the path.
    pub(super) fn segment(&self, name: &str) -> &str {
        self.segments.get(name).map_or("", String::as_str)
    }

    /// Returns a parameter of the URL.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns every value of a parameter of the URL; one value may be a list with commas.
    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        self.query
            .iter()
            .filter(|(given, _)| given == name)
            .flat_map(|(_, value)| value.split(','))
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .collect()
    }

    /// Returns a number of the URL.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = text
            .parse::<f64>()
            .ok()
            .filter(|number| number.fract() == 0.0);
        match number {
            Some(number) => Ok(Some(number as i64)),
            None => Err(bad_request(format!(
                "{name} must be a whole number, not {text}"
            ))),
        }
    }

    /// Returns a boolean of the URL.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Some(true)),
            "false" | "0" | "no" | "off" => Ok(Some(false)),
            _ => Err(bad_request(format!(
                "{name} must be true or false, not {text}"
            ))),
        }
    }

    /// Returns the body as a model.
    pub(super) fn body<T: Member>(&self) -> Result<T, Refusal> {
        parse(&self.body).map_err(|error| match error {
            ParseError::Syntax(message) => bad_request(format!("The body is not JSON: {message}")),
            ParseError::Members(wrong) => invalid(wrong),
        })
    }

    /// Returns the body as an object. A body that is missing or null is empty.
    pub(super) fn object(&self) -> Result<serde_json::Map<String, Value>, Refusal> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(serde_json::Map::new());
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(Value::Null) => Ok(serde_json::Map::new()),
            Ok(_) => Err(bad_request("The body must be a JSON object.".to_owned())),
            Err(error) => Err(bad_request(format!("The body is not JSON: {error}"))),
        }
    }
}

/// Refuses a request with 400.
pub(super) fn bad_request(message: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Reason::ValidationFailed, message)
}

fn invalid(wrong: Vec<WrongMember>) -> Refusal {
    let errors: Vec<Value> = wrong
        .iter()
        .map(|wrong| json!({"path": wrong.path, "message": wrong.message, "invalidValue": wrong.invalid_value}))
        .collect();
    bad_request("Validation failed, check below errors for detail.".to_owned())
        .with("validationErrors", errors)
}

/// Renders an error of the host, with the violations of a definition.
pub(super) fn refused(error: Error) -> Refusal {
    let refusal = error::refusal(&error);
    match &error {
        Error::Conductor(ConductorRefusal::InvalidDefinition(violations)) => {
            let errors: Vec<Value> = violations
                .iter()
                .map(|violation| {
                    let mut shown = json!({"path": violation.path, "message": violation.message});
                    if let Some(value) = &violation.invalid_value {
                        shown["invalidValue"] = json!(value);
                    }
                    shown
                })
                .collect();
            refusal.with("validationErrors", errors)
        }
        _ => refusal,
    }
}
