//! The language of Conductor definitions: what a definition means, without any run.

mod budget;
pub mod definition;
pub mod expression;
pub mod input;
pub mod limits;
pub mod path;
pub mod retry_delay;
pub mod script_result;
pub mod wait_time;

pub use budget::{BYTES_MAX, Budget, DEPTH_MAX, Limit, STEPS_MAX};
