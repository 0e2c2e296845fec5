//! The checks every request passes, in one order on both planes: credential, role, version, namespace, body. The order decides
//! which error a client sees. Credentials come first, so that a caller without a valid one learns nothing else.
//!
//! A refusal here is a [`Refusal`]; each plane renders it in its own envelope.

use axum::body::Body as HttpBody;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use longhaul_host::{DEFAULT_NAMESPACE, RequestSlot};
use longhaul_protocol::Reason;
use longhaul_protocol::id::Namespace;
use longhaul_protocol::version::VersionRefusal;
use serde_json::{Map, Value, json};

use crate::App;
use crate::auth::{Caller, Role};
use crate::connections::HalfSent;
use crate::heavy::large_body;
use crate::request::body::Body;
use crate::request::headers;

/// A request that passed every gate.
pub(crate) struct Passed {
    pub(crate) namespace: Namespace,
    pub(crate) caller: Caller,
    pub(crate) body: Body,
    /// Held until the response is sent, if the namespace limits its requests.
    pub(crate) slot: Option<RequestSlot>,
}

/// A refusal, not yet in an envelope.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) extra: Map<String, Value>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
            extra: Map::new(),
        }
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(key.to_owned(), value.into());
        self
    }

    /// A 422 that lists the wrong fields.
    pub(crate) fn invalid(errors: &longhaul_protocol::workflow_command::FieldErrors) -> Self {
        let first = errors
            .iter()
            .next()
            .map_or_else(String::new, |(field, messages)| {
                format!("{field}: {}", messages.join(" "))
            });
        let errors = json!(errors);
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            Reason::ValidationFailed,
            format!("The request is not valid. {first}"),
        )
        .with("errors", errors.clone())
        .with("validation_errors", errors)
    }
}

/// Checks the version header of a plane.
pub(crate) type VersionCheck = fn(&HeaderMap) -> Result<(), VersionRefusal>;

/// What a route requires of its callers.
#[derive(Clone, Copy)]
pub(crate) struct Gate {
    pub(crate) roles: &'static [Role],
    pub(crate) version: VersionCheck,
    /// Whether the request's namespace must exist.
    pub(crate) namespaced: bool,
    /// Whether the request counts against its namespace's request limits.
    pub(crate) metered: bool,
}

impl Gate {
    /// Passes a request through every check.
    pub(crate) async fn pass(
        self,
        app: &App,
        request: Request<HttpBody>,
    ) -> Result<Passed, Refusal> {
        let (parts, body) = request.into_parts();
        let caller = self.admit(app, &parts.headers)?;
        (self.version)(&parts.headers).map_err(version_refused)?;
        let namespace = namespace_of(&parts.headers, &parts.uri);
        if self.namespaced {
            require_namespace(app, &namespace).await?;
        }
        let slot = if self.metered {
            app.host().admit_request(&namespace)?
        } else {
            None
        };
        let limit = app.options().max_request_bytes;
        let large = large_body(&parts.headers, &body);
        let room = app.heavy().room_for(large, limit).await?;
        let bytes = read_body(&parts.method, &parts.headers, body, limit).await?;
        let body = Body::parse(bytes)?.holding(room);
        Ok(Passed {
            namespace,
            caller,
            body,
            slot,
        })
    }

    /// Checks credential and role.
    pub(crate) fn admit(self, app: &App, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let caller = app.auth().authenticate(headers).ok_or_else(|| {
            Refusal::new(
                StatusCode::UNAUTHORIZED,
                Reason::Unauthorized,
                "A valid bearer token is required in the Authorization header.",
            )
        })?;
        if !caller.has_any(self.roles) {
            let role = caller.roles.first().map_or("none", |role| role.as_str());
            let allowed: Vec<&str> = self.roles.iter().map(|role| role.as_str()).collect();
            let message = format!(
                "The {role} role may not do this; it needs {}.",
                allowed.join(" or ")
            );
            return Err(
                Refusal::new(StatusCode::FORBIDDEN, Reason::Forbidden, message)
                    .with("role", role)
                    .with("allowed_roles", allowed),
            );
        }
        Ok(caller)
    }
}

