//! What every request to the worker plane must be, and what a bad one is answered.

mod bad_input;
mod examples;
mod extremes;
mod gates;
mod outages;
mod payloads;
