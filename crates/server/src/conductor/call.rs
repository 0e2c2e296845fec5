//! Reads a request of this plane.

use axum::body::Body as HttpBody;
use http::{HeaderMap, Request, StatusCode};
use longhaul_host::api::Rejection;
use longhaul_host::{ConductorRefusal, Error, Host, RequestSlot};
use longhaul_protocol::Reason;
use longhaul_protocol::conductor::{ParseError, WrongMember, member::Member, parse};
use longhaul_protocol::id::Namespace;
use serde_json::{Value, json};

use crate::App;
use crate::auth::{Caller, Role, TokenRefusal};
use crate::error;
use crate::gate::{Refusal, collect_body, namespace_from, require_namespace};
use crate::heavy::{Room, large_body};
use crate::request::path::Path;

/// A request that passed every check.
pub(super) struct Call {
    app: App,
    pub(super) namespace: Namespace,
    path: Path,
    query: Vec<(String, String)>,
    body: bytes::Bytes,
    /// Held until the answer is sent.
    _room: Option<Room>,
    _slot: Option<RequestSlot>,
}

impl Call {
    pub(super) async fn read(
        app: &App,
        request: Request<HttpBody>,
        roles: &[Role],
    ) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let caller = admit(app, &parts.headers, roles)?;
        let query = parts.uri.query().unwrap_or_default();
        let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            // Clients send these for parameters that they do not set.
            .filter(|(_, value)| !value.is_empty() && value != "None")
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let namespace = caller.namespace.unwrap_or_else(|| {
            let parameter = query.iter().find(|(name, _)| name == "namespace");
            namespace_from(&parts.headers, parameter.map(|(_, value)| value.clone()))
        });
        let path = Path::of(&mut parts).await;
        let path = path.ok_or_else(|| no_route(parts.uri.path()))?;
        require_namespace(app, &namespace).await?;
        let slot = app.host().admit_request(&namespace)?;
        let limit = app.options().max_request_bytes;
        let large = large_body(&parts.headers, &body);
        let mut room = app.heavy().room_for(large, limit).await?;
        let body = collect_body(&parts.headers, body, limit).await?;
        if let Some(room) = &mut room {
            // A body of unknown length reserved as much as the largest one needs.
            room.shrink_to(body.len());
        }
        Ok(Self {
            app: app.clone(),
            namespace,
            path,
            query,
            body,
            _room: room,
            _slot: slot,
        })
    }

    pub(super) fn host(&self) -> &Host {
        self.app.host()
    }

    /// Returns the version of the server.
    pub(super) fn server_version(&self) -> &'static str {
        self.app.options().version
    }

    /// Returns a part of the path.
    pub(super) fn segment(&self, name: &str) -> &str {
        self.path.get(name).unwrap_or_default()
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
            .filter(|value| !value.is_empty() && *value != "None")
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

    /// Returns the body as it was sent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// Returns the body as a model.
    pub(super) fn body<T: Member>(&self) -> Result<T, Refusal> {
        parse(&self.body).map_err(|error| match error {
            ParseError::Syntax(message) => bad_request(format!("The body is not JSON: {message}")),
            ParseError::Members(wrong) => invalid(wrong),
        })
    }

    /// Returns the body as a model. A body that is missing or null has no members.
    pub(super) fn body_or_default<T: Member + Default>(&self) -> Result<T, Refusal> {
        match self.body.trim_ascii() {
            b"" | b"null" => Ok(T::default()),
            _ => self.body(),
        }
    }

    /// Returns the models of a body that is one of them or a list.
    pub(super) fn one_or_many<T: Member>(&self) -> Result<Vec<T>, Refusal> {
        let first = self.body.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            Some(b'[') => self.body(),
            _ => Ok(vec![self.body()?]),
        }
    }

    /// Returns the body as an object. A body that is missing or null is empty.
    pub(super) fn object(&self) -> Result<serde_json::Map<String, Value>, Refusal> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(serde_json::Map::new());
        }
        match longhaul_protocol::json::from_caller(&self.body) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(Value::Null) => Ok(serde_json::Map::new()),
            Ok(_) => Err(bad_request("The body must be a JSON object.".to_owned())),
            Err(error) => Err(bad_request(format!("The body is not JSON: {error}"))),
        }
    }
}

/// Checks credential and role. Clients renew their token and repeat a request if `error` is one of the two words for tokens; any
/// other word is a lack of permission.
pub(super) fn admit(app: &App, headers: &HeaderMap, roles: &[Role]) -> Result<Caller, Refusal> {
    let now = app.host().now();
    let caller = app
        .auth()
        .authenticate_conductor(headers, now)
        .map_err(|refused| {
            let (error, message) = match refused {
                TokenRefusal::Invalid => ("INVALID_TOKEN", "A valid token is required."),
                TokenRefusal::Expired => ("EXPIRED_TOKEN", "The token has expired."),
            };
            Refusal::new(StatusCode::UNAUTHORIZED, Reason::Unauthorized, message)
                .with("error", error)
        })?;
    if !caller.has_any(roles) {
        let allowed: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        let message = format!(
            "The credential may not do this; it needs the role {}.",
            allowed.join(" or ")
        );
        return Err(
            Refusal::new(StatusCode::FORBIDDEN, Reason::Forbidden, message)
                .with("error", "NOT_ALLOWED"),
        );
    }
    Ok(caller)
}

/// The refusal of a path that no route has.
pub(super) fn no_route(path: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        Reason::NotFound,
        format!("There is no route {path}."),
    )
}

/// Refuses a request with 400.
pub(super) fn bad_request(message: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Reason::ValidationFailed, message)
}

fn invalid(wrong: Vec<WrongMember>) -> Refusal {
    let errors: Vec<Value> = wrong
        .iter()
        .map(|wrong| violation(&wrong.path, &wrong.message, wrong.invalid_value.as_ref()))
        .collect();
    bad_request("Validation failed, check below errors for detail.".to_owned())
        .with("validationErrors", errors)
}

/// Refuses a body as a whole, in the form of a validation.
pub(super) fn invalid_body(message: &str) -> Refusal {
    invalid(vec![WrongMember {
        path: String::new(),
        message: message.to_owned(),
        invalid_value: None,
    }])
}

fn violation(path: &str, message: &str, invalid_value: Option<&String>) -> Value {
    let mut shown = json!({"path": path, "message": message});
    if let Some(value) = invalid_value {
        shown["invalidValue"] = json!(value);
    }
    shown
}

/// Renders an error of the host, with the violations of a definition.
pub(super) fn refused(error: Error) -> Refusal {
    let refusal = error::refusal(&error);
    match &error {
        Error::Conductor(ConductorRefusal::InvalidDefinition(violations)) => {
            let errors: Vec<Value> = violations
                .iter()
                .map(|wrong| violation(&wrong.path, &wrong.message, wrong.invalid_value.as_ref()))
                .collect();
            refusal.with("validationErrors", errors)
        }
        // A value over a limit is a bad request to these clients.
        Error::Rejected(Rejection::LimitExceeded(_)) => {
            Refusal::new(StatusCode::BAD_REQUEST, refusal.reason, refusal.message)
        }
        _ => refusal,
    }
}
