//! The parent's side of script evaluation.

mod failure;
pub(crate) mod frame;
mod keeper;
mod limits;
mod process;
mod queue;
mod scripts;

pub use failure::{Failure, Limit};
pub use limits::Limits;
pub use scripts::Scripts;
