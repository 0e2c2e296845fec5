//! The attribute macros of `longhaul-sdk`, which re-exports and documents them.
//!
//! A function becomes three things of the same name: a function that makes the call, a type that names the definition,
//! and, on that type, the body as it was written. `function` reads and checks what the two macros have in common,
//! `activity` and `workflow` write the rest.

use proc_macro::TokenStream;

mod activity;
mod attributes;
mod function;
mod workflow;

#[cfg(test)]
mod tests;

/// Makes an activity of a function.
///
/// The function takes owned arguments that serde can write and read, optionally an `ActivityContext` before them, and
/// returns an `ActivityResult`. It may be `async` or not; one that is not runs on a thread where it may block.
///
/// * `charge(order)` makes an `ActivityCall`, for `WorkflowContext::activity`;
/// * the type `charge` is for `WorkerBuilder::activity`;
/// * `charge::run(order)` is the body, for tests.
///
/// The activity is known by the function's name, or by `#[activity(name = "…")]`.
#[proc_macro_attribute]
pub fn activity(attribute: TokenStream, item: TokenStream) -> TokenStream {
    activity::expand(attribute.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a workflow of an `async` function.
///
/// The function takes a `WorkflowContext`, then owned arguments that serde can write and read, and returns a `WorkflowResult`.
///
/// * `checkout(order)` makes a `WorkflowCall`, for `Client::start` and `WorkflowContext::child`;
/// * the type `checkout` is for `WorkerBuilder::workflow`;
/// * `checkout::run(ctx, order)` is the body.
///
/// The workflow is known by the function's name, or by `#[workflow(name = "…")]`. Messages that it understands are
/// declared with `signals(…)`, `queries(…)` and `updates(…)`, each a list of constants; a server then refuses others.
#[proc_macro_attribute]
pub fn workflow(attribute: TokenStream, item: TokenStream) -> TokenStream {
    workflow::expand(attribute.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
