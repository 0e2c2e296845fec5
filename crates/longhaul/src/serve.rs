//! `longhaul serve`: open the store, start the host, listen, and stop without cutting anything in half.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use longhaul_host::{Config, Host};
use longhaul_server::auth::Auth;
use longhaul_server::connections;
use longhaul_server::hosts::Hosts;
use longhaul_server::{App, Options};
use longhaul_store::sqlite::Sqlite;
use tokio::net::TcpListener;

use crate::config::{ServeArgs, Settings};
use crate::logs;
use crate::output::{self, say};

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    let settings = args.settle()?;
    let _log = logs::start(settings.log_format, &settings.log)?;
    let runtime = crate::runtime::start()?;
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
        hosts: hosts(settings, open),
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
    let stopping = host.clone();
    let stop = async move {
        stop.await;
        tracing::info!("stopping: answering polls and finishing requests");
        stopping.begin_stop();
    };
    connections::serve(listener, router, settings.connections.clone(), stop).await;
    host.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// An open server on loopback trusts this machine, and its names only. Elsewhere credentials decide, or the operator has said
/// that everybody may do everything.
fn hosts(settings: &Settings, open: bool) -> Hosts {
    let names = settings.allowed_hosts.clone();
    if open && settings.listen.ip().is_loopback() {
        Hosts::local(names)
    } else {
        Hosts::any(names)
    }
}

/// What a newcomer needs next. The first line is for programs too.
fn greet(address: SocketAddr, database: &Path, open: bool) {
    let url = format!("http://{address}");
    say!("listening on {url}");
    say!();
    say!("  Health        {url}/api/health");
    say!("  Metrics       {url}/metrics");
    say!("  Data          {}", database.display());
    say!(
        "  Credentials   {}",
        if open {
            "none needed (loopback or --insecure)"
        } else {
            "bearer token"
        }
    );
    say!();
    say!("  Python   pip install durable-workflow");
    say!(
        "           client = Client(\"{url}\"), then Worker(client, task_queue=\"…\", workflows=[…], activities=[…])"
    );
    say!("  Rust     cargo add durable-workflow");
    say!("           Client::builder(\"{url}\"), then Worker::new(client, \"…\")");
    say!();
    say!("  Stop with Ctrl-C: what was accepted is on disk and goes on at the next start.");
    // Programs read the first line through a pipe; nothing may stay in a buffer.
    output::flush();
}
