//! An empty database for one test.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Cluster;

/// The sorting of the databases. The store must sort by bytes wherever that matters; a database that sorts as a language does shows
/// where it forgot to.
const SORTED_AS_A_LANGUAGE: &str = "LOCALE_PROVIDER icu ICU_LOCALE 'en-US'";

/// The code of a server that was built without ICU.
const FEATURE_NOT_SUPPORTED: &str = "0A000";

/// A database of its own name. Dropping it removes the database, also with open connections.
#[derive(Debug)]
pub struct Database<'a> {
    cluster: &'a Cluster,
    name: String,
    url: String,
}

impl Cluster {
    /// Creates an empty database.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn database(&self) -> Database<'_> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Several processes share a cluster, and each has its own counter.
        let name = format!("test_{}_{number}", std::process::id());
        let create = |sorting| {
            format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' {sorting}")
        };
        let created = match self.sql("postgres", &create(SORTED_AS_A_LANGUAGE)) {
            Err(error) if error.to_string().contains(FEATURE_NOT_SUPPORTED) => {
                self.sql("postgres", &create(""))
            }
            created => created,
        };
        created.unwrap_or_else(|error| panic!("a database could not be created: {error:#}"));
        Database {
            url: self.url_of(&name),
            cluster: self,
            name,
        }
    }
}

impl Database<'_> {
    /// Returns the name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address of the database, for the superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs SQL as the superuser. Returns the rows, with `|` between the columns.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn sql(&self, sql: &str) -> String {
        self.cluster
            .sql(&self.name, sql)
            .unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Ends all sessions of this database.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn terminate_backends(&self) {
        self.cluster.terminate_backends(&self.name);
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A test may have stopped the server. The database goes with the cluster then.
        let _ = self.cluster.sql("postgres", &sql);
    }
}

/// Returns an address with another database: `postgres://host/a?b=c` → `postgres://host/name?b=c`.
pub(crate) fn with_name(url: &str, name: &str) -> String {
    let (address, parameters) = url.split_once('?').map_or((url, ""), |(a, b)| (a, b));
    let scheme = address.find("://").map_or(0, |at| at + 3);
    let host = match address[scheme..].find('/') {
        Some(at) => &address[..scheme + at],
        None => address,
    };
    let mark = if parameters.is_empty() { "" } else { "?" };
    format!("{host}/{name}{mark}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_database_changes() {
        for (url, expected) in [
            ("postgres://a@b:1/c", "postgres://a@b:1/new"),
            ("postgres://a@b:1", "postgres://a@b:1/new"),
            (
                "postgres://a@b/c?sslmode=require",
                "postgres://a@b/new?sslmode=require",
            ),
            ("postgres:///c?host=/run", "postgres:///new?host=/run"),
        ] {
            assert_eq!(with_name(url, "new"), expected, "{url}");
        }
    }
}
