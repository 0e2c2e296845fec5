//! Admission limits and other settings that few operators use. They have no flags. Each is read from `LONGHAUL_NAME`, then from
//! `DW_NAME` (the name in the reference server), then from the table `[limits]` of the file, in lower case. Empty counts as
//! unset; unset means no limit.

use longhaul_host::api::{Admission, Caps, FleetValidation, Override};
use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use longhaul_host::{NamespaceCaps, PollCaps, RequestCaps};
use longhaul_server::SigningKey;
use serde::de::DeserializeOwned;

/// The effective limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) admission: Admission,
    pub(crate) poll_caps: PollCaps,
    pub(crate) request_caps: RequestCaps,
    pub(crate) fleet_validation: FleetValidation,
    /// Signs exported histories.
    pub(crate) export_key: Option<SigningKey>,
}

/// Reads settings one by one. A key of the file that was not read is an error at the end.
pub(super) struct Source<'a> {
    environment: &'a dyn Fn(&str) -> Option<String>,
    file: toml::Table,
}

impl<'a> Source<'a> {
    pub(super) fn new(
        environment: &'a dyn Fn(&str) -> Option<String>,
        file: Option<toml::Table>,
    ) -> Self {
        Self {
            environment,
            file: file.unwrap_or_default(),
        }
    }

    /// Returns the text of a setting and the place where it was found.
    fn text(&mut self, name: &str) -> Option<(String, String)> {
        let own = name.strip_prefix("V2_").unwrap_or(name);
        let from_file = self.file.remove(&own.to_lowercase());
        for variable in [format!("LONGHAUL_{own}"), format!("DW_{name}")] {
            let found = (self.environment)(&variable).filter(|text| !text.trim().is_empty());
            if let Some(text) = found {
                return Some((variable, text.trim().to_owned()));
            }
        }
        let text = match from_file? {
            toml::Value::String(text) => text,
            table @ toml::Value::Table(_) => serde_json::to_string(&table).unwrap_or_default(),
            other => other.to_string(),
        };
        (!text.is_empty()).then(|| (format!("limits.{}", own.to_lowercase()), text))
    }

    fn parsed<T: FromStr>(&mut self, name: &str, wanted: &str) -> Result<Option<T>> {
        let Some((place, text)) = self.text(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => bail!("{place} must be {wanted}, not `{text}`"),
        }
    }

    fn count(&mut self, name: &str) -> Result<Option<u64>> {
        self.parsed(name, "a whole number")
    }

    /// Reads an object, as JSON text or as a table of the file.
    fn object<T: DeserializeOwned>(&mut self, name: &str) -> Result<BTreeMap<String, T>> {
        match self.text(name) {
            Some((place, text)) => serde_json::from_str(&text)
                .with_context(|| format!("{place} must be a JSON object of the documented shape")),
            None => Ok(BTreeMap::new()),
        }
    }

    pub(super) fn read(mut self) -> Result<Limits> {
        let limits = Limits {
            admission: Admission {
                workflow_tasks: self.caps("WORKFLOW_TASK")?,
                activity_tasks: self.caps("ACTIVITY_TASK")?,
                overrides: self.object::<Override>("TASK_QUEUE_ADMISSION_OVERRIDES")?,
            },
            poll_caps: PollCaps {
                max: self.parsed("WORKER_LONG_POLL_MAX_CONCURRENT", "a whole number")?,
                max_per_namespace: self.parsed(
                    "WORKER_LONG_POLL_MAX_CONCURRENT_PER_NAMESPACE",
                    "a whole number",
                )?,
            },
            request_caps: RequestCaps {
                usual: self.requests("NAMESPACE_MAX")?,
                hard: self.requests("NAMESPACE_HARD_MAX")?,
                overrides: self.object("NAMESPACE_ADMISSION_OVERRIDES")?,
            },
            fleet_validation: self.fleet_validation()?,
            export_key: self.export_key(),
        };
        if let Some(key) = self.file.keys().next() {
            bail!("the configuration file has an unknown key limits.{key}");
        }
        Ok(limits)
    }

