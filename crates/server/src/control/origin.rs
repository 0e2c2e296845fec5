//! The origin of a command, stored with it for audit. It contains only what the server itself saw: the connection, the request
//! line, three headers, and the authentication. It contains no field of a body and no other header.
//!
//! It is built for every start, so it is one small text. What the row and its run contain anyway is added when it is shown.

use longhaul_host::api::{CommandRow, Run};
use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Uri};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::auth::Caller;
use crate::control::workflows::principal;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// Bytes of a header that are stored: enough to recognise a client or a trace.
const HEADER_BYTES_MAX: usize = 255;

/// The parts of a request that its origin is built from. Nothing is copied before it is needed.
pub(super) struct Origin {
    method: Method,
    uri: Uri,
    ip: Option<IpAddr>,
    user_agent: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    correlation_id: Option<HeaderValue>,
}

#[derive(Serialize)]
struct Context<'a> {
    auth: &'a RawValue,
    request: RequestContext<'a>,
}

#[derive(Serialize)]
struct RequestContext<'a> {
    method: &'a str,
    path: &'a str,
    ip: Option<IpAddr>,
    user_agent: Option<&'a str>,
    request_id: Option<&'a str>,
    correlation_id: Option<&'a str>,
    fingerprint: String,
}

impl Origin {
    pub(super) fn of(parts: &Parts) -> Self {
        let header = |name: &HeaderName| parts.headers.get(name).cloned();
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            ip: peer.map(|peer| peer.0.ip()),
            user_agent: header(&USER_AGENT),
            request_id: header(&REQUEST_ID),
            correlation_id: header(&CORRELATION_ID),
        }
    }

    /// Returns the text that is stored.
    pub(super) fn context(&self, caller: &Caller) -> String {
        let user_agent = text(self.user_agent.as_ref());
        // Routes are nested and see only the rest of the path.
        let path = format!("/api{}", self.uri.path());
        let context = Context {
            auth: serde_json::from_str(&caller.credential).unwrap_or(RawValue::NULL),
            request: RequestContext {
                method: self.method.as_str(),
                path: &path,
                ip: self.ip,
                user_agent,
                request_id: text(self.request_id.as_ref()),
                correlation_id: text(self.correlation_id.as_ref()),
                fingerprint: self.fingerprint(&path, user_agent),
            },
        };
        serde_json::to_string(&context).unwrap_or_default()
    }

    /// Returns a hash that is the same for every call of the same route by the same client.
    fn fingerprint(&self, path: &str, user_agent: Option<&str>) -> String {
        let ip = self.ip.map(|ip| ip.to_string());
        let mut digest = Sha256::new();
        for part in [
            self.method.as_str(),
            path,
            ip.as_deref().unwrap_or_default(),
            user_agent.unwrap_or_default(),
        ] {
            digest.update(part.as_bytes());
            digest.update(b"\n");
        }
        format!("sha256:{:x}", digest.finalize())
    }
}

/// Returns a header as shortened text, or `None` if it is empty or not plain text.
fn text(value: Option<&HeaderValue>) -> Option<&str> {
    let text = value?.to_str().ok()?.trim();
    // Plain header text is ASCII, so every byte is a character.
    let end = text.len().min(HEADER_BYTES_MAX);
    text.get(..end).filter(|text| !text.is_empty())
}

/// Renders `commands[].context`; null for a command that was not sent by HTTP.
pub(super) fn shown(row: &CommandRow, run: &Run) -> Value {
    let stored = row.context.as_deref();
    let Some(mut stored) = stored.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return Value::Null;
    };
    let mut auth = stored["auth"].take();
    auth["principal"] = principal(row.principal.as_deref());
    json!({
        "caller": {"type": "server", "label": "Standalone Server"},
        "auth": auth,
        "request": stored["request"].take(),
        "server": {
            "namespace": run.spec.namespace,
            "workflow_id": run.spec.workflow_id,
            "command": row.command_type,
            "metadata": {},
        },
    })
}
