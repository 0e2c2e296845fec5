//! Several servers on one PostgreSQL database, behind a balancer, that a test uses as if they were one. So the suites of the published
//! clients run on them without a change.

use super::{Balancer, Server, ServerOptions};

/// How many servers on a PostgreSQL database each test gets. Without it, a test gets one server with the embedded store.
pub(crate) const SERVERS_VARIABLE: &str = "LONGHAUL_TEST_SERVERS";

/// The leases of several servers, unless a test has its own. A client whose request met a server that is being killed may keep a lease.
const LEASE_SECONDS: u32 = 20;

/// What a server has besides itself.
pub(super) struct Others {
    servers: Vec<Server>,
    balancer: Balancer,
}

impl Others {
    /// Returns the address of the balancer.
    pub(super) fn url(&self) -> &str {
        self.balancer.url()
    }

    pub(super) fn servers(&mut self) -> &mut Vec<Server> {
        &mut self.servers
    }
}

/// Starts servers on the database of these options. Returns the first, with the others.
pub(super) async fn start(options: ServerOptions, count: usize) -> Server {
    let options = if options.has("--activity-lease-seconds") {
        options
    } else {
        options.lease_seconds(LEASE_SECONDS)
    };
    let mut first = options.clone().start_one().await;
    if count > 1 {
        // The first one has migrated the database, so these start together.
        let others = (1..count).map(|_| options.clone().start_one());
        let servers = futures::future::join_all(others).await;
        let urls = [&first].into_iter().chain(&servers);
        let balancer = Balancer::start(urls.map(|server| server.url.clone()).collect()).await;
        first.others = Some(Others { servers, balancer });
    }
    first
}
