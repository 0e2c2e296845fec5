//! The options of a worker session, as they occur on a command, in history and in a create request.
//!
//! They are stored as the author wrote them, trimmed and without duplicates. The accessors return the defaults of options
//! that are absent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::SessionId;
use crate::workflow_command::FieldErrors;

/// The most characters of a session id, queue, connection or requirement.
pub const NAME_CHARACTERS_MAX: usize = 255;

/// The default number of seconds that a session lives without renewal.
pub const LEASE_SECONDS_DEFAULT: u64 = 120;

/// The default number of seconds that a session lives at most.
pub const TTL_SECONDS_DEFAULT: u64 = 1800;

/// The default number of attempts that may run in a session at once.
pub const MAX_CONCURRENT_ACTIVITIES_DEFAULT: u64 = 1;

/// Requests that a worker can make about a session.
pub const WORKER_SESSION_VERBS: &[&str] = &["create", "heartbeat", "close"];

/// The options that the author gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSessionOptions {
    /// The author's name for the session.
    pub session_id: SessionId,
    /// A name that the author may use; the server keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// The queue of the session; absent means the queue of the activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Capabilities that the worker must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_concurrent_activities: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    create_if_missing: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow_reacquire_after_failure: Option<bool>,
}

impl WorkerSessionOptions {
    /// Returns options with this id and defaults for the rest.
    pub fn new(session_id: impl Into<SessionId>) -> Self {
        Self {
            session_id: session_id.into(),
            connection: None,
            queue: None,
            requirements: Vec::new(),
            lease_seconds: None,
            ttl_seconds: None,
            max_concurrent_activities: None,
            create_if_missing: None,
            allow_reacquire_after_failure: None,
        }
    }

    /// Reads the fields of `map`. Errors are added to `errors`; `at` is the path in front of the field names.
    pub fn read(map: &Map<String, Value>, at: &str, errors: &mut FieldErrors) -> Option<Self> {
        let before = errors.len();
        let mut reader = Reader { map, at, errors };
        let session_id = match reader.text("session_id") {
            Some(text) => text,
            None => {
                if reader.value("session_id").is_none() {
                    reader.refuse("session_id", "is required");
                }
                String::new()
            }
        };
        let options = Self {
            session_id: session_id.into(),
            connection: reader.text("connection"),
            queue: reader.text("queue"),
            requirements: reader.requirements(),
            lease_seconds: reader.number("lease_seconds"),
            ttl_seconds: reader.number("ttl_seconds"),
            max_concurrent_activities: reader.number("max_concurrent_activities"),
            create_if_missing: reader.flag("create_if_missing"),
            allow_reacquire_after_failure: reader.flag("allow_reacquire_after_failure"),
        };
        (errors.len() == before).then_some(options)
    }

    /// Seconds that the session lives without renewal.
    pub fn lease_seconds(&self) -> u64 {
        self.lease_seconds.unwrap_or(LEASE_SECONDS_DEFAULT)
    }

    /// Seconds that the session lives at most.
    pub fn ttl_seconds(&self) -> u64 {
        self.ttl_seconds.unwrap_or(TTL_SECONDS_DEFAULT)
    }

    /// The number of attempts that may run in the session at once.
    pub fn max_concurrent_activities(&self) -> u64 {
        self.max_concurrent_activities
            .unwrap_or(MAX_CONCURRENT_ACTIVITIES_DEFAULT)
    }

    /// Whether the first admitted activity creates the session.
    pub fn create_if_missing(&self) -> bool {
        self.create_if_missing.unwrap_or(true)
    }

    /// Whether another worker may take over the session after its holder was lost.
    pub fn allow_reacquire_after_failure(&self) -> bool {
        self.allow_reacquire_after_failure.unwrap_or(true)
    }
}

struct Reader<'a> {
    map: &'a Map<String, Value>,
    at: &'a str,
    errors: &'a mut FieldErrors,
}

