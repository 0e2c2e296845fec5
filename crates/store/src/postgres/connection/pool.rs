//! The connections of readers: a bounded number, opened when needed and used again.

use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{self, Metrics, PoolError, RecycleError, RecycleResult, TimeoutType};

use super::connect::{Connected, Role, connect};
use super::options::Options;
use crate::Error;

/// How long a reader waits for a free connection. All are busy for this long only if the server is overloaded, and a request that
/// waits longer has lost its caller.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Connections for readers.
pub type Pool = managed::Pool<Manager>;

/// A connection of the pool. Dropping it returns it.
pub type Pooled = managed::Object<Manager>;

/// Opens the connections of a pool.
#[derive(Debug)]
pub struct Manager(Options);

impl managed::Manager for Manager {
    type Type = Connected;
    type Error = Error;

    async fn create(&self) -> Result<Connected, Error> {
        connect(&self.0, Role::Reader).await
    }

    async fn recycle(&self, connected: &mut Connected, _: &Metrics) -> RecycleResult<Error> {
        if connected.is_closed() {
            return Err(RecycleError::message("the connection is closed"));
        }
        Ok(())
    }
}

/// Returns a pool without connections. They are opened when readers ask for them.
///
/// # Errors
/// [`Error::Settings`] if the pool cannot be made.
pub fn pool(options: &Options) -> Result<Pool, Error> {
    Pool::builder(Manager(options.clone()))
        .max_size(options.connections_max())
        .wait_timeout(Some(WAIT_MAX))
        // Connecting has its own limit per host.
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Error::Settings(format!("the pool of PostgreSQL: {error}")))
}

impl From<PoolError<Self>> for Error {
    fn from(error: PoolError<Self>) -> Self {
        match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(TimeoutType::Wait) => Self::Unavailable(format!(
                "no connection to PostgreSQL became free within {} s",
                WAIT_MAX.as_secs()
            )),
            PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => {
                Self::Unavailable(format!("the pool of PostgreSQL: {error}"))
            }
        }
    }
}
