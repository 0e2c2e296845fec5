//! Sessions that other servers change.

use std::time::Duration;

use longhaul_host::Config;
use longhaul_protocol::id::{SessionId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;

use super::{DELIVERIES, servers, settle};
use crate::setup::namespace;

#[tokio::test(start_paused = true)]
async fn a_session_that_ended_at_another_server_is_forgotten_within_seconds() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        let (worker, session) = (WorkerId::from("w1"), SessionId::from("s1"));
        let options = WorkerSessionOptions::new("s1");
        let created = servers.first.sessions();
        created
            .create(&namespace(), &worker, &options)
            .await
            .unwrap();
        // It knows the session from its start on.
        let third = servers.another(Config::default()).await;
        assert_eq!(third.sessions_in_memory(), 1);
        tokio::time::sleep(Duration::from_secs(30)).await;
        servers.clock.advance_seconds(30);
        assert_eq!(third.sessions_in_memory(), 1, "it is still held");
        let closing = servers.first.sessions();
        closing
            .close(&namespace(), &worker, &session, None)
            .await
            .unwrap();
        settle(&servers).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(third.sessions_in_memory(), 0, "{delivery:?}");
    }
}
