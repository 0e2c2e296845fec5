//! The attribute macros of `longhaul-sdk`, which re-exports and documents them.
//!
//! A function becomes three things with the same name: a function that returns a call, a type that workers register, and, on that
//! type, the body as written. `function` has what the two macros have in common; `activity` and `workflow` generate the rest.

use proc_macro::TokenStream;

mod activity;
mod attributes;
mod function;
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