fn version_refused(refusal: VersionRefusal) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, refusal.reason, refusal.message)
        .with("supported_version", refusal.supported_version)
        .with("requested_version", refusal.requested_version)
        .with("remediation", refusal.remediation)
}

/// Returns the namespace of the header, else of the URL parameter, else the default one. Names are compared without case.
pub(crate) fn namespace_of(headers: &HeaderMap, uri: &Uri) -> Namespace {
    let parameter = uri.query().and_then(|query| {
        form_urlencoded::parse(query.as_bytes())
            .find(|(key, _)| key == "namespace")
            .map(|(_, value)| value.into_owned())
    });
    namespace_from(headers, parameter)
}

/// Returns the namespace of the header, else the parameter, else the default one.
pub(crate) fn namespace_from(headers: &HeaderMap, parameter: Option<String>) -> Namespace {
    let given = |name: &str| {
        let name = name.trim();
        (!name.is_empty()).then(|| name.to_owned())
    };
    let name = headers::text(headers, "x-namespace")
        .and_then(|name| given(&name))
        .or_else(|| given(&parameter?))
        .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    // Names are ASCII. Other letters keep their case, because the lower case of some of them is ASCII.
    Namespace::from(name.to_ascii_lowercase())
}

pub(crate) async fn require_namespace(app: &App, namespace: &Namespace) -> Result<(), Refusal> {
    Ok(app.host().namespaces().require(namespace).await?)
}

fn half_sent_refused(half_sent: HalfSent) -> Refusal {
    match half_sent {
        HalfSent::TimedOut => Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            Reason::RequestTimeout,
            "The rest of the request body did not arrive in time.",
        )
        .with("retryable", true),
        HalfSent::Stopping => longhaul_host::Error::Stopping.into(),
    }
}

/// Reads a body of any media type.
pub(crate) async fn collect_body(
    headers: &HeaderMap,
    body: HttpBody,
    limit: usize,
) -> Result<Bytes, Refusal> {
    let too_large = || {
        Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            Reason::PayloadTooLarge,
            format!("A request body may have at most {limit} bytes."),
        )
        .with("limit", limit)
    };
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let collected = Limited::new(body, limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            too_large()
        } else if let Some(half_sent) = HalfSent::find(&*error) {
            half_sent_refused(half_sent)
        } else {
            Refusal::new(
                StatusCode::BAD_REQUEST,
                Reason::MalformedJson,
                "The request body could not be read.",
            )
        }
    })?;
    Ok(collected.to_bytes())
}

async fn read_body(
    method: &Method,
    headers: &HeaderMap,
    body: HttpBody,
    limit: usize,
) -> Result<Bytes, Refusal> {
    let bytes = collect_body(headers, body, limit).await?;
    if bytes.is_empty() || method == Method::GET {
        return Ok(Bytes::new());
    }
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = media_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if essence != "application/json"
        && !(essence.starts_with("application/") && essence.ends_with("+json"))
    {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Reason::UnsupportedMediaType,
            "Send the body as application/json.",
        )
        .with(
            "accepted_content_types",
            json!(["application/json", "application/*+json"]),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_namespace_that_cannot_be_read_is_not_the_default_one() {
        let named = |header: Option<&[u8]>, uri: &'static str| {
            let value = header.map(|bytes| HeaderValue::from_bytes(bytes).unwrap());
            let headers = value.map(|value| ("x-namespace".parse().unwrap(), value));
            namespace_of(&HeaderMap::from_iter(headers), &Uri::from_static(uri))
        };
        for (header, uri, name) in [
            (None, "/", "default"),
            (Some(&b" "[..]), "/", "default"),
            (Some(b" Orders "), "/?namespace=b", "orders"),
            (None, "/?namespace=B", "b"),
            (Some(b"\xe4"), "/", "\u{fffd}"),
            (Some("\u{e4}".as_bytes()), "/", "\u{e4}"),
            // The Kelvin sign, whose lower case is a plain k.
            (Some("\u{212a}".as_bytes()), "/", "\u{212a}"),
            (None, "/?namespace=%ff", "\u{fffd}"),
        ] {
            assert_eq!(named(header, uri).as_str(), name, "{header:?} {uri}");
        }
    }
}
