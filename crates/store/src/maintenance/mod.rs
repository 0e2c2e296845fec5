//! Work on a whole store, outside of a server: `inspection` checks it, `transfer` copies it to another one. `address` says where a store
//! is.

mod address;
pub mod inspection;
pub mod transfer;

pub use address::StoreAddress;