impl Reader<'_> {
    fn refuse(&mut self, field: &str, message: &str) {
        let path = format!("{}{field}", self.at);
        self.errors
            .entry(path)
            .or_default()
            .push(message.to_owned());
    }

    /// Null counts as absent.
    fn value(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    fn text(&mut self, field: &str) -> Option<String> {
        let trimmed = name(self.value(field)?);
        if trimmed.is_none() {
            self.refuse(field, NAME_WANTED);
        }
        trimmed
    }

    fn number(&mut self, field: &str) -> Option<u64> {
        let number = self.value(field)?.as_u64().filter(|number| *number >= 1);
        if number.is_none() {
            self.refuse(field, "must be an integer of at least 1");
        }
        number
    }

    fn flag(&mut self, field: &str) -> Option<bool> {
        let flag = self.value(field)?.as_bool();
        if flag.is_none() {
            self.refuse(field, "must be true or false");
        }
        flag
    }

    fn requirements(&mut self) -> Vec<String> {
        let Some(value) = self.value("requirements").cloned() else {
            return Vec::new();
        };
        let Value::Array(list) = value else {
            self.refuse("requirements", "must be a list of capability strings");
            return Vec::new();
        };
        let mut requirements = Vec::with_capacity(list.len());
        for (place, value) in list.iter().enumerate() {
            match name(value) {
                Some(requirement) if requirements.contains(&requirement) => {}
                Some(requirement) => requirements.push(requirement),
                None => self.refuse(&format!("requirements.{place}"), NAME_WANTED),
            }
        }
        requirements
    }
}

const NAME_WANTED: &str = "must be a string of 1 to 255 characters that is not blank";

/// Returns the trimmed string if it is a valid name.
fn name(value: &Value) -> Option<String> {
    let text = value.as_str()?.trim();
    let fits = !text.is_empty() && text.chars().count() <= NAME_CHARACTERS_MAX;
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<WorkerSessionOptions, FieldErrors> {
        let mut errors = FieldErrors::new();
        let map = value.as_object().unwrap();
        WorkerSessionOptions::read(map, "at.", &mut errors).ok_or(errors)
    }

    #[track_caller]
    fn refused(value: &Value, field: &str) {
        let errors = read(value).unwrap_err();
        let fields: Vec<_> = errors.keys().map(String::as_str).collect();
        assert_eq!(fields, [format!("at.{field}")], "{value}");
    }

    #[test]
    fn absent_options_have_defaults_and_are_not_serialized() {
        let options = read(&json!({"session_id": " gpu ", "queue": null})).unwrap();
        assert_eq!(
            (
                options.lease_seconds(),
                options.ttl_seconds(),
                options.max_concurrent_activities(),
                options.create_if_missing(),
                options.allow_reacquire_after_failure()
            ),
            (120, 1800, 1, true, true)
        );
        assert_eq!(
            serde_json::to_value(&options).unwrap(),
            json!({"session_id": "gpu"})
        );
    }

    #[test]
    fn given_options_are_kept_trimmed_and_without_duplicates() {
        let authored = json!({
            "session_id": "gpu", "connection": "c", "queue": "q", "requirements": [" gpu:a100", "fs:/m", "gpu:a100 "],
            "lease_seconds": 9000, "ttl_seconds": 1, "max_concurrent_activities": 3, "create_if_missing": false,
            "allow_reacquire_after_failure": false, "unknown": 7,
        });
        assert_eq!(
            serde_json::to_value(read(&authored).unwrap()).unwrap(),
            json!({
                "session_id": "gpu", "connection": "c", "queue": "q", "requirements": ["gpu:a100", "fs:/m"],
                "lease_seconds": 9000, "ttl_seconds": 1, "max_concurrent_activities": 3, "create_if_missing": false,
                "allow_reacquire_after_failure": false,
            })
        );
    }

    #[test]
    fn every_refusal_names_its_field() {
        refused(&json!({}), "session_id");
        for (field, wrong) in [
            ("session_id", json!("  ")),
            ("session_id", json!(7)),
            ("session_id", json!("x".repeat(256))),
            ("connection", json!("")),
            ("queue", json!([])),
            ("requirements", json!("gpu")),
            ("lease_seconds", json!(0)),
            ("lease_seconds", json!(1.5)),
            ("ttl_seconds", json!(-1)),
            ("max_concurrent_activities", json!("1")),
            ("create_if_missing", json!("yes")),
            ("allow_reacquire_after_failure", json!(1)),
        ] {
            let mut value = json!({"session_id": "s"});
            value[field] = wrong;
            refused(&value, field);
        }
        refused(
            &json!({"session_id": "s", "requirements": ["a", " "]}),
            "requirements.1",
        );
    }

    #[test]
    fn a_name_may_have_255_characters_of_any_script() {
        let id = "é".repeat(255);
        assert_eq!(
            read(&json!({"session_id": id}))
                .unwrap()
                .session_id
                .as_str(),
            id
        );
    }
}
