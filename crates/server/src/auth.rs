//! Authentication. Tokens are compared in constant time. Roles have no hierarchy: an administrator's token is refused on worker
//! routes.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use serde_json::json;
use subtle::ConstantTimeEq;

mod keys;

pub use keys::ConductorKey;
pub(crate) use keys::TokenRefusal;

/// The header in which Conductor clients send their token.
const CONDUCTOR_TOKEN: &str = "x-authorization";

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Worker,
    Operator,
    Admin,
}

impl Role {
    /// Returns the role's name in configuration and responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// The credentials that the server accepts.
#[derive(Clone)]
pub struct Auth {
    anonymous: Caller,
    tokens: Vec<Token>,
    keys: Vec<ConductorKey>,
}

#[derive(Clone)]
struct Token {
    secret: String,
    caller: Caller,
}

/// An authenticated caller. Made once per credential and shared by its requests.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) roles: Arc<[Role]>,
    /// Recorded with the caller's commands, as JSON text. It comes from authentication only.
    pub(crate) principal: Arc<str>,
    /// How the caller was authenticated, as JSON text that is stored with its commands.
    pub(crate) credential: Arc<str>,
    /// The only namespace that the caller acts in. `None` if its requests name one.
    pub(crate) namespace: Option<Namespace>,
}

const EVERY_ROLE: &[Role] = &[Role::Worker, Role::Operator, Role::Admin];

impl Auth {
    /// Accepts every caller in every role. For loopback, or if the operator explicitly allows it.
    pub fn open() -> Self {
        Self::with_tokens(None, None, None, None)
    }

    /// One shared token and one per role; each is optional.
    pub fn with_tokens(
        shared: Option<String>,
        worker: Option<String>,
        operator: Option<String>,
        admin: Option<String>,
    ) -> Self {
        let has_roles = worker.is_some() || operator.is_some() || admin.is_some();
        // If there are role tokens, the shared token keeps the administrator's role only.
        let shared_roles = if has_roles {
            &[Role::Admin]
        } else {
            EVERY_ROLE
        };
        let known: [(Option<String>, &[Role], &str); 4] = [
            (worker, &[Role::Worker], "role:worker"),
            (operator, &[Role::Operator], "role:operator"),
            (admin, &[Role::Admin], "role:admin"),
            (shared, shared_roles, "legacy-token"),
        ];
        let token = |(secret, roles, subject): (Option<String>, &[Role], &str)| {
            let caller = Caller::with_token(roles, subject);
            secret.map(|secret| Token { secret, caller })
        };
        Self {
            anonymous: Caller::anonymous(),
            tokens: known.into_iter().filter_map(token).collect(),
            keys: Vec::new(),
        }
    }

    /// Adds the keys of Conductor clients. Their tokens are accepted on that plane only.
    #[must_use]
    pub fn with_keys(self, keys: Vec<ConductorKey>) -> Self {
        Self { keys, ..self }
    }

    /// Returns whether callers need no credential.
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.keys.is_empty()
    }

    /// Returns a token for the owner of a key, or `None` if the id or the secret is wrong.
    pub(crate) fn issue_token(&self, id: &str, secret: &str, now: Timestamp) -> Option<String> {
        keys::issue(&self.keys, id, secret, now)
    }

    /// Returns the caller of a request on the Conductor plane. It sends the token of a key, or a token of the server as on the other
    /// planes.
    pub(crate) fn authenticate_conductor(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Caller, TokenRefusal> {
        let mut given = headers.get_all(CONDUCTOR_TOKEN).iter();
        match (given.next(), given.next()) {
            (Some(token), None) if !self.is_open() => {
                let token = token.to_str().map_err(|_| TokenRefusal::Invalid)?;
                keys::check(&self.keys, token.trim(), now)
            }
            // Two headers are ambiguous.
            (Some(_), Some(_)) if !self.is_open() => Err(TokenRefusal::Invalid),
            _ => self.authenticate(headers).ok_or(TokenRefusal::Invalid),
        }
    }

    /// Returns the caller of a request, or `None` if the credential is missing or wrong.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Option<Caller> {
        if self.is_open() {
            return Some(self.anonymous.clone());
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let given = values.next()?.to_str().ok()?;
        if values.next().is_some() {
            // Two headers are ambiguous.
            return None;
        }
        let (scheme, given) = given.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // Every token is compared, so that the time does not depend on which one matches.
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.secret.as_bytes().ct_eq(given.trim().as_bytes())) {
                found = Some(&token.caller);
            }
        }
        found.cloned()
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self::open()
    }
}

impl Caller {
    fn with_token(roles: &[Role], subject: &str) -> Self {
        Self::authorized(roles, "token", subject)
    }

    fn with_key(id: &str, roles: &[Role], namespace: Option<Namespace>) -> Self {
        Self {
            namespace,
            ..Self::authorized(roles, "key", id)
        }
    }

    fn authorized(roles: &[Role], method: &str, subject: &str) -> Self {
        let names: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        let credential = json!({"status": "authorized", "method": method, "role": names.first(), "roles": names});
        Self {
            roles: roles.into(),
            principal: json!({"type": format!("auth:{method}"), "id": subject})
                .to_string()
                .into(),
            credential: credential.to_string().into(),
            namespace: None,
        }
    }

    /// The caller on a server without credentials. It may act in every role, but none is recorded.
    fn anonymous() -> Self {
        let credential =
            json!({"status": "not_configured", "method": "none", "role": null, "roles": []});
        Self {
            roles: EVERY_ROLE.into(),
            principal: json!({"type": "server", "id": "anonymous"})
                .to_string()
                .into(),
            credential: credential.to_string().into(),
            namespace: None,
        }
    }

    pub(crate) fn has_any(&self, allowed: &[Role]) -> bool {
        self.roles.iter().any(|role| allowed.contains(role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    #[test]
    fn roles_have_no_hierarchy_and_wrong_tokens_have_none() {
        let auth = Auth::with_tokens(None, Some("w".into()), Some("o".into()), Some("a".into()));
        assert!(
            auth.authenticate(&with("w"))
                .unwrap()
                .has_any(&[Role::Worker])
        );
        assert!(
            !auth
                .authenticate(&with("a"))
                .unwrap()
                .has_any(&[Role::Worker])
        );
        assert!(auth.authenticate(&with("x")).is_none());
        assert!(auth.authenticate(&HeaderMap::new()).is_none());
    }

    #[test]
    fn a_single_shared_token_may_do_everything() {
        let auth = Auth::with_tokens(Some("s".into()), None, None, None);
        assert_eq!(auth.authenticate(&with("s")).unwrap().roles.len(), 3);
        let beside_roles = Auth::with_tokens(Some("s".into()), Some("w".into()), None, None);
        assert_eq!(
            *beside_roles.authenticate(&with("s")).unwrap().roles,
            [Role::Admin]
        );
    }
}
