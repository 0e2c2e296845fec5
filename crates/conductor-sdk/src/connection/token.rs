//! Tokens: a key is exchanged for a token, which is renewed before it expires.

use std::time::Duration;

use longhaul_transport::{
    Method, Repeat, Request, RequestError, RequestRetry, Transport, json_body, send,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::configuration::Key;

/// How long a token is used. Servers issue tokens for at least an hour.
const RENEW_AFTER: Duration = Duration::from_secs(45 * 60);

/// The longest wait before a renewal that failed is tried again.
const RENEWAL_WAIT_MAX: Duration = Duration::from_secs(60);

/// The tokens of one key.
#[derive(Debug)]
pub(crate) struct Tokens {
    key: Key,
    /// Held while a token is requested, so that many requests need one.
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// No token is known.
    None,
    Held {
        token: String,
        renew_at: Instant,
        /// How often the renewal failed.
        failures: u32,
    },
    /// The server knows no tokens. It stays so for the life of the client.
    Open,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequest<'a> {
    key_id: &'a str,
    key_secret: &'a str,
}

#[derive(Deserialize)]
struct TokenResponse {
    token: String,
}

impl Tokens {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            state: Mutex::new(State::None),
        }
    }

    /// Returns the token for a request. `None` if the server is open to everyone.
    pub(crate) async fn current(
        &self,
        transport: &dyn Transport,
        prefix: &str,
        retry: &RequestRetry,
        timeout: Duration,
    ) -> Result<Option<String>, RequestError> {
        let mut state = self.state.lock().await;
        match &*state {
            State::Open => return Ok(None),
            State::Held {
                token, renew_at, ..
            } if Instant::now() < *renew_at => {
                return Ok(Some(token.clone()));
            }
            State::None | State::Held { .. } => {}
        }
        let mut request = Request::new(Method::Post, format!("{prefix}/token"));
        request.timeout = timeout;
        let body = TokenRequest {
            key_id: &self.key.id,
            key_secret: &self.key.secret,
        };
        request.body = Some(json_body(&body)?);
        // A token has no effect on the server.
        match send(transport, request, retry, Repeat::Freely).await {
            Ok(body) => {
                let read: TokenResponse = serde_json::from_slice(&body)
                    .map_err(|error| RequestError::Malformed(format!("of /token: {error}")))?;
                *state = State::Held {
                    token: read.token.clone(),
                    renew_at: Instant::now() + RENEW_AFTER,
                    failures: 0,
                };
                Ok(Some(read.token))
            }
            Err(error)
                if error
                    .refusal()
                    .is_some_and(|refusal| refusal.status() == 404) =>
            {
                tracing::info!("the server knows no tokens; requests are sent without one");
                *state = State::Open;
                Ok(None)
            }
            Err(error) => state.keep(error),
        }
    }

    /// Forgets a token that the server refused. Another request may have renewed it already.
    pub(crate) async fn forget(&self, refused: &str) {
        let mut state = self.state.lock().await;
        if matches!(&*state, State::Held { token, .. } if token == refused) {
            *state = State::None;
        }
    }
}

impl State {
    /// A token could not be requested. The one that is held is still valid for some time, so it is used and the renewal is tried again
    /// later. Without one, the request fails.
    fn keep(&mut self, error: RequestError) -> Result<Option<String>, RequestError> {
        let Self::Held {
            token,
            renew_at,
            failures,
        } = self
        else {
            return Err(error);
        };
        *failures = failures.saturating_add(1);
        let seconds = 1_u64.checked_shl(*failures).unwrap_or(u64::MAX);
        let wait = Duration::from_secs(seconds).min(RENEWAL_WAIT_MAX);
        *renew_at = Instant::now() + wait;
        tracing::warn!(
            %error, failures, ?wait,
            "the token was not renewed and is used further: check CONDUCTOR_AUTH_KEY and that the server runs"
        );
        Ok(Some(token.clone()))
    }
}

/// Returns whether a new token may help: the server knows that the old one has expired, or does not know it any more.
pub(crate) fn is_stale(error: &RequestError) -> bool {
    error.refusal().is_some_and(|refusal| {
        refusal.status() == 401
            && matches!(
                refusal.text("error"),
                Some("EXPIRED_TOKEN" | "INVALID_TOKEN")
            )
    })
}
