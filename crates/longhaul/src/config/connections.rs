//! Settings of connections: time-outs and the limit on their number.

use std::time::Duration;

use anyhow::{Result, bail};
use longhaul_server::connections::Limits;

use super::File;
use crate::descriptors;

/// A day. A longer time-out would have no purpose.
const SECONDS_MAX: u64 = 86_400;

#[derive(clap::Args, Default)]
pub(super) struct Args {
    /// How long the headers of a request may take [default: 15]
    #[arg(long, env = "LONGHAUL_HEADER_TIMEOUT_SECONDS", value_name = "SECONDS")]
    header_timeout_seconds: Option<u64>,

    /// How long the body of a request may take, plus a second per 64 KiB [default: 30]
    #[arg(long, env = "LONGHAUL_BODY_TIMEOUT_SECONDS", value_name = "SECONDS")]
    body_timeout_seconds: Option<u64>,

    /// How long a connection may wait for its next request [default: 120]
    #[arg(long, env = "LONGHAUL_IDLE_TIMEOUT_SECONDS", value_name = "SECONDS")]
    idle_timeout_seconds: Option<u64>,

    /// How long a response may wait for its reader, plus a second per 64 KiB [default: 30]
    #[arg(long, env = "LONGHAUL_WRITE_TIMEOUT_SECONDS", value_name = "SECONDS")]
    write_timeout_seconds: Option<u64>,

    /// Open connections [default: what `ulimit -n` allows, at most 10000]
    #[arg(long, env = "LONGHAUL_MAX_CONNECTIONS", value_name = "COUNT")]
    max_connections: Option<u64>,
}

impl Args {
    pub(super) fn settle(&self, file: &File) -> Result<Limits> {
        let mut limits = Limits::default();
        for (name, flag, file, limit) in [
            (
                "header",
                self.header_timeout_seconds,
                file.header_timeout_seconds,
                &mut limits.header_timeout,
            ),
            (
                "body",
                self.body_timeout_seconds,
                file.body_timeout_seconds,
                &mut limits.body_timeout,
            ),
            (
                "idle",
                self.idle_timeout_seconds,
                file.idle_timeout_seconds,
                &mut limits.idle_timeout,
            ),
            (
                "write",
                self.write_timeout_seconds,
                file.write_timeout_seconds,
                &mut limits.write_timeout,
            ),
        ] {
            let Some(seconds) = flag.or(file) else {
                continue;
            };
            if !(1..=SECONDS_MAX).contains(&seconds) {
                bail!("--{name}-timeout-seconds must be from 1 to {SECONDS_MAX}, not {seconds}");
            }
            *limit = Duration::from_secs(seconds);
        }
        let connections = match self.max_connections.or(file.max_connections) {
            None => descriptors::connections_default(),
            Some(0) => bail!("--max-connections must be at least 1"),
            Some(wanted) => {
                let most = descriptors::connections_max();
                if wanted > most {
                    bail!(
                        "--max-connections {wanted} is more than the {most} that the limit on open files leaves beside the \
                         database; raise `ulimit -n`"
                    );
                }
                wanted
            }
        };
        limits.connections_max = usize::try_from(connections).unwrap_or(usize::MAX);
        Ok(limits)
    }
}
