//! `longhaul demo`: a server, workers of the example workflows, and a few runs of each.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use longhaul_examples::{approval, gpu, hello, local, order};
use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{Client, Worker, WorkerHandle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::config::ServeArgs;
use crate::{logs, serve};

/// Options of `longhaul demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where to keep the data. By default it is thrown away at the end.
    #[arg(long)]
    data: Option<PathBuf>,
    /// End after the examples instead of serving on.
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let temporary = tempfile::tempdir().context("a temporary folder cannot be made")?;
    let data = args
        .data
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    let settings = ServeArgs::for_demo(args.listen, data).settle()?;
    logs::start(settings.log_format, &settings.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime could not be started")?;
    runtime.block_on(async {
        let (told, address) = oneshot::channel();
        let (done, over) = oneshot::channel::<()>();
        let asked = crate::stop::asked_to_stop();
        let once = args.once;
        let stop = async move {
            tokio::select! {
                () = asked => {}
                Ok(()) = over, if once => {}
            }
        };
        let serving = serve::serve(&settings, stop, |address| {
            let _demo_gone = told.send(address);
        });
        let showing = async {
            let address = address
                .await
                .map_err(|_| anyhow!("the server did not start"))?;
            let shown = show(address, once).await;
            let _server_gone = done.send(());
            shown
        };
        let (served, shown) = tokio::join!(serving, showing);
        shown.and(served)
    })
}

/// An example: its queue, and what a worker of that queue runs.
type Example = (&'static str, fn(WorkerBuilder) -> WorkerBuilder);

const EXAMPLES: [Example; 5] = [
    (hello::QUEUE, hello::worker),
    (order::QUEUE, order::worker),
    (local::QUEUE, local::worker),
    (gpu::QUEUE, gpu::worker),
    (approval::QUEUE, approval::worker),
];

/// Runs the examples, then the workers alone until the server goes.
async fn show(address: SocketAddr, once: bool) -> Result<()> {
    let url = format!("http://{address}");
    let client = Client::connect(&url)
        .await
        .context("the server does not answer")?;
    let mut workers = JoinSet::new();
    let mut handles: Vec<WorkerHandle> = Vec::new();
    for (queue, add) in EXAMPLES {
        let worker = add(Worker::builder(&client, queue)).build();
        handles.push(worker.handle());
        workers.spawn(worker.run());
    }
    println!();
    let examples = async {
        hello::show(&client).await?;
        order::show(&client).await?;
        local::show(&client).await?;
        gpu::show(&client).await?;
        approval::show(&client).await
    };
    let shown = examples.await.map_err(|error| anyhow!(error));
    if shown.is_ok() {
        // One that waits for somebody, for a look and a try.
        let waiting = client
            .start(approval::expense(120))
            .id(longhaul_examples::unique("expense"))
            .queue(approval::QUEUE)
            .await
            .context("an expense could not be asked for")?;
        println!();
        println!("One expense waits for you. Approve it with");
        println!();
        println!(
            "  curl -X POST {url}/api/workflows/{}/signal/decide -H 'Content-Type: application/json' \\",
            waiting.id()
        );
        println!(
            "    -H 'X-Durable-Workflow-Control-Plane-Version: 2' -d '{{\"input\": [{{\"approved\": true, \"by\": \"you\"}}]}}'"
        );
        println!();
        if !once {
            println!("Ctrl-C ends the demo.");
            crate::stop::asked_to_stop().await;
        }
    }
    for handle in &handles {
        handle.shut_down();
    }
    while let Some(ended) = workers.join_next().await {
        ended
            .context("a worker panicked")?
            .context("a worker failed")?;
    }
    shown
}
