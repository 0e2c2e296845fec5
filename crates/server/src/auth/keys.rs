//! Keys of Conductor clients, and the tokens that clients receive for them. A token contains the key's id and an expiry, signed with
//! a key that is derived from the secret. The server stores no token, so tokens outlive a restart, and a changed secret ends the
//! tokens of its key. Roles and namespace are not in the token: they are those of the configured key at the time of a request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use super::{Caller, Role};

/// How long a token is valid. Published clients renew theirs after 45 minutes, and some only when a request is refused.
const TOKEN_SECONDS: i64 = 2 * 3600;

/// Separates the keys that sign tokens from every other use of a secret.
const PURPOSE: &[u8] = b"longhaul conductor token 1";

/// A configured key: its id and secret, and what its owner may do.
#[derive(Clone)]
pub struct ConductorKey {
    id: String,
    secret: String,
    /// Signs the tokens of this key.
    signing: [u8; 32],
    caller: Caller,
}

impl ConductorKey {
    /// Creates a key. With a namespace, its owner acts in that namespace only.
    pub fn new(id: String, secret: String, roles: &[Role], namespace: Option<Namespace>) -> Self {
        let signing = signature(secret.as_bytes(), PURPOSE);
        let caller = Caller::with_key(&id, roles, namespace);
        Self {
            id,
            secret,
            signing,
            caller,
        }
    }

    /// Returns the name of the key. It is no secret.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Shows the id only.
impl std::fmt::Debug for ConductorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConductorKey({:?})", self.id)
    }
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    /// It is missing, malformed, forged, or of a key that is not configured.
    Invalid,
    Expired,
}

/// The signed content of a token.
#[derive(Serialize, Deserialize)]
struct Claim {
    key: String,
    /// Seconds since 1970.
    exp: i64,
}

/// Returns a token for the owner of a key, or `None` if the id or the secret is wrong.
pub(super) fn issue(
    keys: &[ConductorKey],
    id: &str,
    secret: &str,
    now: Timestamp,
) -> Option<String> {
    // Every key is compared, so that the time does not depend on which one matches.
    let mut found = None;
    for key in keys {
        let is_same =
            key.id.as_bytes().ct_eq(id.as_bytes()) & key.secret.as_bytes().ct_eq(secret.as_bytes());
        if bool::from(is_same) {
            found = Some(key);
        }
    }
    let key = found?;
    let claim = Claim {
        key: key.id.clone(),
        exp: seconds(now).saturating_add(TOKEN_SECONDS),
    };
    let claim = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claim).ok()?);
    let signature = URL_SAFE_NO_PAD.encode(signature(&key.signing, claim.as_bytes()));
    Some(format!("{claim}.{signature}"))
}

/// Returns the owner of a token.
pub(super) fn check(
    keys: &[ConductorKey],
    token: &str,
    now: Timestamp,
) -> Result<Caller, TokenRefusal> {
    let (key, claim) = read(keys, token).ok_or(TokenRefusal::Invalid)?;
    if claim.exp <= seconds(now) {
        return Err(TokenRefusal::Expired);
    }
    Ok(key.caller.clone())
}

/// Returns the key and the content of a token with a correct signature.
fn read<'a>(keys: &'a [ConductorKey], token: &str) -> Option<(&'a ConductorKey, Claim)> {
    let (claim, signature) = token.split_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let content: Claim = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claim).ok()?).ok()?;
    let key = keys.iter().find(|key| key.id == content.key)?;
    // The comparison takes the same time whatever the signature is.
    mac(&key.signing, claim.as_bytes())
        .verify_slice(&signature)
        .ok()?;
    Some((key, content))
}

fn mac(key: &[u8], message: &[u8]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.chain_update(message)
}

fn signature(key: &[u8], message: &[u8]) -> [u8; 32] {
    mac(key, message).finalize().into_bytes().into()
}

fn seconds(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn key(id: &str, secret: &str) -> ConductorKey {
        ConductorKey::new(id.to_owned(), secret.to_owned(), &[Role::Worker], None)
    }

    fn later(seconds: i64) -> Timestamp {
        Timestamp::from_micros(NOW.as_micros() + seconds * 1_000_000)
    }

    #[test]
    fn a_token_is_valid_until_its_expiry_and_after_a_restart() {
        let keys = [key("a", "secret of a"), key("b", "secret of b")];
        let token = issue(&keys, "b", "secret of b", NOW).unwrap();
        let restarted = [key("b", "secret of b")];
        for known in [&keys[..], &restarted[..]] {
            assert!(check(known, &token, later(TOKEN_SECONDS - 1)).is_ok());
            let expired = check(known, &token, later(TOKEN_SECONDS)).unwrap_err();
            assert_eq!(expired, TokenRefusal::Expired);
        }
    }

    #[test]
    fn a_wrong_id_or_secret_gives_no_token() {
        let keys = [key("a", "secret of a"), key("b", "secret of b")];
        for (id, secret) in [
            ("a", "secret of b"),
            ("c", "secret of a"),
            ("a", ""),
            ("", ""),
            ("a", "secret of a "),
        ] {
            assert!(issue(&keys, id, secret, NOW).is_none(), "{id} {secret}");
        }
    }

    #[test]
    fn a_token_of_another_secret_or_another_key_is_invalid() {
        let token = issue(&[key("a", "secret of a")], "a", "secret of a", NOW).unwrap();
        for keys in [
            vec![],
            vec![key("a", "changed")],
            vec![key("b", "secret of a")],
        ] {
            let refused = check(&keys, &token, NOW).unwrap_err();
            assert_eq!(refused, TokenRefusal::Invalid, "{keys:?}");
        }
    }

    #[test]
    fn a_changed_token_is_invalid() {
        let keys = [key("a", "secret of a")];
        let token = issue(&keys, "a", "secret of a", NOW).unwrap();
        let (claim, signature) = token.split_once('.').unwrap();
        let longer = Claim {
            key: "a".to_owned(),
            exp: i64::MAX,
        };
        let longer = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&longer).unwrap());
        for forged in [
            String::new(),
            ".".to_owned(),
            claim.to_owned(),
            format!("{claim}."),
            format!("{longer}.{signature}"),
            format!("{claim}.{}", &signature[1..]),
            format!("{token}.{signature}"),
            format!("!{token}"),
            "é.é".to_owned(),
        ] {
            let refused = check(&keys, &forged, NOW).unwrap_err();
            assert_eq!(refused, TokenRefusal::Invalid, "{forged}");
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        assert!(!format!("{:?}", key("a", "hidden")).contains("hidden"));
    }
}
