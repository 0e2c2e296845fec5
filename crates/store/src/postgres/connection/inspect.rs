//! Looks at a server before it is used. Refuses one that cannot work, and warns of one that may lose commits.

use tokio_postgres::Client;

use crate::Error;

/// The oldest supported server.
const VERSION_MIN: i32 = 15;

/// `server_version_num` is the major version times this, plus the minor one.
const VERSION_UNIT: i32 = 10_000;

/// Settings without which a crash loses commits that were answered, and what to do.
const SAFE: [(&str, &str); 3] = [
    (
        "fsync",
        "a crash of the machine destroys the database; set fsync = on",
    ),
    (
        "full_page_writes",
        "a crash of the machine may leave torn pages; set full_page_writes = on",
    ),
    (
        "synchronous_commit",
        "commits of other programs may be lost; longhaul switches it on for its own commits",
    ),
];

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// The version as the server writes it, such as `15.4 (Debian 15.4-1)`.
    pub version: String,
    /// The major version.
    pub major: i32,
    /// The character encoding of the database.
    pub encoding: String,
    /// Whether the server is a standby, or restores a backup.
    pub in_recovery: bool,
    /// Whether transactions are read-only unless they ask for more.
    pub read_only: bool,
    /// Sentences about settings that may lose commits.
    pub warnings: Vec<String>,
}

/// Reads the facts. Logs the warnings.
///
/// # Errors
/// [`Error::Settings`] if the server is too old or the database has another encoding than UTF-8, [`Error::Unavailable`] if it
/// refuses writes.
pub async fn inspect(client: &Client) -> Result<ServerFacts, Error> {
    let facts = read(client).await?;
    facts.check()?;
    for warning in &facts.warnings {
        tracing::warn!("{warning}");
    }
    Ok(facts)
}

async fn read(client: &Client) -> Result<ServerFacts, Error> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int4, \
             pg_catalog.getdatabaseencoding()::text, pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'",
            &[],
        )
        .await?;
    let number: i32 = row.try_get(1)?;
    let names: Vec<&str> = SAFE.iter().map(|(name, _)| *name).collect();
    // `reset_val` is the default of sessions. The session of the writer has changed its own value.
    let sql = "SELECT name FROM pg_settings WHERE name = ANY($1) AND reset_val = 'off'";
    let off = client.query(sql, &[&names]).await?;
    let mut warnings = Vec::new();
    for row in off {
        let name: &str = row.try_get(0)?;
        let known = SAFE.iter().find(|(known, _)| *known == name);
        warnings
            .extend(known.map(|(name, advice)| format!("PostgreSQL has {name} = off: {advice}")));
    }
    warnings.sort();
    Ok(ServerFacts {
        version: row.try_get(0)?,
        major: number / VERSION_UNIT,
        encoding: row.try_get(2)?,
        in_recovery: row.try_get(3)?,
        read_only: row.try_get(4)?,
        warnings,
    })
}

impl ServerFacts {
    /// Refuses a server that cannot be used.
    fn check(&self) -> Result<(), Error> {
        if self.major < VERSION_MIN {
            return Err(Error::Settings(format!(
                "PostgreSQL {} is too old: longhaul needs {VERSION_MIN} or later, upgrade the server",
                self.version
            )));
        }
        if self.encoding != "UTF8" {
            return Err(Error::Settings(format!(
                "the database has the encoding {}: create one with `createdb --encoding=UTF8 --template=template0`",
                self.encoding
            )));
        }
        if self.in_recovery {
            return Err(Error::Unavailable(
                "PostgreSQL is a standby and refuses writes: use the address of the primary, or name all servers in the address with \
                 target_session_attrs=read-write"
                    .to_owned(),
            ));
        }
        if self.read_only {
            return Err(Error::Unavailable(
                "PostgreSQL has default_transaction_read_only = on: switch it off for this database and this user".to_owned(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ServerFacts {
        ServerFacts {
            version: "15.4".to_owned(),
            major: 15,
            encoding: "UTF8".to_owned(),
            in_recovery: false,
            read_only: false,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn an_old_server_is_refused() {
        facts().check().unwrap();
        let old = ServerFacts {
            version: "14.9".to_owned(),
            major: 14,
            ..facts()
        };
        let error = old.check().unwrap_err();
        assert!(matches!(error, Error::Settings(_)), "{error:?}");
        assert!(error.to_string().contains("14.9 is too old"), "{error}");
    }
}
