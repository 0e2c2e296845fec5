//! Where the store is: the settings of `serve` that `store check` has too, and the addresses of `store copy`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use longhaul_store::{StoreAddress, postgres};

use super::{File, read_file};

/// In the directory where the server is started.
const DATA_DEFAULT: &str = "./longhaul-data";

/// Name of the database inside the data directory.
const DATABASE: &str = "longhaul.db";

#[derive(clap::Args, Clone, Default)]
pub(crate) struct StoreArgs {
    /// Directory for the embedded store [default: ./longhaul-data]
    #[arg(long, env = "LONGHAUL_DATA", value_name = "DIR")]
    pub(super) data: Option<PathBuf>,

    /// The store: sqlite:PATH or postgres://user:password@host/database [default: a file in the data directory]
    #[arg(
        long,
        env = "LONGHAUL_STORE",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(super) store: Option<String>,

    /// Connections to PostgreSQL for reading [default: 16]; two more write
    #[arg(long, env = "LONGHAUL_STORE_CONNECTIONS", value_name = "N")]
    pub(super) store_connections: Option<usize>,

    /// TOML file with the same settings (listen, data, store, token, …)
    #[arg(long, env = "LONGHAUL_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

impl StoreArgs {
    /// Returns the configuration file, or an empty one if none is named.
    pub(super) fn file(&self) -> Result<File> {
        let file = self.config.as_deref().map(read_file).transpose()?;
        Ok(file.unwrap_or_default())
    }

    /// Returns where the store is, from the flags, the environment and the file.
    pub(super) fn settle(&self, file: &File) -> Result<StoreAddress> {
        let store = self.store.as_deref().or(file.store.as_deref());
        let data = self.data.as_deref().or(file.data.as_deref());
        let data = data.unwrap_or_else(|| Path::new(DATA_DEFAULT));
        store_address(
            store,
            data,
            self.store_connections.or(file.store_connections),
        )
    }

    /// Returns where the store is, for a command that needs no other setting.
    pub(crate) fn address(&self) -> Result<StoreAddress> {
        self.settle(&self.file()?)
    }
}

pub(super) fn store_address(
    store: Option<&str>,
    data: &Path,
    connections_max: Option<usize>,
) -> Result<StoreAddress> {
    let Some(url) = store else {
        return Ok(StoreAddress::Sqlite(data.join(DATABASE)));
    };
    if let Some(mut options) = postgres_options(url).context("--store")? {
        if let Some(most) = connections_max {
            options = options.with_connections_max(most.max(1));
        }
        return Ok(StoreAddress::Postgres(Box::new(options)));
    }
    match url.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => Ok(StoreAddress::Sqlite(PathBuf::from(path))),
        Some(_) => bail!("sqlite: needs a path, as in sqlite:/var/lib/longhaul/longhaul.db"),
        None => bail!("`{url}` is not a store; write sqlite:PATH or postgres://user@host/database"),
    }
}

/// Returns the address in an argument: what `--store` takes, or a path. A path is a data directory unless it is a file or ends in
/// `.db`.
pub(crate) fn parse_place(text: &str) -> Result<StoreAddress> {
    if let Some(options) = postgres_options(text)? {
        return Ok(StoreAddress::Postgres(Box::new(options)));
    }
    if text.starts_with("sqlite:") {
        return store_address(Some(text), Path::new(""), None);
    }
    if text.contains("://") {
        bail!("not a store; write a data directory, sqlite:PATH or postgres://user@host/database");
    }
    let path = Path::new(text);
    let is_file = path.is_file() || path.extension().is_some_and(|extension| extension == "db");
    Ok(StoreAddress::Sqlite(if is_file {
        path.to_owned()
    } else {
        path.join(DATABASE)
    }))
}

/// Returns the options of an address of PostgreSQL, or `None` if it is something else.
fn postgres_options(url: &str) -> Result<Option<postgres::Options>> {
    if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        return Ok(Some(postgres::Options::parse(url)?));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_a_file_or_a_url() {
        let sqlite = |text: &str| match parse_place(text).unwrap() {
            StoreAddress::Sqlite(path) => path,
            StoreAddress::Postgres(_) => panic!("{text} is a file"),
        };
        assert_eq!(sqlite("data"), Path::new("data/longhaul.db"));
        assert_eq!(sqlite("data/other.db"), Path::new("data/other.db"));
        assert_eq!(sqlite("sqlite:x/y"), Path::new("x/y"));
        assert!(matches!(
            parse_place("postgres://h/d").unwrap(),
            StoreAddress::Postgres(_)
        ));
        assert!(parse_place("mysql://me:secret@h/d").is_err());
        assert!(parse_place("sqlite:").is_err());
    }
}
