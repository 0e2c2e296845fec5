//! Measures how long a task takes from the server that made it to a poll that waits at another one. Nothing else happens meanwhile.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::super::measure::Spread;
use super::super::progress::Progress;
use super::super::target::{Target, fresh_name};
use super::super::wire::{self, Worker};

const ROUNDS: usize = 200;

/// The time after which a poll that was sent waits in its server.
const PARKING: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize)]
pub(in super::super) struct Delivery {
    /// From the response to the start, when the task is stored, until the poll at the other server is answered.
    pub(in super::super) from_stored: Spread,
    /// From sending the start.
    pub(in super::super) from_sent: Spread,
}

pub(super) async fn measure(target: &Target, progress: &Progress) -> Result<Delivery> {
    let worker = Worker {
        id: fresh_name("worker"),
        queue: fresh_name("delivery"),
    };
    let (mut one, mut other) = (target.connect_to(0).await?, target.connect_to(1).await?);
    one.register(&worker).await?;
    let (mut from_stored, mut from_sent) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 10 == 0 {
            progress.show(&format!("cluster: delivery {round} of {ROUNDS}"));
        }
        let workflow_id = format!("{}-{round}", worker.queue);
        let start = async {
            tokio::time::sleep(PARKING).await;
            let sent = Instant::now();
            one.start(&workflow_id, &worker.queue).await?;
            Ok((sent, Instant::now()))
        };
        let poll = async {
            let task = other.poll_workflow_task(&worker, wire::PAGE_SIZE).await?;
            Ok::<_, anyhow::Error>((task, Instant::now()))
        };
        let ((task, polled), (sent, stored)) = tokio::try_join!(poll, start)?;
        from_stored.push(polled.saturating_duration_since(stored));
        from_sent.push(polled.duration_since(sent));
        other.complete_workflow(&task, wire::RESULT).await?;
    }
    one.deregister(&worker).await?;
    Ok(Delivery {
        from_stored: Spread::of(from_stored),
        from_sent: Spread::of(from_sent),
    })
}
