//! The keys of Conductor clients: `[[conductor_keys]]` in the file, or a JSON list. No message contains a secret, so what is wrong is
//! described by position and name.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use longhaul_protocol::id::Namespace;
use longhaul_server::auth::{ConductorKey, Role};
use serde_json::{Map, Value};

/// A token is signed with its key's secret, so a short secret could be found from a token by trying.
const SECRET_BYTES_MIN: usize = 16;

/// Bytes of an id, a secret or a namespace.
const TEXT_BYTES_MAX: usize = 255;

/// Every key is compared for every token that is issued.
const KEYS_MAX: usize = 1000;

const MEMBERS: [&str; 4] = ["id", "secret", "roles", "namespace"];

/// Reads the keys of the flag or the environment, else those of the file.
pub(super) fn read(json: Option<&str>, file: Option<toml::Value>) -> Result<Vec<ConductorKey>> {
    let (source, keys) = match (json.filter(|json| !json.trim().is_empty()), file) {
        (Some(json), _) => {
            let keys = serde_json::from_str(json);
            // The parser's message could repeat a secret.
            let keys = keys.map_err(|error: serde_json::Error| {
                anyhow::anyhow!(
                    "--conductor-keys is not JSON: see line {}, column {}",
                    error.line(),
                    error.column()
                )
            })?;
            ("--conductor-keys", keys)
        }
        (None, Some(file)) => {
            let keys = serde_json::to_value(file).ok();
            ("conductor_keys", keys.unwrap_or_default())
        }
        (None, None) => return Ok(Vec::new()),
    };
    let Value::Array(keys) = keys else {
        bail!("{source} must be a list of keys, each with id, secret and roles");
    };
    if keys.len() > KEYS_MAX {
        bail!(
            "{source} has {} keys; at most {KEYS_MAX} are possible",
            keys.len()
        );
    }
    let mut ids = BTreeSet::new();
    let mut read = Vec::new();
    for (index, key) in keys.into_iter().enumerate() {
        let at = format!("{source}[{index}]");
        let key = read_key(&key).with_context(|| format!("{at} is not valid"))?;
        if !ids.insert(key.id().to_owned()) {
            bail!("{at} has the id `{}` of an earlier key", key.id());
        }
        read.push(key);
    }
    Ok(read)
}

fn read_key(key: &Value) -> Result<ConductorKey> {
    let Value::Object(members) = key else {
        bail!("it must have the members id, secret and roles");
    };
    if let Some(unknown) = members
        .keys()
        .find(|name| !MEMBERS.contains(&name.as_str()))
    {
        bail!(
            "`{unknown}` is not a member of a key; these are: {}",
            MEMBERS.join(", ")
        );
    }
    let id = text(members, "id")?.context("id is missing")?;
    let secret = text(members, "secret")?.context("secret is missing")?;
    if secret.len() < SECRET_BYTES_MIN {
        bail!("secret must have at least {SECRET_BYTES_MIN} characters");
    }
    // Names of namespaces are compared without case.
    let namespace = text(members, "namespace")?.map(|name| name.to_ascii_lowercase());
    let roles = roles(members.get("roles"))?;
    Ok(ConductorKey::new(
        id,
        secret,
        &roles,
        namespace.map(Namespace::from),
    ))
}

fn text(members: &Map<String, Value>, name: &str) -> Result<Option<String>> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text))
            if (1..=TEXT_BYTES_MAX).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Ok(Some(text.clone()))
        }
        Some(_) => bail!(
            "{name} must be a text of 1 to {TEXT_BYTES_MAX} printable ASCII characters without spaces"
        ),
    }
}

fn roles(given: Option<&Value>) -> Result<Vec<Role>> {
    const WANTED: &str = "roles must be a list with one or more of worker, operator, admin";
    let names = given.and_then(Value::as_array).context(WANTED)?;
    if names.is_empty() {
        bail!(WANTED);
    }
    let role = |name: &Value| {
        [Role::Worker, Role::Operator, Role::Admin]
            .into_iter()
            .find(|role| name == role.as_str())
    };
    let roles: Option<Vec<Role>> = names.iter().map(role).collect();
    roles.context(WANTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a-secret-of-the-test";

    fn refused(json: &str) -> String {
        let error = read(Some(json), None).unwrap_err();
        let message = format!("{error:#}");
        assert!(!message.contains(SECRET), "{message}");
        message
    }

    #[test]
    fn keys_come_from_json_or_from_the_file() {
        let json = format!(
            r#"[{{"id": "a", "secret": "{SECRET}", "roles": ["worker"]}},
                {{"id": "b", "secret": "{SECRET}", "roles": ["worker", "operator"], "namespace": "Orders"}}]"#
        );
        let file = format!("[[keys]]\nid = \"c\"\nsecret = \"{SECRET}\"\nroles = [\"admin\"]\n");
        let file = toml::from_str::<toml::Table>(&file).unwrap().remove("keys");
        let ids = |keys: Vec<ConductorKey>| -> Vec<String> {
            keys.iter().map(|key| key.id().to_owned()).collect()
        };
        assert_eq!(ids(read(Some(&json), file.clone()).unwrap()), ["a", "b"]);
        assert_eq!(ids(read(None, file.clone()).unwrap()), ["c"]);
        assert_eq!(ids(read(Some(" "), file).unwrap()), ["c"]);
        assert!(read(None, None).unwrap().is_empty());
    }

    #[test]
    fn a_wrong_key_is_refused_without_its_secret() {
        let with = |rest: &str| format!(r#"[{{"secret": "{SECRET}"{rest}}}]"#);
        for (json, part) in [
            (format!(r#""{SECRET}""#), "must be a list"),
            (format!(r#"["{SECRET}"]"#), "members id"),
            (format!(r#"["{SECRET}"#), "line 1"),
            (with(r#", "roles": ["worker"]"#), "id is missing"),
            (with(r#", "id": "", "roles": ["worker"]"#), "id must be"),
            (with(r#", "id": "a b", "roles": ["worker"]"#), "id must be"),
            (with(r#", "id": "a""#), "roles must be"),
            (with(r#", "id": "a", "roles": []"#), "roles must be"),
            (with(r#", "id": "a", "roles": ["root"]"#), "roles must be"),
            (with(r#", "id": "a", "roles": "worker""#), "roles must be"),
            (
                with(r#", "id": "a", "roles": ["worker"], "name": "x""#),
                "`name`",
            ),
            (
                with(r#", "id": "a", "roles": ["worker"], "namespace": 1"#),
                "namespace must be",
            ),
            (
                r#"[{"id": "a", "roles": ["worker"], "secret": "short"}]"#.to_owned(),
                "at least 16",
            ),
            (
                format!(
                    r#"[{{"id": "a", "secret": "{SECRET}", "roles": ["worker"]}},
                        {{"id": "a", "secret": "{SECRET}", "roles": ["admin"]}}]"#
                ),
                "earlier key",
            ),
        ] {
            let message = refused(&json);
            assert!(message.contains(part), "{message}: {part}");
        }
    }
}
