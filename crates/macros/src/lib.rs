//! The attribute macros of `longhaul-sdk` and `longhaul-conductor-sdk`, which re-export and document them.
//!
//! A function of `longhaul-sdk` becomes three things with the same name: a function that returns a call, a type that workers register,
//! and, on that type, the body as written. `function` has what the two macros have in common; `activity` and `workflow` generate the
//! rest. A function of `longhaul-conductor-sdk` stays as it is, and `worker_task` adds a type that makes its worker.

use proc_macro::TokenStream;

mod activity;
mod attributes;
mod function;
mod worker_task;
mod workflow;

#[cfg(test)]
mod tests;

/// Turns a function into an activity.
///
/// The function takes owned arguments that serde can serialize and deserialize, and may take an `ActivityContext` before them. It
/// returns an `ActivityResult`. A function that is not `async` runs on a thread for blocking code.
///
/// * `charge(order)` returns a call, for `WorkflowContext::activity`.
/// * The type `charge` is for `WorkerBuilder::activity`.
/// * `charge::run(order)` is the body as written, for unit tests.
///
/// The name of the activity is the name of the function, or `#[activity(name = "…")]`.
#[proc_macro_attribute]
pub fn activity(attribute: TokenStream, item: TokenStream) -> TokenStream {
    activity::expand(attribute.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Turns an `async` function into a workflow.
///
/// The function takes a `WorkflowContext`, then owned arguments that serde can serialize and deserialize, and returns a
/// `WorkflowResult`.
///
/// * `checkout(order)` returns a call, for `Client::start` and `WorkflowContext::child`.
/// * The type `checkout` is for `WorkerBuilder::workflow`.
/// * `checkout::run(ctx, order)` is the body as written.
///
/// The name of the workflow is the name of the function, or `#[workflow(name = "…")]`. `signals(…)`, `queries(…)` and
/// `updates(…)` list the constants of its messages. The worker registers these lists, and the server refuses other messages. The
/// body must set a handler for every listed query and update before its first `.await`.
#[proc_macro_attribute]
pub fn workflow(attribute: TokenStream, item: TokenStream) -> TokenStream {
    workflow::expand(attribute.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Turns a function into a Conductor worker. For `longhaul-conductor-sdk`.
///
/// Each parameter is the member of its name in the input of the task. A missing member is null, which an `Option` takes for `None`.
/// `#[serde(default)]`, `#[serde(default = "path")]` and `#[serde(rename = "name")]` on a parameter do what they do on a field. The
/// function returns a value, `TaskInProgress`, `TaskResult` or an `Outcome`, alone or in a `TaskResponse`. A function that is not `async`
/// runs on threads.
///
/// * `charge(…)` is the function as written, for unit tests.
/// * `charge::worker()` is the worker, for `TaskHandlerBuilder::worker`. `TaskHandlerBuilder::discover` finds it by itself.
///
/// The task type is the name of the function, or `#[worker_task("…")]`. The settings of a worker follow, such as `thread_count = 20`, and
/// `task_definition = …` gives the template of its task definition.
///
/// The JSON Schemas of input and output are made of the types of the function, if they implement `schemars::JsonSchema`.
#[proc_macro_attribute]
pub fn worker_task(attribute: TokenStream, item: TokenStream) -> TokenStream {
    worker_task::expand(attribute.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
