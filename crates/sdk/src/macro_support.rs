//! What the attribute macros write calls of. Not for others: it changes without notice.
//!
//! What the macros cannot see, the compiler says: arguments that serde cannot read,
//!
//! ```compile_fail
//! # use longhaul_sdk::{ActivityResult, activity};
//! #[derive(serde::Serialize)]
//! struct Order;
//! #[activity]
//! async fn charge(order: Order) -> ActivityResult<()> { Ok(()) }
//! ```
//!
//! results that serde cannot write,
//!
//! ```compile_fail
//! # use longhaul_sdk::{WorkflowContext, WorkflowResult, workflow};
//! struct Receipt;
//! #[workflow]
//! async fn checkout(ctx: WorkflowContext) -> WorkflowResult<Receipt> { Ok(Receipt) }
//! ```
//!
//! and messages declared as what they are not.
//!
//! ```compile_fail
//! # use longhaul_sdk::{WorkflowContext, Signal, WorkflowResult, workflow};
//! const GO: Signal<()> = Signal::new("go");
//! #[workflow(queries(GO))]
//! async fn checkout(ctx: WorkflowContext) -> WorkflowResult<()> { Ok(()) }
//! ```
//!
//! The same without these mistakes compiles:
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
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Makes the compiler say, at the type itself, that an argument or result cannot be written or read.
pub fn crosses_the_wire<T: Serialize + DeserializeOwned>() {}
