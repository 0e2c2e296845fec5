//! `longhaul demo`: runs a server, workers for the examples, and each example.

mod definition;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use longhaul_conductor_sdk::handler::Isolation;
use longhaul_conductor_sdk::{Client as ConductorClient, Configuration, TaskHandler};
use longhaul_examples::{approval, conductor, gpu, hello, local, order};
use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{Client, Worker, WorkerHandle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::config::ServeArgs;
use crate::output::say;
use crate::{logs, serve};

/// Options of `longhaul demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The folder of the data. By default the data is deleted at the end.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Exit after the examples. By default the server continues until Ctrl-C.
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let temporary = tempfile::tempdir().context("could not create a temporary folder")?;
    let data = args
        .data
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    let settings = ServeArgs::for_demo(args.listen, data).settle()?;
    let _log = logs::start(settings.log_format, &settings.log)?;
    let runtime = crate::runtime::start()?;
    runtime.block_on(async {
        // Registered before the server starts, so that Ctrl-C works from the beginning.
        let asked = crate::signals::asked_to_stop();
        let (started, address) = oneshot::channel();
        let (done, over) = oneshot::channel::<()>();
        let stop = async move {
            // An error means that the demo was dropped, which stops the server as well.
            let _over = over.await;
        };
        let serving = serve::serve(&settings, stop, |address| {
            let _demo_gone = started.send(address);
        });
        let showing = async {
            let address = address
                .await
                .map_err(|_| anyhow!("the server did not start"))?;
            let shown = show(address, args.once, asked).await;
            // The server stops last, so that workers do not log failed polls.
            let _server_gone = done.send(());
            shown
        };
        let (served, shown) = tokio::join!(serving, showing);
        shown.and(served)
    })
}

/// The task queue of an example, and the function that registers it with a worker.
type Example = (&'static str, fn(WorkerBuilder) -> WorkerBuilder);

const EXAMPLES: [Example; 5] = [
    (hello::QUEUE, hello::worker),
    (order::QUEUE, order::worker),
    (local::QUEUE, local::worker),
    (gpu::QUEUE, gpu::worker),
    (approval::QUEUE, approval::worker),
];

/// The time that workers have to finish their tasks. The tasks are short, and unfinished work is stored.
const WORKERS_STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs workers and the examples until `asked` completes. With `once`, until the examples have ended.
async fn show(address: SocketAddr, once: bool, asked: impl Future<Output = ()>) -> Result<()> {
    let url = format!("http://{address}");
    let client = Client::connect(&url)
        .await
        .context("could not connect to the server")?;
    let mut workers = JoinSet::new();
    let mut handles: Vec<WorkerHandle> = Vec::new();
    for (queue, add) in EXAMPLES {
        let worker = add(Worker::builder(&client, queue)).build();
        handles.push(worker.handle());
        workers.spawn(worker.run());
    }
    let configuration = Configuration::new(format!("{url}/api"));
    let conductor = ConductorClient::new(&configuration).context("could not reach the server")?;
    let mut conductor_workers = TaskHandler::builder(configuration)
        .isolation(Isolation::InProcess)
        .grace(WORKERS_STOP_TIMEOUT)
        .workers(conductor::workers())
        .build()
        .context("the Conductor workers could not be started")?;
    conductor_workers.start_processes().await;
    let examples = async {
        let shown = run_examples(&client, &conductor, &url).await;
        if shown.is_ok() && !once {
            say!("Ctrl-C ends the demo.");
            std::future::pending::<()>().await;
        }
        shown
    };
    let shown = tokio::select! {
        shown = examples => shown,
        () = asked => Ok(()),
    };
    for handle in &handles {
        handle.shut_down();
    }
    conductor_workers.stop_processes();
    let stopped = tokio::time::timeout(WORKERS_STOP_TIMEOUT, async {
        while let Some(ended) = workers.join_next().await {
            ended
                .context("a worker panicked")?
                .context("a worker failed")?;
        }
        Ok(())
    })
    .await;
    conductor_workers.join_processes().await;
    // Workers that still run are dropped here; the server stops next.
    drop(workers);
    shown.and(stopped.unwrap_or(Ok(())))
}

/// Runs every example once, and starts an expense that the user can approve.
async fn run_examples(client: &Client, conductor: &ConductorClient, url: &str) -> Result<()> {
    let failed = |error| anyhow!("an example failed: {error}");
    say!();
    hello::run_example(client).await.map_err(failed)?;
    order::run_example(client).await.map_err(failed)?;
    local::run_example(client).await.map_err(failed)?;
    gpu::run_example(client).await.map_err(failed)?;
    approval::run_example(client).await.map_err(failed)?;
    definition::run_example(url).await?;
    conductor::run_examples(conductor).await.map_err(failed)?;
    let waiting = client
        .start(approval::expense(120))
        .id(longhaul_examples::unique("expense"))
        .queue(approval::QUEUE)
        .await
        .context("could not start an expense")?;
    say!();
    say!("One expense waits for you. Approve it with");
    say!();
    say!(
        "  curl -X POST {url}/api/workflows/{}/signal/decide -H 'Content-Type: application/json' \\",
        waiting.id()
    );
    say!(
        "    -H 'X-Durable-Workflow-Control-Plane-Version: 2' -d '{{\"input\": [{{\"approved\": true, \"by\": \"you\"}}]}}'"
    );
    say!();
    Ok(())
}
