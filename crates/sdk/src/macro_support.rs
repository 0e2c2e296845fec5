//! Called by generated code only; not a stable API.
//!
//! The compiler reports mistakes that the macros cannot detect. An argument that serde cannot deserialize:
//!
//! ```compile_fail
//! # use longhaul_sdk::{ActivityResult, activity};
//! #[derive(serde::Serialize)]
//! struct Order;
//! #[activity]
//! async fn charge(order: Order) -> ActivityResult<()> { Ok(()) }
//! ```
//!
//! A result that serde cannot serialize:
//!
//! ```compile_fail
//! # use longhaul_sdk::{WorkflowContext, WorkflowResult, workflow};
//! struct Receipt;
//! #[workflow]
//! async fn checkout(ctx: WorkflowContext) -> WorkflowResult<Receipt> { Ok(Receipt) }
//! ```
//!
//! A message in the list of another kind:
//!
//! ```compile_fail
//! # use longhaul_sdk::{WorkflowContext, Signal, WorkflowResult, workflow};
//! const GO: Signal<()> = Signal::new("go");
//! #[workflow(queries(GO))]
//! async fn checkout(ctx: WorkflowContext) -> WorkflowResult<()> { Ok(()) }
//! ```
//!
//! A handler without a validator for an update that has one:
//!
//! ```compile_fail
//! # use longhaul_sdk::{State, Update, ValidatedUpdate, WorkflowContext};
//! const SET: ValidatedUpdate<u32, ()> = Update::validated("set");
//! fn handlers(ctx: &WorkflowContext, state: &State<u32>) {
//!     ctx.on_update(&SET, state, |state, value| { *state = value; Ok(()) });
//! }
//! ```
//!
//! A validator for an update that has none:
//!
//! ```compile_fail
//! # use longhaul_sdk::{State, Update, WorkflowContext};
//! const SET: Update<u32, ()> = Update::new("set");
//! fn handlers(ctx: &WorkflowContext, state: &State<u32>) {
//!     ctx.on_validated_update(&SET, state, |_, _| Ok(()), |state, value| { *state = value; Ok(()) });
//! }
//! ```
//!
//! Code without these mistakes compiles:
//!
//! ```
//! # use longhaul_sdk::{ActivityResult, WorkflowContext, Signal, WorkflowResult, activity, workflow};
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order;
//! #[activity]
//! async fn charge(order: Order) -> ActivityResult<()> { Ok(()) }
//! const GO: Signal<()> = Signal::new("go");
//! #[workflow(signals(GO))]
//! async fn checkout(ctx: WorkflowContext) -> WorkflowResult<Order> { Ok(Order) }
//! # use longhaul_sdk::{State, Update, ValidatedUpdate};
//! const SET: Update<u32, ()> = Update::new("set");
//! const CHECKED: ValidatedUpdate<u32, ()> = Update::validated("checked");
//! fn handlers(ctx: &WorkflowContext, state: &State<u32>) {
//!     ctx.on_update(&SET, state, |state, value| { *state = value; Ok(()) });
//!     ctx.on_validated_update(&CHECKED, state, |_, _| Ok(()), |state, value| { *state = value; Ok(()) });
//! }
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Lets the compiler report, at the type itself, an argument or result that serde cannot serialize or deserialize.
pub fn check_serde<T: Serialize + DeserializeOwned>() {}
