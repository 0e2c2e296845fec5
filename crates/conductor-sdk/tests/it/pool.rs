//! Connections and times of the HTTP client, against sockets that count. The clock of the time-outs is paused, so no test waits.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use longhaul_conductor_sdk::client::Poll;
use longhaul_conductor_sdk::model::{StartWorkflowRequest, TaskDef, TaskResult};
use longhaul_conductor_sdk::transport::{RequestError, RequestRetry, TransportError};
use longhaul_conductor_sdk::{Client, Configuration};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// The longest wait for something that should happen soon.
const DEADLINE: Duration = Duration::from_secs(60);

/// What happened to the connections of a server.
#[derive(Clone, Debug, Default)]
struct Counts {
    accepted: usize,
    open: usize,
    /// Connections with a request that has no response yet.
    in_use: usize,
    in_use_most: usize,
    /// The methods of all requests.
    methods: Vec<String>,
}

/// A server that answers one request for each permit, and counts.
struct Counting {
    url: String,
    counts: watch::Sender<Counts>,
    permits: Arc<Semaphore>,
    /// How many of the next requests lose their connection instead.
    losses: Arc<Mutex<usize>>,
}

impl Counting {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("http://{}/api", listener.local_addr().unwrap()),
            counts: watch::Sender::default(),
            permits: Arc::new(Semaphore::new(0)),
            losses: Arc::default(),
        };
        let (counts, permits) = (server.counts.clone(), Arc::clone(&server.permits));
        let losses = Arc::clone(&server.losses);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counts.send_modify(|counts| {
                    counts.accepted += 1;
                    counts.open += 1;
                });
                let (counts, permits) = (counts.clone(), Arc::clone(&permits));
                let losses = Arc::clone(&losses);
                tokio::spawn(async move {
                    let _ended = answer(stream, &counts, &permits, &losses).await;
                    counts.send_modify(|counts| counts.open -= 1);
                });
            }
        });
        server
    }

    fn configuration(&self) -> Configuration {
        Configuration::new(&self.url).retry(RequestRetry::NEVER)
    }

    /// Waits until the counts are as expected.
    async fn until(&self, what: &str, expected: impl FnMut(&Counts) -> bool) {
        let mut counts = self.counts.subscribe();
        let reached = tokio::time::timeout(DEADLINE, counts.wait_for(expected)).await;
        let is_reached = reached.is_ok();
        assert!(is_reached, "{what}: {:?}", self.counts.borrow());
    }

    fn methods(&self) -> Vec<String> {
        self.counts.borrow().methods.clone()
    }
}

/// Serves one connection until the client closes it.
async fn answer(
    mut stream: TcpStream,
    counts: &watch::Sender<Counts>,
    permits: &Semaphore,
    losses: &Mutex<usize>,
) -> std::io::Result<()> {
    loop {
        let mut request = Vec::new();
        while !is_whole(&request) {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let method = request
            .split(|byte| *byte == b' ')
            .next()
            .unwrap_or_default();
        let method = String::from_utf8_lossy(method).into_owned();
        counts.send_modify(|counts| {
            counts.methods.push(method);
            counts.in_use += 1;
            counts.in_use_most = counts.in_use_most.max(counts.in_use);
        });
        if let left @ 1.. = &mut *losses.lock() {
            *left -= 1;
            counts.send_modify(|counts| counts.in_use -= 1);
            return Ok(());
        }
        permits.acquire().await.unwrap().forget();
        counts.send_modify(|counts| counts.in_use -= 1);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")
            .await?;
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let line = line.to_ascii_lowercase();
        line.strip_prefix("content-length: ")?.parse().ok()
    });
    body.len() >= length.unwrap_or(0)
}

async fn call(client: &Client) -> Result<(), RequestError> {
    let definitions = client.metadata().tasks().await;
    definitions.map(|definitions| assert!(definitions.is_empty()))
}

#[tokio::test]
async fn two_hundred_calls_use_a_hundred_connections() {
    let server = Counting::start().await;
    let client = Client::new(&server.configuration()).unwrap();
    let calls = join_all((0..200).map(|_| call(&client)));
    let release = async {
        server
            .until("100 are in use", |counts| counts.in_use == 100)
            .await;
        assert_eq!(server.counts.borrow().accepted, 100);
        server.permits.add_permits(200);
    };
    let (ended, ()) = futures::join!(calls, release);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let counts = server.counts.borrow().clone();
    assert_eq!(counts.methods.len(), 200);
    assert_eq!(counts.in_use_most, 100);
}

#[tokio::test]
async fn the_number_of_connections_can_be_chosen() {
    let server = Counting::start().await;
    let configuration = server.configuration().connections_max(3);
    let client = Client::new(&configuration).unwrap();
    let calls = join_all((0..20).map(|_| call(&client)));
    let release = async {
        server
            .until("3 are in use", |counts| counts.in_use == 3)
            .await;
        server.permits.add_permits(20);
    };
    futures::join!(calls, release);
    let counts = server.counts.borrow().clone();
    assert_eq!((counts.methods.len(), counts.in_use_most), (20, 3));
}

