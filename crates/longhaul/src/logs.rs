//! Structured logs on standard error, as text for people or JSON for programs. [`lines`] writes them.

use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

mod lines;

use lines::{Lines, Style};

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// The running log. Dropping it waits until the last lines are written.
pub(crate) struct Log(Lines);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Starts logging. `filter` is a level or a list such as `info,longhaul_host=debug`.
pub(crate) fn start(format: Format, filter: &str) -> Result<Log> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .with_context(|| format!("`{filter}` is not a log filter; try `info` or `debug`"))?;
    // Colours are for people: a file or a pipe gets plain text.
    let colours = std::io::stderr().is_terminal() && format == Format::Text;
    let lines = Lines::start(Style { format, colours }, std::io::stderr())
        .context("the log cannot be started")?;
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines.clone())
        // The subscriber would print its own failures to standard error, and panic if that fails.
        .log_internal_errors(false)
        .with_ansi(colours)
        .with_target(false);
    match format {
        Format::Text => events.finish().try_init(),
        Format::Json => events.json().flatten_event(true).finish().try_init(),
    }
    .context("logging is already running")?;
    // Panics are logged too: the standard hook writes to standard error directly and would wait for a reader that has stopped.
    std::panic::set_hook(Box::new(log_panic));
    Ok(Log(lines))
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let what = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let at = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    let backtrace = std::backtrace::Backtrace::capture();
    let backtrace = match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => Some(backtrace.to_string()),
        _ => None,
    };
    tracing::error!(
        thread = thread.name().unwrap_or("unnamed"),
        at,
        panic = what,
        backtrace,
        "a thread panicked"
    );
}
