//! Child workflows.

mod calls;
mod events;
