//! A database for a measurement. It is made beside the one of an address and dropped afterwards.

use super::connect::{Role, connect};
use super::options::Options;
use crate::Error;

/// A database that is dropped by [`Scratch::drop_database`].
pub struct Scratch {
    /// The database beside which it is.
    beside: Options,
    name: String,
}

impl Scratch {
    /// Creates a database with a name of its own.
    ///
    /// # Errors
    /// The server cannot be reached, or the user may not create databases.
    pub async fn create(beside: &Options) -> Result<Self, Error> {
        let name = format!("longhaul_bench_{:016x}", rand::random::<u64>());
        let client = connect(beside, Role::Writer).await?;
        client
            .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0"))
            .await?;
        let beside = beside.clone();
        Ok(Self { beside, name })
    }

    /// Returns the options of the new database.
    pub fn options(&self) -> Options {
        self.beside.clone().with_database(&self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends all connections to the database and drops it.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn drop_database(self) -> Result<(), Error> {
        let client = connect(&self.beside, Role::Writer).await?;
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        Ok(client.batch_execute(&sql).await?)
    }
}
