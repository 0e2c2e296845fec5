//! The evaluator of a host: its scripts run in the processes of this crate.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use longhaul_host::conductor::evaluate::{Comparison, Evaluate, Script, ScriptFailure};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::{Failure, Scripts};

impl Evaluate for Scripts {
    fn evaluate<'a>(&'a self, script: &'a Script) -> BoxFuture<'a, Result<Value, ScriptFailure>> {
        async move {
            let input = raw(&script.input)?;
            let evaluated = Self::evaluate(self, &script.source, &input).await;
            evaluated.map_err(script_failure)
        }
        .boxed()
    }

    fn jq<'a>(&'a self, program: &'a Script) -> BoxFuture<'a, Result<Vec<Value>, ScriptFailure>> {
        async move {
            let input = raw(&program.input)?;
            let results = self.evaluate_jq(&program.source, &input).await;
            results.map_err(plain_failure)
        }
        .boxed()
    }

    fn compare<'a>(
        &'a self,
        comparison: &'a Comparison,
    ) -> BoxFuture<'a, Result<Vec<String>, ScriptFailure>> {
        async move {
            let schema = raw(&comparison.schema)?;
            let value = raw(&comparison.value)?;
            let compared = Self::compare(self, &schema, &value).await;
            compared.map_err(plain_failure)
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

fn raw(json: &str) -> Result<Box<RawValue>, ScriptFailure> {
    serde_json::from_str(json).map_err(|error| ScriptFailure {
        message: format!("the input is not JSON: {error}"),
        is_retriable: false,
    })
}

/// Returns a failure whose message is in the words of the interpreter.
fn plain_failure(failure: Failure) -> ScriptFailure {
    match failure {
        Failure::Script { message, .. } => ScriptFailure {
            message,
            is_retriable: false,
        },
        other => script_failure(other),
    }
}

fn script_failure(failure: Failure) -> ScriptFailure {
    ScriptFailure {
        message: failure.to_string(),
        is_retriable: failure.is_retriable(),
    }
}
