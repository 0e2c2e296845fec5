//! Structured logs on standard error, as text for people or JSON for programs.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// Starts logging. `filter` is a level or a list such as `info,longhaul_host=debug`.
pub(crate) fn start(format: Format, filter: &str) -> Result<()> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .with_context(|| format!("`{filter}` is not a log filter; try `info` or `debug`"))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colours are for people: a file or a pipe gets plain text.
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match format {
        Format::Text => lines.finish().try_init(),
        Format::Json => lines.json().flatten_event(true).finish().try_init(),
    }
    .context("logging was started already")
}
