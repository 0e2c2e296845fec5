//! Where the server is, and who calls it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longhaul_transport::RequestRetry;

/// The server that a program on the same machine finds without configuration.
const SERVER_URL_DEFAULT: &str = "http://localhost:8080/api";

/// The file with the certificates of further authorities. The JavaScript SDK has the same variable.
const AUTHORITIES: &str = "CONDUCTOR_TLS_CA_PATH";

/// Connections at once, and how many of them are kept while they are idle. The numbers are those of other Conductor SDKs.
const CONNECTIONS_MAX: usize = 100;
const IDLE_CONNECTIONS_MAX: usize = 50;

/// The address of a server, the key for it, and how requests are sent.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub(crate) server_url: String,
    pub(crate) ui_url: Option<String>,
    pub(crate) key: Option<Key>,
    pub(crate) namespace: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) connections_max: usize,
    pub(crate) idle_connections_max: usize,
    pub(crate) ssl_ca_cert: Option<Bytes>,
    pub(crate) retry: RequestRetry,
}

/// A key: the name of a program and its secret. Its `Debug` output does not contain the secret.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) secret: Arc<str>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}, …)", self.id)
    }
}

/// Why a configuration cannot be read from the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// Of the two parts of a key, one is missing.
    #[error("{given} is set and {missing} is not: a key has both")]
    HalfKey {
        /// The variable that is set.
        given: &'static str,
        /// The variable that is missing.
        missing: &'static str,
    },
    /// The value of a variable is not text.
    #[error("{0} is not valid UTF-8")]
    NotText(String),
    /// The file that a variable names cannot be read.
    #[error("{variable} names the file {path}, which cannot be read: {why}")]
    Unreadable {
        /// The variable.
        variable: &'static str,
        /// The file.
        path: String,
        /// The error of the operating system.
        why: String,
    },
}

impl Configuration {
    /// The server at `server_url`, with the path of its API, such as `http://localhost:8080/api`.
    pub fn new(server_url: impl Into<String>) -> Self {
        Self {
            server_url: server_url.into(),
            ui_url: None,
            key: None,
            namespace: None,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            connections_max: CONNECTIONS_MAX,
            idle_connections_max: IDLE_CONNECTIONS_MAX,
            ssl_ca_cert: None,
            retry: RequestRetry::default(),
        }
    }

