//! A server in the process of the test, for what the built binary cannot have: another clock, or migrations of a later release.

use std::sync::Arc;

use longhaul_host::clock::Clock;
use longhaul_host::conductor::evaluate::Evaluator;
use longhaul_host::{Config, Host, SystemTasks};
use longhaul_server::auth::Auth;
use longhaul_server::connections::{self, Limits};
use longhaul_server::{App, Options};
use longhaul_store::Store;
use longhaul_system::{Addresses, HTTP_TASK, HttpCalls, Scripts};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server. Dropping it ends it without a word.
pub(crate) struct InProcess {
    url: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl InProcess {
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        lease_seconds: u64,
    ) -> Self {
        // Another test of this process may have done it.
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_test_writer()
            .try_init();
        let mut config = Config {
            evaluator: Evaluator(Arc::new(Scripts::new(longhaul_system::Limits::default()))),
            system_tasks: SystemTasks::default()
                .with(HTTP_TASK, Arc::new(HttpCalls::new(Addresses::All))),
            ..Config::default()
        };
        config.limits.workflow_task_lease_seconds = lease_seconds;
        config.limits.activity_lease_seconds = lease_seconds;
        let host = Host::start_with_clock(store, config, clock).await;
        let host = host.expect("the host starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = App::new(host.clone(), Auth::open(), Options::default()).router();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stopping = host.clone();
            let stop = async move {
                // An error means that the server was dropped, which aborts this task.
                let _ = stopped.await;
                stopping.begin_stop();
            };
            connections::serve(listener, router, Limits::default(), stop).await;
            host.stop().await;
        });
        Self {
            url: format!("http://{address}"),
            stop,
            serving,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Stops the server as a signal does, and waits for its end.
    pub(crate) async fn terminate(self) {
        let _ = self.stop.send(());
        self.serving.await.expect("the server ends in good order");
    }
}
