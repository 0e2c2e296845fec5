//! Finds the value of each property of a worker and remembers where it came from.

use std::ffi::OsString;
use std::fmt;

use super::value::Value;
use super::{CodeSettings, Property, Settings, SettingsError, variables};

/// Where the value of a property came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// An environment variable for this worker, with its name.
    WorkerVariable(String),
    /// An environment variable for all workers, with its name.
    GlobalVariable(String),
    /// The code of the program.
    Code,
    /// The system default.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The name of a variable can contain any character of a task name.
            Self::WorkerVariable(name) => write!(f, "worker variable {}", name.escape_debug()),
            Self::GlobalVariable(name) => write!(f, "global variable {}", name.escape_debug()),
            Self::Code => f.write_str("code"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The settings of one worker, with the source of each value. The text lists each property with its value and source.
#[derive(Clone, Debug)]
pub struct Resolved {
    task_name: String,
    settings: Settings,
    /// The source of each property, by its discriminant.
    sources: [Source; Property::ALL.len()],
}

impl Resolved {
    /// Returns the settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the settings without their sources.
    #[must_use]
    pub fn into_settings(self) -> Settings {
        self.settings
    }

    /// Returns where the value of a property came from.
    #[must_use]
    pub const fn source(&self, property: Property) -> &Source {
        &self.sources[property as usize]
    }

    /// Logs each property with its value and source, in one line.
    pub fn log(&self) {
        tracing::info!(task_name = ?self.task_name, settings = %self, "worker settings");
    }

    /// Returns the value of a property as text.
    fn render(&self, property: Property) -> String {
        let settings = &self.settings;
        match property {
            Property::PollInterval => settings.poll_interval.render(),
            Property::ThreadCount => settings.thread_count.render(),
            Property::Domain => match &settings.domain {
                Some(domain) => domain.render(),
                None => "none".to_owned(),
            },
            Property::WorkerId => settings.worker_id.render(),
            Property::PollTimeout => settings.poll_timeout.render(),
            Property::RegisterTaskDef => settings.register_task_def.render(),
            Property::OverwriteTaskDef => settings.overwrite_task_def.render(),
            Property::StrictSchema => settings.strict_schema.render(),
            Property::Paused => settings.paused.render(),
            Property::LeaseExtendEnabled => settings.lease_extend_enabled.render(),
            Property::RegisterSchema => settings.register_schema.render(),
        }
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, property) in Property::ALL.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let value = self.render(property);
            let source = self.source(property);
            write!(f, "{separator}{property}={value} ({source})")?;
        }
        Ok(())
    }
}

