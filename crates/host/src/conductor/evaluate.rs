//! Scripts of definitions. The host does not run them. The program that starts the host supplies an evaluator with limits of its
//! own.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
pub use longhaul_engine::conductor::execution::lookup::{Script, ScriptFailure};
use serde_json::Value;

/// Evaluates scripts.
pub trait Evaluate: Send + Sync + 'static {
    /// Returns the value of the script.
    fn evaluate<'a>(&'a self, script: &'a Script) -> BoxFuture<'a, Result<Value, ScriptFailure>>;

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
        let failure = ScriptFailure {
            message: "this server has no script evaluator".to_owned(),
            is_retriable: false,
        };
        Box::pin(std::future::ready(Err(failure)))
    }

    fn check_syntax<'a>(&'a self, _source: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
