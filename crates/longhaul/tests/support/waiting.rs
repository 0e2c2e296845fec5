//! Waiting for a condition with a deadline. Tests never wait for a fixed time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest wait for something that should happen soon. Generous, because CI machines stall; a green run never reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The pause between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Calls `look` until it returns something. Panics with `what` when the deadline passes first.
pub(crate) async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "still waiting after {DEADLINE:?}: {what}"
        );
        sleep(LOOK_INTERVAL).await;
    }
}
