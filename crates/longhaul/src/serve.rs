//! `longhaul serve`: open the store, start the host, listen, and stop without cutting anything in half.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::serve::ListenerExt;
use longhaul_host::{Config, Host};
use longhaul_server::auth::Auth;
use longhaul_server::{App, Options};
use longhaul_store::sqlite::Sqlite;
use tokio::net::TcpListener;

use crate::config::{ServeArgs, Settings};
use crate::logs;

/// How long requests in flight may take to end after the signal to stop. Polls are answered at once; the rest takes a commit.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    let settings = args.settle()?;
    logs::start(settings.log_format, &settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime could not be started")?;
    runtime.block_on(async {
        let stop = crate::stop::asked_to_stop();
        serve(&settings, stop, |_| {}).await
    })
}

/// Serves until `stop` is ready. `listening` is called with the address as soon as requests are taken.
pub(crate) async fn serve(
    settings: &Settings,
    stop: impl Future<Output = ()> + Send + 'static,
    listening: impl FnOnce(SocketAddr),
) -> Result<()> {
    if let Some(directory) = settings
        .database
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
    {
        std::fs::create_dir_all(directory).with_context(|| {
            format!("the data directory {} cannot be made", directory.display())
        })?;
    }
    let store = Sqlite::open(&settings.database)
        .with_context(|| format!("the store {} cannot be opened", settings.database.display()))?;
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
    let host = Host::start(Arc::new(store), config)
        .await
        .context("the stored state could not be recovered")?;
    let tokens = &settings.tokens;
    let auth = Auth::with_tokens(
        tokens.shared.clone(),
        tokens.worker.clone(),
        tokens.operator.clone(),
        tokens.admin.clone(),
    );
    let open = auth.is_open();
    let options = Options {
        server_id: settings.server_id.clone(),
        history_page_size: settings.history_page_size,
        export_key: limits.export_key.clone(),
        ..Options::default()
    };
    let router = App::new(host.clone(), auth, options).router();
    let listener = TcpListener::bind(settings.listen).await.with_context(|| {
        format!(
            "cannot listen on {}; is another server running there? Choose another with --listen",
            settings.listen
        )
    })?;
    let address = listener
        .local_addr()
        .context("the listening address is not known")?;
    greet(address, &settings.database, open);
    listening(address);
    tracing::info!(%address, database = %settings.database.display(), "serving");
    let listener = listener.tap_io(|stream| {
        // Answers are small and waited for: they must not wait for a full packet.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no-delay could not be set on a connection");
        }
    });
    let stopping = host.clone();
    let (began, begun) = tokio::sync::oneshot::channel();
    let serving = axum::serve(
        listener,
        router.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .with_graceful_shutdown(async move {
        stop.await;
        tracing::info!("stopping: answering polls and finishing requests");
        stopping.begin_stop();
        let _ = began.send(());
    });
    tokio::select! {
        result = serving.into_future() => result.context("the listener failed")?,
        () = async {
            if begun.await.is_ok() {
                tokio::time::sleep(STOP_TIMEOUT).await;
            } else {
                std::future::pending::<()>().await;
            }
        } => tracing::warn!("some connections did not end in time and were closed"),
    }
    host.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// What a newcomer needs next. The first line is for programs too.
fn greet(address: SocketAddr, database: &Path, open: bool) {
    let url = format!("http://{address}");
    println!("listening on {url}");
    println!();
    println!("  Health        {url}/api/health");
    println!("  Metrics       {url}/metrics");
    println!("  Data          {}", database.display());
    println!(
        "  Credentials   {}",
        if open {
            "none needed (loopback or --insecure)"
        } else {
            "bearer token"
        }
    );
    println!();
    println!("  Python   pip install durable-workflow");
    println!(
        "           client = Client(\"{url}\"), then Worker(client, task_queue=\"…\", workflows=[…], activities=[…])"
    );
    println!("  Rust     cargo add durable-workflow");
    println!("           Client::builder(\"{url}\"), then Worker::new(client, \"…\")");
    println!();
    println!("  Stop with Ctrl-C: what was accepted is on disk and goes on at the next start.");
    // Programs read the first line through a pipe; nothing may stay in a buffer.
    let _ = std::io::stdout().flush();
}
