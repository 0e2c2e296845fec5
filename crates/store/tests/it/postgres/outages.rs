//! Broken connections. A commit whose connection breaks is answered only when its outcome is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use longhaul_engine::Changes;
use longhaul_store::conformance::fixture::{create, next, push_event};
use longhaul_store::postgres::{Options, Postgres};
use longhaul_store::{Error, RunStore as _, Store as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::temporary;

/// What the proxy does with the next COMMIT.
const PASS: u8 = 0;
const CUT_BEFORE: u8 = 1;
const CUT_AFTER: u8 = 2;

/// A proxy that can cut a connection around COMMIT.
struct Proxy {
    url: String,
    orders: Arc<AtomicU8>,
}

impl Proxy {
    /// Listens in front of the server of an address.
    async fn start(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let place = url
            .split('@')
            .nth(1)
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        let orders = Arc::new(AtomicU8::new(PASS));
        let given = Arc::clone(&orders);
        let server = place.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(pass_on(client, server, Arc::clone(&given)));
            }
        });
        let url = url.replace(&place, &format!("127.0.0.1:{port}"));
        let separator = if url.contains('?') { '&' } else { '?' };
        Self {
            url: format!("{url}{separator}sslmode=disable"),
            orders,
        }
    }

    fn order(&self, order: u8) {
        self.orders.store(order, Ordering::SeqCst);
    }
}

/// Passes bytes on in both directions until one side ends or an order cuts the connection.
async fn pass_on(mut client: TcpStream, mut server: TcpStream, orders: Arc<AtomicU8>) {
    let (mut to_server, mut to_client) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        tokio::select! {
            read = client.read(&mut to_server) => {
                let Ok(length @ 1..) = read else { return };
                let sent = &to_server[..length];
                let commit = b"COMMIT\0";
                let place = sent.windows(commit.len()).position(|bytes| bytes == commit);
                let order = match place {
                    Some(_) => orders.swap(PASS, Ordering::SeqCst),
                    None => PASS,
                };
                match (order, place) {
                    (CUT_BEFORE, Some(place)) => {
                        // The message of COMMIT has five bytes before its text.
                        let _ = server.write_all(&sent[..place - 5]).await;
                        return;
                    }
                    (CUT_AFTER, _) => {
                        let _ = server.write_all(sent).await;
                        // The server answers when the commit is durable. The client never gets the answer.
                        let mut answer = Vec::new();
                        while !answer.windows(7).any(|bytes| bytes == b"COMMIT\0") {
                            let Ok(1..) = server.read_buf(&mut answer).await else { return };
                        }
                        return;
                    }
                    _ => if server.write_all(sent).await.is_err() { return },
                }
            }
            read = server.read(&mut to_client) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&to_client[..length]).await.is_err() { return }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_of_a_broken_commit_is_found_out() {
    let (direct, database) = temporary().await;
    let proxy = Proxy::start(database.url()).await;
    let store = Postgres::open(Options::parse(&proxy.url).unwrap())
        .await
        .unwrap();
    let mut run = create(&store, "w").await;
    for (order, is_stored) in [
        (CUT_AFTER, true),
        (CUT_BEFORE, false),
        (CUT_BEFORE, false),
        (CUT_AFTER, true),
        (PASS, true),
    ] {
        let mut change = next(&run);
        push_event(&mut change, "Step");
        let after = change.apply(Some(run.clone()));
        let changes = Arc::new(Changes {
            run: Some(Box::new(change)),
            ..Changes::default()
        });
        proxy.order(order);
        let outcome = store.commit(changes).await;
        let stored = direct.run(run.run_id()).await.unwrap().unwrap();
        if is_stored {
            outcome.unwrap();
            run = after;
        } else {
            assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
        }
        assert_eq!(stored, run);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_connections_are_opened_again() {
    let (store, database) = temporary().await;
    for number in 0..3 {
        create(&*store, &format!("w{number}")).await;
        database.terminate_backends();
    }
    for number in 0..3 {
        let run_id = format!("run-w{number}-1").into();
        let mut found = store.run(&run_id).await;
        // A reader may meet a connection that ended just now. Its caller asks again.
        for _ in 0..8 {
            if found.is_ok() {
                break;
            }
            found = store.run(&run_id).await;
        }
        assert!(found.unwrap().is_some());
    }
}