#[tokio::test]
async fn fifty_idle_connections_are_kept() {
    let server = Counting::start().await;
    let client = Client::new(&server.configuration()).unwrap();
    let wave = async |size: usize| {
        let calls = join_all((0..size).map(|_| call(&client)));
        let release = async {
            server
                .until("the wave is in use", |counts| counts.in_use == size)
                .await;
            server.permits.add_permits(size);
        };
        let (ended, ()) = futures::join!(calls, release);
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    };
    wave(100).await;
    server
        .until("50 are left", |counts| counts.open == 50)
        .await;
    // Fifty calls find a connection each.
    wave(50).await;
    assert_eq!(server.counts.borrow().accepted, 100);
}

/// Returns the time that a call takes by the paused clock, and its error.
async fn failed(configuration: &Configuration) -> (Duration, TransportError) {
    let client = Client::new(configuration).unwrap();
    let begun = Instant::now();
    let Err(RequestError::Transport(error)) = call(&client).await else {
        panic!("the call succeeded");
    };
    (begun.elapsed(), error)
}

fn is_about(time: Duration, expected: Duration) -> bool {
    (expected..expected + Duration::from_secs(1)).contains(&time)
}

#[tokio::test(start_paused = true)]
async fn a_hanging_server_costs_the_time_out_of_thirty_seconds() {
    let server = Counting::start().await;
    let seconds = Duration::from_secs;
    for (configuration, expected) in [
        (server.configuration(), seconds(30)),
        (server.configuration().timeout(seconds(7)), seconds(7)),
    ] {
        let (time, error) = failed(&configuration).await;
        assert!(is_about(time, expected), "{time:?}");
        assert_eq!(error, TransportError::TimedOut(expected));
    }
    // The wait for a free connection is part of the time.
    let configuration = server.configuration().connections_max(1);
    let client = Client::new(&configuration).unwrap();
    let begun = Instant::now();
    let ended = join_all((0..3).map(|_| call(&client))).await;
    assert!(ended.iter().all(Result::is_err));
    assert!(
        is_about(begun.elapsed(), seconds(30)),
        "{:?}",
        begun.elapsed()
    );
}

/// The server accepts connections and never begins a handshake.
#[tokio::test(start_paused = true)]
async fn a_connection_has_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/api", listener.local_addr().unwrap());
    let configuration = Configuration::new(url).retry(RequestRetry::NEVER);
    let seconds = Duration::from_secs;
    for (configuration, expected) in [
        (configuration.clone(), seconds(10)),
        (configuration.connect_timeout(seconds(3)), seconds(3)),
    ] {
        let (time, error) = failed(&configuration).await;
        assert!(is_about(time, expected), "{time:?}");
        assert!(matches!(error, TransportError::Unreachable(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_lost_connection_is_repeated_where_that_is_safe() {
    let server = Counting::start().await;
    server.permits.add_permits(100);
    let retry = RequestRetry::new(3).first_wait(Duration::from_millis(1));
    let client = Client::new(&server.configuration().retry(retry)).unwrap();
    let lose = |count: usize| *server.losses.lock() = count;
    lose(2);
    call(&client).await.unwrap();
    assert_eq!(server.methods(), ["GET"; 3]);
    lose(2);
    let definition = TaskDef::default();
    let updated = client.metadata().update_task(&definition).await;
    updated.unwrap();
    assert_eq!(server.methods()[3..], ["PUT"; 3]);
    // The server may have started the workflow.
    lose(1);
    let request = StartWorkflowRequest::default();
    let error = client.workflows().start(&request).await.unwrap_err();
    let RequestError::Transport(TransportError::Interrupted(_)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(server.methods()[6..], ["POST"]);
    // A report has attempts of its own, and a poll may have taken tasks.
    lose(1);
    let result = TaskResult::default();
    assert!(client.tasks().update(&result).await.is_err());
    lose(1);
    let polled = client.tasks().batch_poll(&Poll::new("t")).await;
    assert!(polled.is_err());
    assert_eq!(server.methods()[7..], ["POST", "GET"]);
    // The first reason stays, but a second delete finds nothing.
    lose(2);
    client.workflows().terminate("w", None).await.unwrap();
    assert_eq!(server.methods()[9..], ["DELETE"; 3]);
    lose(1);
    assert!(client.metadata().delete_task("t").await.is_err());
    assert_eq!(server.methods()[12..], ["DELETE"]);
    // It is not repeated forever.
    lose(3);
    assert!(call(&client).await.is_err());
    assert_eq!(server.methods().len(), 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_serves_futures_and_threads() {
    let server = Counting::start().await;
    let client = Client::new(&server.configuration()).unwrap();
    let waiting = (0..5).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { call(&client).await })
    });
    let blocking = (0..5).map(|_| {
        let client = client.clone();
        let runtime = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || runtime.block_on(call(&client)))
    });
    let calls: Vec<_> = waiting.chain(blocking).collect();
    server
        .until("all are in use", |counts| counts.in_use == 10)
        .await;
    server.permits.add_permits(10);
    for ended in join_all(calls).await {
        ended.unwrap().unwrap();
    }
}
