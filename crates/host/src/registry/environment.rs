//! Values and secrets that definitions may use, from the program that starts the host. They are the same as long as it runs.
//!
//! A value is resolved when a task is scheduled, and is stored like every other value. A secret is never stored: the stored input keeps
//! the expression that names it, and only the copy for a worker, or for a call that the server makes, contains the secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use longhaul_engine::conductor::Budget;
use longhaul_engine::conductor::execution::lookup::EnvironmentValues;
use longhaul_engine::conductor::expression::reveal_secrets;
use longhaul_protocol::conductor::Object;
use serde_json::Value;

use crate::sweeps::system_tasks::TaskEnd;

/// What stands in place of a secret in an answer that contained it.
const REDACTED: &str = "***";

/// How expressions begin that name secrets.
const SECRET_OPENING: &str = "${workflow.secrets.";

/// How often a secret is looked for as JSON text in JSON text. A reason is the text of an answer, which may contain the text of a request.
const JSON_LEVELS: usize = 3;

/// Values and secrets by name.
#[derive(Clone, Default)]
pub struct Environment {
    values: EnvironmentValues,
    secrets: Arc<BTreeMap<String, String>>,
}

impl Environment {
    /// Adds a value for `${workflow.env.NAME}`.
    #[must_use]
    pub fn with_value(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.values.of_workflows).insert(name.into(), value.into());
        self
    }

    /// Adds a value for `${NAME}` and `${workflow.env.NAME}`.
    #[must_use]
    pub fn with_named_value(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        Arc::make_mut(&mut self.values.named).insert(name.clone(), value.clone());
        self.with_value(name, value)
    }

    /// Adds a secret for `${workflow.secrets.NAME}`.
    #[must_use]
    pub fn with_secret(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.secrets).insert(name.into(), secret.into());
        self
    }

    /// Returns the values that expressions see.
    pub(crate) fn values(&self) -> &EnvironmentValues {
        &self.values
    }

    /// Replaces the secrets in an input. If that would exceed a limit, the input stays as it is. Returns the secrets that it contains.
    pub(crate) fn reveal(&self, input: &mut Object) -> Revealed {
        let used = std::cell::RefCell::new(BTreeSet::new());
        let find = |name: &str| {
            let secret = self.secrets.get(name).cloned();
            used.borrow_mut().extend(secret.clone());
            secret
        };
        let mut value = Value::Object(input.clone());
        if reveal_secrets(&mut value, &find, &mut Budget::default()).is_ok()
            && let Value::Object(revealed) = value
        {
            *input = revealed;
        }
        Revealed::of(used.into_inner())
    }

    /// Returns the secrets and values with these names.
    pub(crate) fn metadata(&self, names: &[String]) -> BTreeMap<String, String> {
        let find = |name: &String| {
            let found = self.secrets.get(name);
            found
                .or_else(|| self.values.of_workflows.get(name))
                .cloned()
        };
        names
            .iter()
            .filter_map(|name| Some((name.clone(), find(name)?)))
            .collect()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names only: this may end up in a log.
        out.debug_struct("Environment")
            .field("values", &self.values.of_workflows.keys())
            .field("secrets", &self.secrets.keys())
            .finish()
    }
}

/// The secrets in an input, in the forms in which they may come back.
pub(crate) struct Revealed {
    /// The longest first: one may be a part of another.
    forms: Vec<String>,
}

impl Revealed {
    fn of(secrets: BTreeSet<String>) -> Self {
        let mut forms = BTreeSet::new();
        for secret in secrets {
            // A path can take one text out of a secret that is JSON.
            if let Ok(value) = serde_json::from_str::<Value>(&secret) {
                add_texts(&value, &mut forms);
            }
            add_forms(&secret, &mut forms);
        }
        let mut forms: Vec<String> = forms.into_iter().collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self { forms }
    }

    /// Removes the secrets from what a call brought, and everything that would name a secret when it is used as an input.
    pub(crate) fn redact(&self, end: &mut TaskEnd) {
        if let Some(reason) = &mut end.reason {
            self.redact_text(reason);
        }
        let mut output = Value::Object(std::mem::take(&mut end.output));
        self.redact_value(&mut output);
        if let Value::Object(output) = output {
            end.output = output;
        }
    }

