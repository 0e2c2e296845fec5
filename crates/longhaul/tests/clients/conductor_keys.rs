//! Both Conductor clients with a key of the configuration.

use crate::harness::{ServerOptions, run_conductor, run_node};

/// Keys for a worker and an operator, as the programs know them.
const KEYS: &str = r#"[
    {"id": "worker", "secret": "a-secret-for-the-tests", "roles": ["worker"]},
    {"id": "operator", "secret": "a-secret-for-the-tests", "roles": ["worker", "operator"]}
]"#;

fn with_keys() -> ServerOptions {
    ServerOptions::new().environment("LONGHAUL_CONDUCTOR_KEYS", KEYS)
}

#[tokio::test]
async fn javascript() {
    run_node("keys.mjs", &with_keys().start().await).await;
}

#[tokio::test]
async fn python() {
    run_conductor("keys.py", &with_keys().start().await).await;
}
