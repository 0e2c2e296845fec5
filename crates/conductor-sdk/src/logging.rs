//! The log of a worker program.
//!
//! The crate logs with `tracing`. A program with a subscriber of its own needs nothing here. For one without, [`init`] installs a
//! subscriber, and so does a handler or a runner that starts while `CONDUCTOR_LOG_LEVEL` is set. A subscriber that exists is never
//! replaced.
//!
//! | variable | values |
//! | --- | --- |
//! | `CONDUCTOR_LOG_LEVEL` | `TRACE`, `DEBUG`, `INFO`, `WARN`, `WARNING`, `ERROR`, `CRITICAL`, `OFF`, in any case |
//! | `CONDUCTOR_LOG_FORMAT` | `text` (default), or `json` for one object per line |
//!
//! Lines go to standard error. Lines about a task have the fields `task_type`, `task_id`, `workflow_instance_id` and `worker_id`.

use std::io::{self, Write};

use tracing::dispatcher;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::{Layer as _, util::SubscriberInitExt as _};

const LEVEL: &str = "CONDUCTOR_LOG_LEVEL";
const FORMAT: &str = "CONDUCTOR_LOG_FORMAT";

/// Crates below this one that log every frame of a connection. They are never more verbose than `INFO`.
const VERBOSE: [&str; 5] = ["h2", "hyper", "hyper_util", "reqwest", "rustls"];

/// A variable for the log has a value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable `{variable}` has the value {value:?}; it must be {allowed}")]
pub struct LoggingError {
    variable: &'static str,
    value: String,
    allowed: &'static str,
}

/// What the variables ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Settings {
    /// `None` if the variable is not set.
    level: Option<LevelFilter>,
    is_json: bool,
}

/// Installs a subscriber for the whole program, by default with the level `INFO`. Returns whether it did: a subscriber that exists is
/// left alone.
///
/// # Errors
/// [`LoggingError`] names the variable that is not valid.
pub fn init() -> Result<bool, LoggingError> {
    let settings = Settings::from_env()?;
    Ok(install(
        settings,
        settings.level.unwrap_or(LevelFilter::INFO),
    ))
}

/// Checks the variables.
pub(crate) fn check() -> Result<(), LoggingError> {
    Settings::from_env().map(drop)
}

/// Installs a subscriber if `CONDUCTOR_LOG_LEVEL` asks for it and the program has none.
pub(crate) fn apply() {
    // A handler has checked the variables. A runner alone leaves the log as it is if they are wrong.
    if let Ok(settings) = Settings::from_env()
        && let Some(level) = settings.level
    {
        install(settings, level);
    }
}

fn install(settings: Settings, level: LevelFilter) -> bool {
    !dispatcher::has_been_set()
        && subscriber(settings.is_json, level, || OneLine(io::stderr()))
            .try_init()
            .is_ok()
}

fn subscriber<W>(is_json: bool, level: LevelFilter, out: W) -> impl tracing::Subscriber
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let verbose = VERBOSE.map(|target| (target, level.min(LevelFilter::INFO)));
    let targets = Targets::new().with_default(level).with_targets(verbose);
    let lines = fmt::layer().with_ansi(false).with_writer(out);
    let lines = if is_json {
        lines.json().flatten_event(true).boxed()
    } else {
        lines.boxed()
    };
    Registry::default().with(lines.with_filter(targets))
}

/// Writes each line as one line: the text of a server cannot begin a second one or reach a terminal.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// The formatter writes one whole line per call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if !text.iter().any(u8::is_ascii_control) {
            return self.0.write_all(line).map(|()| line.len());
        }
        let mut safe = Vec::with_capacity(line.len() + 16);
        for byte in text {
            if byte.is_ascii_control() {
                safe.extend(byte.escape_ascii());
            } else {
                safe.push(*byte);
            }
        }
        safe.push(b'\n');
        self.0.write_all(&safe).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Settings {
    fn from_env() -> Result<Self, LoggingError> {
        let read = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::read(read(LEVEL), read(FORMAT))
    }

    /// Reads the values of the two variables. An empty one counts as not set.
    fn read(level: Option<String>, format: Option<String>) -> Result<Self, LoggingError> {
        let (level, format) = (level.unwrap_or_default(), format.unwrap_or_default());
        Ok(Self {
            level: match level.trim().to_uppercase().as_str() {
                "" => None,
                "TRACE" => Some(LevelFilter::TRACE),
                "DEBUG" => Some(LevelFilter::DEBUG),
                "INFO" => Some(LevelFilter::INFO),
                "WARN" | "WARNING" => Some(LevelFilter::WARN),
                // What is critical is an error with a field of this name.
                "ERROR" | "CRITICAL" => Some(LevelFilter::ERROR),
                "OFF" => Some(LevelFilter::OFF),
                _ => {
                    return Err(LoggingError {
                        variable: LEVEL,
                        value: level,
                        allowed: "one of TRACE, DEBUG, INFO, WARNING, ERROR, CRITICAL, OFF",
                    });
                }
            },
            is_json: match format.trim().to_lowercase().as_str() {
                "" | "text" => false,
                "json" => true,
                _ => {
                    return Err(LoggingError {
                        variable: FORMAT,
                        value: format,
                        allowed: "text or json",
                    });
                }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::capture::Log;

    fn read(level: &str, format: &str) -> Result<Settings, LoggingError> {
        Settings::read(Some(level.to_owned()), Some(format.to_owned()))
    }

    #[test]
    fn levels_have_the_names_of_other_sdks_in_any_case() {
        for (name, level) in [
            ("debug", LevelFilter::DEBUG),
            (" INFO ", LevelFilter::INFO),
            ("Warning", LevelFilter::WARN),
            ("warn", LevelFilter::WARN),
            ("CRITICAL", LevelFilter::ERROR),
            ("off", LevelFilter::OFF),
        ] {
            assert_eq!(read(name, "").unwrap().level, Some(level), "{name}");
        }
        assert_eq!(Settings::read(None, None), Ok(Settings::default()));
        assert!(read("", "JSON").unwrap().is_json);
    }

    #[test]
    fn a_wrong_value_is_an_error_that_names_the_variable() {
        assert_eq!(
            read("loud", "").unwrap_err().to_string(),
            "the environment variable `CONDUCTOR_LOG_LEVEL` has the value \"loud\"; it must be one of TRACE, DEBUG, INFO, WARNING, \
             ERROR, CRITICAL, OFF"
        );
        assert_eq!(
            read("info", "xml").unwrap_err().to_string(),
            "the environment variable `CONDUCTOR_LOG_FORMAT` has the value \"xml\"; it must be text or json"
        );
    }

    #[test]
    fn the_text_of_a_server_cannot_begin_a_line() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = subscriber(false, LevelFilter::INFO, move || OneLine(writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let error = "no\n2026-01-01 ERROR forged\u{1b}[2J naïve";
            tracing::warn!(%error, "a poll failed");
            tracing::info!("an ordinary line");
        });
        let text = log.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[0].contains(r"no\n2026-01-01 ERROR forged\x1b[2J naïve"),
            "{text}"
        );
        assert!(lines[1].ends_with("an ordinary line"), "{text}");
    }

    #[test]
    fn lines_are_objects_with_fields_and_connections_are_not_logged_in_detail() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = subscriber(true, LevelFilter::DEBUG, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(task_type = "charge", "polled");
            tracing::trace!("too much");
            tracing::debug!(target: "hyper_util::client", "a frame");
        });
        let lines = log.json();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["task_type"], "charge");
        assert_eq!(lines[0]["message"], "polled");
        assert_eq!(lines[0]["level"], "DEBUG");
    }
}
