//! The language of Conductor definitions: what a definition means, without any run.

pub mod limits;
pub mod retry_delay;
pub mod script_result;
pub mod wait_time;
