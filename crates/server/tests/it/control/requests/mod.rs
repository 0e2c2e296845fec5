//! What every request to the control plane must be.

mod conformance;
mod examples;
mod gates;
mod isolation;