    /// Reads `CONDUCTOR_SERVER_URL`, `CONDUCTOR_UI_SERVER_URL`, `CONDUCTOR_AUTH_KEY` and `CONDUCTOR_AUTH_SECRET`. Without an address
    /// it is `http://localhost:8080/api`. `CONDUCTOR_TLS_CA_PATH` names a file for [`Self::ssl_ca_cert`].
    ///
    /// # Errors
    /// [`ConfigurationError`] if a key has no secret, or a secret no key, or the file cannot be read.
    pub fn from_env() -> Result<Self, ConfigurationError> {
        Self::from_variables(&|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(ConfigurationError::NotText(name.to_owned()))
            }
        })
    }

    /// Reads the variables from `lookup`. An empty variable counts as not set.
    fn from_variables(
        lookup: &dyn Fn(&str) -> Result<Option<String>, ConfigurationError>,
    ) -> Result<Self, ConfigurationError> {
        const KEY: &str = "CONDUCTOR_AUTH_KEY";
        const SECRET: &str = "CONDUCTOR_AUTH_SECRET";
        let variable = |name| Ok(lookup(name)?.filter(|value| !value.trim().is_empty()));
        let url = variable("CONDUCTOR_SERVER_URL")?;
        let mut read = Self::new(url.as_deref().unwrap_or(SERVER_URL_DEFAULT).trim());
        if let Some(url) = variable("CONDUCTOR_UI_SERVER_URL")? {
            read = read.ui_url(url.trim());
        }
        let half = |given, missing| Err(ConfigurationError::HalfKey { given, missing });
        match (variable(KEY)?, variable(SECRET)?) {
            (Some(id), Some(secret)) => read = read.key(id, secret),
            (Some(_), None) => return half(KEY, SECRET),
            (None, Some(_)) => return half(SECRET, KEY),
            (None, None) => {}
        }
        if let Some(path) = variable(AUTHORITIES)? {
            let pem = std::fs::read(&path).map_err(|error| ConfigurationError::Unreadable {
                variable: AUTHORITIES,
                path,
                why: error.to_string(),
            })?;
            read = read.ssl_ca_cert(pem);
        }
        Ok(read)
    }

    /// Sets the address of the pages that people see, for links in the log. By default it is the address of the server without `/api`.
    #[must_use]
    pub fn ui_url(mut self, url: impl Into<String>) -> Self {
        self.ui_url = Some(url.into());
        self
    }

    /// Returns the address of the pages that people see, without a slash at its end.
    pub(crate) fn ui_host(&self) -> &str {
        match &self.ui_url {
            Some(url) => url.trim_end_matches('/'),
            None => {
                let server = self.server_url.trim_end_matches('/');
                server.strip_suffix("/api").unwrap_or(server)
            }
        }
    }

    /// Sets the key. The program exchanges it for tokens; a server without keys is used without one.
    #[must_use]
    pub fn key(mut self, id: impl Into<String>, secret: impl Into<Arc<str>>) -> Self {
        self.key = Some(Key {
            id: id.into(),
            secret: secret.into(),
        });
        self
    }

    /// Sets the namespace. Only longhaul has namespaces; other servers ignore it. The namespace of a key comes first.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets how long a response may take: 30 seconds by default. A request that asks the server to wait gets that time in addition.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long a connection may take: 10 seconds by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the largest number of connections in use, and of requests at once: 100 by default. With HTTP/2, many requests share a
    /// connection. More requests wait for the first ones; the wait is part of their timeout.
    #[must_use]
    pub fn connections_max(mut self, count: usize) -> Self {
        self.connections_max = count;
        self
    }

    /// Sets the largest number of idle connections that are kept: 50 by default.
    #[must_use]
    pub fn idle_connections_max(mut self, count: usize) -> Self {
        self.idle_connections_max = count;
        self
    }

    /// Trusts the certificates of further authorities, given in PEM. Those of the operating system are always trusted.
    #[must_use]
    pub fn ssl_ca_cert(mut self, pem: impl Into<Bytes>) -> Self {
        self.ssl_ca_cert = Some(pem.into());
        self
    }

    /// Sets how often clients repeat a failed request. Workers repeat their polls and updates by rules of their own.
    #[must_use]
    pub fn retry(mut self, retry: RequestRetry) -> Self {
        self.retry = retry;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Configuration, ConfigurationError> {
        Configuration::from_variables(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            Ok(found.map(|(_, value)| (*value).to_owned()))
        })
    }

    #[test]
    fn address_and_key_come_from_the_environment() {
        let read = read(&[
            ("CONDUCTOR_SERVER_URL", " https://conductor.example/api "),
            ("CONDUCTOR_AUTH_KEY", "billing"),
            ("CONDUCTOR_AUTH_SECRET", "hidden"),
        ])
        .unwrap();
        assert_eq!(read.server_url, "https://conductor.example/api");
        let shown = format!("{read:?}");
        assert!(
            shown.contains("billing") && !shown.contains("hidden"),
            "{shown}"
        );
    }

    #[test]
    fn without_variables_the_server_is_local_and_open() {
        for variables in [&[][..], &[("CONDUCTOR_SERVER_URL", "")]] {
            let read = read(variables).unwrap();
            assert_eq!(read.server_url, SERVER_URL_DEFAULT);
            assert!(read.key.is_none());
        }
    }

    #[test]
    fn the_pages_are_at_the_server_unless_a_variable_sets_their_address() {
        for (server, ui, wanted) in [
            ("http://c.example/api", "", "http://c.example"),
            ("http://c.example/api/", "", "http://c.example"),
            ("http://c.example/apis", "", "http://c.example/apis"),
            ("http://c.example", "", "http://c.example"),
            (
                "http://c.example/api",
                " https://ui.example/ ",
                "https://ui.example",
            ),
        ] {
            let variables = [
                ("CONDUCTOR_SERVER_URL", server),
                ("CONDUCTOR_UI_SERVER_URL", ui),
            ];
            assert_eq!(read(&variables).unwrap().ui_host(), wanted);
        }
    }

    #[test]
    fn half_a_key_is_an_error_that_names_the_other_half() {
        let error = read(&[("CONDUCTOR_AUTH_KEY", "billing")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "CONDUCTOR_AUTH_KEY is set and CONDUCTOR_AUTH_SECRET is not: a key has both"
        );
        let error = read(&[
            ("CONDUCTOR_AUTH_SECRET", "hidden"),
            ("CONDUCTOR_AUTH_KEY", ""),
        ])
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "CONDUCTOR_AUTH_SECRET is set and CONDUCTOR_AUTH_KEY is not: a key has both"
        );
    }

    #[test]
    fn certificates_of_authorities_come_from_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let path = path.to_str().unwrap();
        let error = read(&[(AUTHORITIES, path)]).unwrap_err().to_string();
        assert!(
            error.starts_with("CONDUCTOR_TLS_CA_PATH names the file"),
            "{error}"
        );
        assert!(error.contains(path), "{error}");
        std::fs::write(path, "-----BEGIN").unwrap();
        let read = read(&[(AUTHORITIES, path)]).unwrap();
        assert_eq!(read.ssl_ca_cert.as_deref(), Some(&b"-----BEGIN"[..]));
        assert!(super::Configuration::new("http://x").ssl_ca_cert.is_none());
    }
}
