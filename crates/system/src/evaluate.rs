//! The evaluator of a host: its scripts run in the processes of this crate.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use longhaul_host::conductor::evaluate::{Evaluate, Script, ScriptFailure};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Scripts;

impl Evaluate for Scripts {
    fn evaluate<'a>(&'a self, script: &'a Script) -> BoxFuture<'a, Result<Value, ScriptFailure>> {
        async move {
            let input: Box<RawValue> =
                serde_json::from_str(&script.input).map_err(|error| ScriptFailure {
                    message: format!("the input of the script is not JSON: {error}"),
                    is_retriable: false,
                })?;
            Self::evaluate(self, &script.source, &input)
                .await
                .map_err(|failure| ScriptFailure {
                    message: failure.to_string(),
                    is_retriable: failure.is_retriable(),
                })
        }
        .boxed()
    }

    fn check_syntax<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async move {
            Self::check_syntax(self, source)
                .await
                .map_err(|failure| failure.to_string())
        }
        .boxed()
    }
}
