//! The stores against the suite and against each other, and SQLite with damaged, locked and old files.

#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod decided;
mod executions;
mod files;
mod inspection;
mod postgres;
mod random;
mod removal;
mod transfer;
mod visibility;

mod memory {
    use std::sync::Arc;

    use longhaul_store::memory::Memory;

    longhaul_store::conformance_tests!((Arc::new(Memory::new()), ()));

    mod sharing {
        use longhaul_store::memory::Cluster;

        longhaul_store::sharing_tests!({
            let cluster = Cluster::default();
            (Box::new(cluster.server()), Box::new(cluster.server()), ())
        });
    }
}

mod sqlite {
    longhaul_store::conformance_tests!(crate::files::temporary());
}