    /// The recursion is as deep as the reader of JSON allows.
    fn redact_value(&self, value: &mut Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let text = number.to_string();
                if self.forms.contains(&text) {
                    *value = Value::from(REDACTED);
                }
            }
            Value::String(text) => self.redact_text(text),
            Value::Array(list) => list.iter_mut().for_each(|value| self.redact_value(value)),
            Value::Object(members) => {
                for (mut name, mut value) in std::mem::take(members) {
                    self.redact_text(&mut name);
                    self.redact_value(&mut value);
                    members.insert(name, value);
                }
            }
        }
    }

    fn redact_text(&self, text: &mut String) {
        for form in self.forms.iter().map(String::as_str) {
            if text.contains(form) {
                *text = text.replace(form, REDACTED);
            }
        }
        if text.contains(SECRET_OPENING) {
            *text = text.replace(SECRET_OPENING, "***{workflow.secrets.");
        }
    }
}

fn add_texts(value: &Value, forms: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => add_forms(text, forms),
        Value::Array(list) => list.iter().for_each(|value| add_texts(value, forms)),
        Value::Object(members) => members.values().for_each(|value| add_texts(value, forms)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds a secret as it is, as a JSON text, and as part of a URI.
fn add_forms(secret: &str, forms: &mut BTreeSet<String>) {
    if secret.is_empty() {
        return;
    }
    let in_uri = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    forms.insert(secret.bytes().map(in_uri).collect());
    let mut form = secret.to_owned();
    for _ in 0..JSON_LEVELS {
        let json = Value::from(form.as_str()).to_string();
        forms.insert(std::mem::replace(
            &mut form,
            json[1..json.len() - 1].to_owned(),
        ));
    }
    forms.insert(form);
}

#[cfg(test)]
mod tests {
    use longhaul_protocol::conductor::ResultStatus;
    use serde_json::json;

    use super::*;

    fn environment() -> Environment {
        Environment::default()
            .with_value("REGION", "north")
            .with_secret("KEY", "k\"1/ä")
            .with_secret("PIN", "4711")
            .with_secret("DB", r#"{"user": "u1", "password": "p-77"}"#)
    }

    fn members(value: Value) -> Object {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn what_comes_back_of_a_call_has_no_secret() {
        let mut input = members(json!({
            "key": "Bearer ${workflow.secrets.KEY}", "pin": "${workflow.secrets.PIN}", "password": "${workflow.secrets.DB.password}"
        }));
        let revealed = environment().reveal(&mut input);
        assert_eq!(
            Value::Object(input),
            json!({"key": "Bearer k\"1/ä", "pin": "4711", "password": "p-77"})
        );
        let mut end = TaskEnd {
            status: ResultStatus::Failed,
            reason: Some("refused k\"1/ä and 4711".to_owned()),
            output: members(json!({"response": {
                "body": [4711, 47110, {"p-77": "raw k\"1/ä"}, "in JSON: {\"k\\\"1/ä\"}", "/?q=k%221%2F%C3%A4", "u1"],
                "headers": {"X": ["${workflow.secrets.OTHER}"]},
            }})),
        };
        revealed.redact(&mut end);
        assert_eq!(end.reason.as_deref(), Some("refused *** and ***"));
        assert_eq!(
            Value::Object(end.output),
            json!({"response": {
                "body": ["***", 47110, {"***": "raw ***"}, "in JSON: {\"***\"}", "/?q=***", "***"],
                "headers": {"X": ["***{workflow.secrets.OTHER}"]},
            }})
        );
    }

    #[test]
    fn no_secret_is_shown_for_a_log() {
        let shown = format!("{:?}", environment());
        assert!(shown.contains("KEY") && shown.contains("REGION"), "{shown}");
        for secret in ["4711", "p-77", "north"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn metadata_has_secrets_and_values() {
        let names = ["PIN", "REGION", "NONE"].map(str::to_owned);
        let expected = [("PIN", "4711"), ("REGION", "north")];
        assert_eq!(
            environment().metadata(&names),
            expected
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
    }
}
