//! The upper bounds of the machine: HTTP without workflows, and the disk without a database.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::routing::post;
use axum::{Json, Router};
use hyper::Method;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::client::{Address, Connection};
use super::measure::Spread;
use super::target;

/// Enough samples for a p99 that is not a single outlier.
const SYNC_SAMPLES: usize = 300;

/// The bytes that a small commit appends.
const PAGE_BYTES: usize = 4096;

/// A body of the size of a completion.
const ECHO_BODY: &str = concat!(
    r#"{"lease_owner":"bench-0","workflow_task_attempt":1,"commands":[{"type":"schedule_activity","activity_type":"say","#,
    r#""arguments":{"codec":"avro","blob":"wwHioz3/VYAiNwwCCgp3b3JsZAA="}}]}"#
);

#[derive(Debug, Serialize)]
pub(super) struct Echo {
    pub(super) connections: u64,
    pub(super) requests_per_second: f64,
}

/// A file that is appended to and synced, like the log of a store.
pub(super) struct SyncedFile {
    file: File,
}

impl SyncedFile {
    pub(super) fn create(directory: &Path) -> Result<Self> {
        let path = directory.join("fdatasync");
        let file =
            File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Self { file })
    }

    /// Appends a page and waits until it is on the disk.
    pub(super) async fn sample(mut self) -> Result<(Self, Duration)> {
        let blocking = tokio::task::spawn_blocking(move || -> std::io::Result<(Self, Duration)> {
            let began = Instant::now();
            self.file.write_all(&[7; PAGE_BYTES])?;
            self.file.sync_data()?;
            let took = began.elapsed();
            Ok((self, took))
        });
        blocking
            .await
            .context("the disk was not measured")?
            .context("the disk could not be written")
    }
}

pub(super) async fn fdatasync(directory: &Path) -> Result<Spread> {
    let mut file = SyncedFile::create(directory)?;
    let mut samples = Vec::with_capacity(SYNC_SAMPLES);
    for _ in 0..SYNC_SAMPLES {
        let (back, took) = file.sample().await?;
        samples.push(took);
        file = back;
    }
    Ok(Spread::of(samples))
}

/// Measures an echo server: axum parses JSON and returns it, with the same client as the scenarios.
pub(super) async fn echo(connections: u64, duration: Duration) -> Result<Echo> {
    let router = Router::new().route(
        "/echo",
        post(|Json(body): Json<Value>| async move { Json(body) }),
    );
    let (address, serving) = target::serve(router).await?;
    let address = Address::new(&address.to_string(), None)?;
    let mut ready = Vec::new();
    for _ in 0..connections {
        ready.push(Connection::open(std::slice::from_ref(&address), 0).await?);
    }
    let began = Instant::now();
    let deadline = began + duration;
    let mut clients = JoinSet::new();
    for connection in ready {
        clients.spawn(echo_until(connection, deadline));
    }
    while let Some(client) = clients.join_next().await {
        client.context("an echo client ended early")??;
    }
    let elapsed = began.elapsed();
    serving.abort();
    Ok(Echo {
        connections,
        requests_per_second: address.sent() as f64 / elapsed.as_secs_f64(),
    })
}

async fn echo_until(mut connection: Connection, deadline: Instant) -> Result<()> {
    while Instant::now() < deadline {
        let answer = connection
            .send(Method::POST, "/echo", ECHO_BODY.to_owned())
            .await?;
        ensure!(
            answer.len() == ECHO_BODY.len(),
            "the echo differs from the request"
        );
    }
    Ok(())
}