/// Returns the settings of the worker for a task. See the [module](super) for the order in which values are looked up.
///
/// `environment` returns the value of an environment variable. [`resolve_from_environment`] uses the variables of this process.
///
/// # Errors
///
/// Returns the first value that is not allowed. A value that is overridden is not checked.
pub fn resolve(
    task_name: &str,
    code: &CodeSettings,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, SettingsError> {
    resolve_with(task_name, code, &|variable| {
        environment(variable).map(OsString::from)
    })
}

/// Returns the settings of the worker for a task, as [`resolve`] does, with the environment variables of this process.
///
/// # Errors
///
/// Returns the first value that is not allowed. A value that is not Unicode text is not allowed.
pub fn resolve_from_environment(
    task_name: &str,
    code: &CodeSettings,
) -> Result<Resolved, SettingsError> {
    resolve_with(task_name, code, &|variable| std::env::var_os(variable))
}

/// Does the work of [`resolve`]. The values of variables need not be Unicode text.
pub(super) fn resolve_with(
    task_name: &str,
    code: &CodeSettings,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Resolved, SettingsError> {
    let mut resolver = Resolver {
        task_name,
        environment,
        sources: Property::ALL.map(|_| Source::Default),
    };
    let default = Settings::default();
    let settings = Settings {
        poll_interval: resolver
            .find(Property::PollInterval, code.poll_interval)?
            .unwrap_or(default.poll_interval),
        thread_count: resolver
            .find(Property::ThreadCount, code.thread_count)?
            .unwrap_or(default.thread_count),
        domain: resolver
            .find(Property::Domain, text(code.domain.as_deref()))?
            .or(default.domain),
        worker_id: resolver
            .find(Property::WorkerId, text(code.worker_id.as_deref()))?
            .unwrap_or(default.worker_id),
        poll_timeout: resolver
            .find(Property::PollTimeout, code.poll_timeout)?
            .unwrap_or(default.poll_timeout),
        register_task_def: resolver
            .find(Property::RegisterTaskDef, code.register_task_def)?
            .unwrap_or(default.register_task_def),
        overwrite_task_def: resolver
            .find(Property::OverwriteTaskDef, code.overwrite_task_def)?
            .unwrap_or(default.overwrite_task_def),
        strict_schema: resolver
            .find(Property::StrictSchema, code.strict_schema)?
            .unwrap_or(default.strict_schema),
        paused: resolver
            .find(Property::Paused, code.paused)?
            .unwrap_or(default.paused),
        lease_extend_enabled: resolver
            .find(Property::LeaseExtendEnabled, code.lease_extend_enabled)?
            .unwrap_or(default.lease_extend_enabled),
        register_schema: resolver
            .find(Property::RegisterSchema, code.register_schema)?
            .unwrap_or(default.register_schema),
    };
    Ok(Resolved {
        task_name: task_name.to_owned(),
        settings,
        sources: resolver.sources,
    })
}

/// Returns a text that is set in code, without the blanks around it. `None` if it is empty.
fn text(set: Option<&str>) -> Option<String> {
    set.map(str::trim)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

/// Finds one property after the other and records their sources.
struct Resolver<'a> {
    task_name: &'a str,
    environment: &'a dyn Fn(&str) -> Option<OsString>,
    sources: [Source; Property::ALL.len()],
}

impl Resolver<'_> {
    /// Returns the value of a property from the environment, else the one from code. `None` if the default applies.
    fn find<T: Value>(
        &mut self,
        property: Property,
        code: Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let (value, source) = match (self.find_variable(property)?, code) {
            (Some(found), _) => (found.read(property)?, found.source),
            (None, Some(value)) => (self.check_code(property, value)?, Source::Code),
            (None, None) => return Ok(None),
        };
        self.sources[property as usize] = source;
        Ok(Some(value))
    }

    /// Returns the first variable of a property that is set.
    fn find_variable(&self, property: Property) -> Result<Option<Found>, SettingsError> {
        let of_worker = variables::of_worker(self.task_name, property)
            .into_iter()
            .map(|name| (name.clone(), Source::WorkerVariable(name)));
        let of_all = variables::of_all(property)
            .into_iter()
            .map(|name| (name.clone(), Source::GlobalVariable(name)));
        for (variable, source) in of_worker.chain(of_all) {
            let Some(value) = (self.environment)(&variable) else {
                continue;
            };
            let text = match value.into_string() {
                Ok(text) => text.trim().to_owned(),
                Err(value) => {
                    return Err(SettingsError::NotUnicode {
                        variable,
                        property,
                        text: value.to_string_lossy().into_owned(),
                        allowed: property.kind().to_string(),
                    });
                }
            };
            if !text.is_empty() {
                return Ok(Some(Found {
                    variable,
                    text,
                    source,
                }));
            }
        }
        Ok(None)
    }

    /// Returns a value that is set in code if it is allowed.
    fn check_code<T: Value>(&self, property: Property, value: T) -> Result<T, SettingsError> {
        if value.is_allowed(property.kind()) {
            return Ok(value);
        }
        Err(SettingsError::Code {
            task_name: self.task_name.to_owned(),
            property,
            value: value.render(),
            allowed: property.kind().to_string(),
        })
    }
}

/// An environment variable that is set.
struct Found {
    variable: String,
    /// The value without the blanks around it. It is not empty.
    text: String,
    source: Source,
}

impl Found {
    /// Returns the value of the variable if it is allowed.
    fn read<T: Value>(&self, property: Property) -> Result<T, SettingsError> {
        let kind = property.kind();
        T::read(&self.text)
            .filter(|value| value.is_allowed(kind))
            .ok_or_else(|| SettingsError::Variable {
                variable: self.variable.clone(),
                property,
                text: self.text.clone(),
                allowed: kind.to_string(),
            })
    }
}
