//! The stores against the suite and against each other, and SQLite with damaged, locked and old files.

#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod executions;
mod files;
mod postgres;
mod random;
mod visibility;

mod memory {
    use std::sync::Arc;

    use longhaul_store::memory::Memory;

    longhaul_store::conformance_tests!((Arc::new(Memory::new()), ()));
}

mod sqlite {
    longhaul_store::conformance_tests!(crate::files::temporary());
}
