//! The stores against the suite, against each other, and SQLite against what happens to files.

mod files;
mod random;

mod memory {
    use std::sync::Arc;

    use longhaul_store::memory::Memory;

    longhaul_store::conformance_tests!((Arc::new(Memory::new()), ()));
}

mod sqlite {
    longhaul_store::conformance_tests!(crate::files::temporary());
}
