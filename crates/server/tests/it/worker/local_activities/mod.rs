//! Local activities.

mod durable;
mod reported;
