//! A private PostgreSQL cluster for tests: made with `initdb` in a temporary folder, run by an unprivileged user, and gone with the
//! process that started it, however that ends.
//!
//! [`shared`] is what most tests need: one cluster per process, or the one that `cargo xtask ci` started for all test binaries.
//! [`Cluster::start`] is for tests that restart or kill a server. `programs` finds PostgreSQL, `server` runs one process, `reaper`
//! removes the folder.

use std::sync::OnceLock;

mod certificate;
mod cluster;
mod database;
mod programs;
mod reaper;
mod server;

pub use self::cluster::{Cluster, Setup};
pub use self::database::Database;
pub use self::programs::is_installed;

/// The variable with the address of a cluster that several test binaries share. Its user must be a superuser.
pub const SHARED_VARIABLE: &str = "LONGHAUL_TEST_POSTGRES";

/// Returns the cluster of [`SHARED_VARIABLE`]. If the variable is not set, returns one cluster of this process.
///
/// Such a cluster cannot be restarted or killed: other tests use it at the same time.
///
/// # Panics
/// If PostgreSQL is not installed or does not start.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| match std::env::var(SHARED_VARIABLE) {
        Ok(url) if !url.is_empty() => {
            Cluster::at(url).unwrap_or_else(|error| panic!("{SHARED_VARIABLE}: {error:#}"))
        }
        _ => Cluster::start().shared(),
    })
}
