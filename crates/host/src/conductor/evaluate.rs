//! Scripts and schemas of definitions. The host does not evaluate them. The program that starts the host supplies an evaluator with
//! limits of its own.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
pub use longhaul_engine::conductor::execution::lookup::{Comparison, Script, ScriptFailure};
use serde_json::Value;

/// Evaluates scripts and compares values with schemas.
pub trait Evaluate: Send + Sync + 'static {
    /// Returns the value of the script.
    fn evaluate<'a>(&'a self, script: &'a Script) -> BoxFuture<'a, Result<Value, ScriptFailure>>;

    /// Returns all results of a jq program.
    fn jq<'a>(&'a self, program: &'a Script) -> BoxFuture<'a, Result<Vec<Value>, ScriptFailure>>;

    /// Returns how a value differs from a JSON Schema; nothing if it matches.
    fn compare<'a>(
        &'a self,
        comparison: &'a Comparison,
    ) -> BoxFuture<'a, Result<Vec<String>, ScriptFailure>>;

    /// Returns why the text is not a script, if it is not. It is never run.
    fn check_syntax<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<(), String>>;
}

/// The evaluator of a host.
#[derive(Clone)]
pub struct Evaluator(pub Arc<dyn Evaluate>);

impl fmt::Debug for Evaluator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Evaluator")
    }
}

impl Default for Evaluator {
    fn default() -> Self {
        Self(Arc::new(NoScripts))
    }
}

/// Refuses every script.
struct NoScripts;

impl Evaluate for NoScripts {
    fn evaluate<'a>(&'a self, _script: &'a Script) -> BoxFuture<'a, Result<Value, ScriptFailure>> {
        Box::pin(std::future::ready(Err(no_evaluator())))
    }

    fn jq<'a>(&'a self, _program: &'a Script) -> BoxFuture<'a, Result<Vec<Value>, ScriptFailure>> {
        Box::pin(std::future::ready(Err(no_evaluator())))
    }

    fn compare<'a>(
        &'a self,
        _comparison: &'a Comparison,
    ) -> BoxFuture<'a, Result<Vec<String>, ScriptFailure>> {
        Box::pin(std::future::ready(Err(no_evaluator())))
    }

    fn check_syntax<'a>(&'a self, _source: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn no_evaluator() -> ScriptFailure {
    ScriptFailure {
        message: "this server has no script evaluator".to_owned(),
        is_retriable: false,
    }
}