    fn caps(&mut self, kind: &str) -> Result<Caps> {
        let mut count = |name: &str| self.count(&format!("{kind}_{name}"));
        Ok(Caps {
            max_active_leases: count("MAX_ACTIVE_LEASES_PER_QUEUE")?,
            max_active_leases_per_namespace: count("MAX_ACTIVE_LEASES_PER_NAMESPACE")?,
            max_dispatches_per_minute: count("MAX_DISPATCHES_PER_MINUTE")?,
            max_dispatches_per_minute_per_namespace: count(
                "MAX_DISPATCHES_PER_MINUTE_PER_NAMESPACE",
            )?,
            dispatch_budget_group: None,
            max_dispatches_per_minute_per_budget_group: None,
        })
    }

    fn requests(&mut self, prefix: &str) -> Result<NamespaceCaps> {
        Ok(NamespaceCaps {
            max_requests_per_minute: self.count(&format!("{prefix}_REQUESTS_PER_MINUTE"))?,
            max_concurrent_requests: self.count(&format!("{prefix}_CONCURRENT_REQUESTS"))?,
        })
    }

    fn export_key(&mut self) -> Option<SigningKey> {
        let id = self.text("V2_HISTORY_EXPORT_SIGNING_KEY_ID");
        let (_, secret) = self.text("V2_HISTORY_EXPORT_SIGNING_KEY")?;
        Some(SigningKey::new(secret, id.map(|(_, id)| id)))
    }

    fn fleet_validation(&mut self) -> Result<FleetValidation> {
        match self.text("V2_FLEET_VALIDATION_MODE") {
            None => Ok(FleetValidation::Warn),
            Some((place, text)) => match text.as_str() {
                "warn" => Ok(FleetValidation::Warn),
                "fail" => Ok(FleetValidation::Fail),
                _ => bail!("{place} must be warn or fail, not `{text}`"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(environment: &[(&str, &str)], file: &str) -> Result<Limits> {
        let look = |name: &str| {
            environment
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Source::new(&look, Some(file.parse().unwrap())).read()
    }

    #[test]
    fn our_name_precedes_the_reference_name_and_that_the_file() {
        let file =
            "workflow_task_max_active_leases_per_queue = 3\nfleet_validation_mode = \"fail\"";
        let dw = ("DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_QUEUE", "2");
        let own = ("LONGHAUL_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_QUEUE", "1");
        let cap = |environment: &[(&str, &str)]| {
            let limits = read(environment, file).unwrap();
            assert_eq!(limits.fleet_validation, FleetValidation::Fail);
            limits.admission.workflow_tasks.max_active_leases
        };
        assert_eq!(cap(&[]), Some(3));
        assert_eq!(cap(&[dw]), Some(2));
        assert_eq!(cap(&[dw, own]), Some(1));
        let empty = ("LONGHAUL_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_QUEUE", " ");
        assert_eq!(cap(&[dw, empty]), Some(2), "empty counts as unset");
    }

    #[test]
    fn overrides_are_json_or_a_table() {
        let json = r#"{"default:orders": {"activity_tasks": {"max_dispatches_per_minute": 5}}}"#;
        let by_json = read(&[("DW_TASK_QUEUE_ADMISSION_OVERRIDES", json)], "").unwrap();
        let table = "[task_queue_admission_overrides.\"default:orders\".activity_tasks]\nmax_dispatches_per_minute = 5";
        let by_table = read(&[], table).unwrap();
        assert_eq!(by_json.admission, by_table.admission);
        assert_eq!(by_json.admission.overrides.len(), 1);
    }

    #[test]
    fn invalid_values_and_unknown_keys_are_refused() {
        for (environment, file) in [
            (vec![("DW_NAMESPACE_MAX_REQUESTS_PER_MINUTE", "many")], ""),
            (vec![("DW_V2_FLEET_VALIDATION_MODE", "strict")], ""),
            (vec![("DW_TASK_QUEUE_ADMISSION_OVERRIDES", "[]")], ""),
            (
                vec![(
                    "DW_TASK_QUEUE_ADMISSION_OVERRIDES",
                    r#"{"*": {"workflow_tasks": {"max": 1}}}"#,
                )],
                "",
            ),
            (vec![], "workflow_task_max_leases = 3"),
        ] {
            assert!(read(&environment, file).is_err(), "{environment:?} {file}");
        }
    }
}
