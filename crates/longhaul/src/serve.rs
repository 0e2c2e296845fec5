//! `longhaul serve`: opens the store, starts the host, listens, and finishes requests before it stops.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use longhaul_host::conductor::evaluate::Evaluator;
use longhaul_host::{Config, Host};
use longhaul_server::auth::Auth;
use longhaul_server::connections;
use longhaul_server::hosts::Hosts;
use longhaul_server::{App, Options};
use longhaul_store::postgres::Postgres;
use longhaul_store::sqlite::Sqlite;
use longhaul_store::{Store, StoreAddress};
use longhaul_system::Scripts;
use tokio::net::TcpListener;

use crate::config::{ServeArgs, Settings};
use crate::logs;
use crate::output::{self, say};

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    let settings = args.settle()?;
    let _log = logs::start(settings.log_format, &settings.log)?;
    let runtime = crate::runtime::start()?;
    runtime.block_on(async {
        let stop = crate::signals::asked_to_stop();
        serve(&settings, stop, |_| {}).await
    })
}

/// Serves until `stop` is ready. Calls `listening` with the address as soon as the server accepts requests.
pub(crate) async fn serve(
    settings: &Settings,
    stop: impl Future<Output = ()> + Send + 'static,
    listening: impl FnOnce(SocketAddr),
) -> Result<()> {
    let store = open_store(&settings.store).await?;
    // The listener comes before the host. A used port ends the program while nothing runs yet.
    let listener = TcpListener::bind(settings.listen).await.with_context(|| {
        format!(
            "cannot listen on {}; is another server running there? Choose another with --listen",
            settings.listen
        )
    })?;
    let address = listener
        .local_addr()
        .context("the listening address is not known")?;
    let limits = &settings.limits;
    let mut config = Config {
        admission: limits.admission.clone(),
        poll_caps: limits.poll_caps,
        request_caps: limits.request_caps.clone(),
        fleet_validation: limits.fleet_validation,
        ..Config::default()
    };
    if let Some(seconds) = settings.workflow_task_lease_seconds {
        config.limits.workflow_task_lease_seconds = seconds.max(1);
    }
    if let Some(seconds) = settings.activity_lease_seconds {
        config.limits.activity_lease_seconds = seconds.max(1);
    }
    if let Some(mib) = settings.run_cache_mib {
        config.run_cache_bytes = mib.saturating_mul(1 << 20);
    }
    if let Some(seconds) = settings.worker_forget_seconds {
        config.worker_forget_seconds = seconds;
    }
    config.questions = settings.questions.clone();
    config.evaluator = Evaluator(Arc::new(Scripts::new(settings.scripts.clone())));
    config.system_tasks = settings.http_tasks.system_tasks();
    if let Some(queue) = &settings.conductor_queue {
        config.limits.conductor_queue = queue.as_str().into();
    }
    config.environment = settings.environment.clone();
    config.server_name = Some(settings.server_id.clone());
    let host = Host::start(store, config)
        .await
        .context("the stored state could not be recovered")?;
    let tokens = &settings.tokens;
    let auth = Auth::with_tokens(
        tokens.shared.clone(),
        tokens.worker.clone(),
        tokens.operator.clone(),
        tokens.admin.clone(),
    )
    .with_keys(settings.conductor_keys.clone());
    let open = auth.is_open();
    let options = Options {
        server_id: settings.server_id.clone(),
        history_page_size: settings.history_page_size,
        export_key: limits.export_key.clone(),
        hosts: hosts(settings, open),
        ..Options::default()
    };
    let router = App::new(host.clone(), auth, options).router();
    let limits = settings.connections.clone();
    let certificate = settings.certificate.clone();
    let rereading = certificate
        .clone()
        .map(crate::signals::read_again_on_hangup);
    let scheme = certificate.as_ref().map_or("http", |_| "https");
    greet(&format!("{scheme}://{address}"), &settings.store, open);
    listening(address);
    tracing::info!(%address, database = %settings.store, "serving");
    let stopping = host.clone();
    let stop = async move {
        stop.await;
        tracing::info!("stopping: answering polls and finishing requests");
        stopping.begin_stop();
    };
    match certificate.as_ref().zip(rereading) {
        None => connections::serve(listener, router, limits, stop).await,
        Some((certificate, rereading)) => {
            let tls = certificate.tls().clone();
            tokio::select! {
                () = connections::serve_tls(listener, tls, router, limits, stop) => {}
                () = rereading => {}
            }
        }
    }
    host.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Opens the store.
async fn open_store(address: &StoreAddress) -> Result<Arc<dyn Store>> {
    let path = match address {
        StoreAddress::Sqlite(path) => path,
        StoreAddress::Postgres(options) => {
            let store = Postgres::open((**options).clone())
                .await
                .with_context(|| format!("the store {options} cannot be opened"))?;
            return Ok(Arc::new(store));
        }
    };
    let directory = path.parent();
    if let Some(directory) = directory.filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).with_context(|| {
            format!(
                "the data directory {} cannot be created",
                directory.display()
            )
        })?;
    }
    let store = Sqlite::open(path)
        .with_context(|| format!("the store {} cannot be opened", path.display()))?;
    Ok(Arc::new(store))
}

/// Returns the host names that the server accepts. Without credentials on loopback these are the names of this machine.
/// Otherwise credentials protect the server, or the operator chose `--insecure`, and every name is accepted.
fn hosts(settings: &Settings, open: bool) -> Hosts {
    let names = settings.allowed_hosts.clone();
    if open && settings.listen.ip().is_loopback() {
        Hosts::local(names)
    } else {
        Hosts::any(names)
    }
}

/// Prints the address and the next steps. Programs read the first line.
fn greet(url: &str, store: &StoreAddress, open: bool) {
    say!("listening on {url}");
    say!();
    say!("  Conductor     CONDUCTOR_SERVER_URL={url}/api");
    say!("  Health        {url}/api/health");
    say!("  Metrics       {url}/metrics");
    say!("  Data          {store}");
    say!(
        "  Credentials   {}",
        if open {
            "none needed (loopback or --insecure)"
        } else {
            "bearer token, or a key of a Conductor client"
        }
    );
    say!();
    say!("  Python   pip install durable-workflow");
    say!(
        "           client = Client(\"{url}\"), then Worker(client, task_queue=\"…\", workflows=[…], activities=[…])"
    );
    say!("  Rust     cargo add durable-workflow");
    say!("           Client::builder(\"{url}\"), then Worker::new(client, \"…\")");
    say!(
        "  Conductor workers: pip install conductor-python, or npm install @io-orkes/conductor-javascript"
    );
    say!();
    say!("  Stop with Ctrl-C. Accepted work is on disk and continues at the next start.");
    // Programs read the first line through a pipe, so it must not stay in a buffer.
    output::flush();
}
