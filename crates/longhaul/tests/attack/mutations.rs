//! Mutated requests for every route, many of them, from several connections.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::judge;
use crate::mutate::mutated;
use crate::samples::samples;
use crate::server::Server;
use crate::wire::{Answer, Client, Request};
use crate::world::World;

/// Requests in an ordinary test run.
const REQUESTS_DEFAULT: u64 = 20_000;

/// Connections that attack at once.
const ATTACKERS: u64 = 6;

/// Requests before an attacker creates a new world, because most of the old one is used up by then.
const REQUESTS_PER_WORLD: usize = 150;

/// How long an attacker waits for the response to a long poll. Hanging up is part of the attack; the response is not judged.
const PATIENCE: Duration = Duration::from_millis(30);

/// The number of faults that are printed. The first ones are the most useful.
const FAULTS_SHOWN: usize = 20;

/// The seed of this run, printed so that it can be repeated.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("LONGHAUL_ATTACK_SEED").ok();
    let seed = seed.map(|text| text.parse().expect("LONGHAUL_ATTACK_SEED is a number"));
    let seed = seed.unwrap_or_else(rand::random);
    println!("LONGHAUL_ATTACK_SEED={seed}");
    seed
}

fn requests() -> u64 {
    let requests = std::env::var("LONGHAUL_ATTACK_REQUESTS").ok();
    let requests = requests.map(|text| text.parse().expect("LONGHAUL_ATTACK_REQUESTS is a number"));
    requests.unwrap_or(REQUESTS_DEFAULT)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutated_requests_do_not_break_the_server() {
    let seed = seed();
    let mut server = Server::start(&[
        "--query-task-timeout-seconds",
        "1",
        "--update-validation-timeout-seconds",
        "1",
        "--update-validation-lease-seconds",
        "1",
    ])
    .await;
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|number| {
            let random = StdRng::seed_from_u64(seed.wrapping_add(number));
            tokio::spawn(attack(
                server.client(),
                random,
                number,
                requests() / ATTACKERS,
            ))
        })
        .collect();
    let mut all = Outcome::default();
    for attacker in attackers {
        all.add(attacker.await.expect("an attacker ends"));
    }
    println!(
        "{} accepted, {} refused, {} hung up",
        all.accepted, all.refused, all.hung_up
    );
    let shown = &all.faults[..all.faults.len().min(FAULTS_SHOWN)];
    assert!(
        all.faults.is_empty(),
        "{} faults: {shown:#?}",
        all.faults.len()
    );
    // An attack that is refused by the first check, or that changes nothing, tests nothing.
    let sent = requests();
    assert!(all.accepted * 10 > sent && all.refused * 10 > sent);
    judge::verdict(&mut server).await;
}

/// The results of one attacker.
#[derive(Default)]
struct Outcome {
    accepted: u64,
    refused: u64,
    hung_up: u64,
    faults: Vec<String>,
}

impl Outcome {
    fn count(&mut self, answer: &Answer) {
        if answer.status < 300 {
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
    }

    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.hung_up += other.hung_up;
        self.faults.extend(other.faults);
    }
}

/// Sends a number of requests.
async fn attack(mut client: Client, mut random: StdRng, number: u64, requests: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut sent = 0;
    let mut worlds = 0;
    while sent < requests {
        worlds += 1;
        let world = World::new(&mut client, number * 1_000_000 + worlds).await;
        let mut samples = samples(&world);
        samples.shuffle(&mut random);
        for sample in samples.iter().cycle().take(REQUESTS_PER_WORLD) {
            sent += 1;
            let request = mutated(sample, &mut random);
            let answer = if sample.may_wait() || may_wait(&request) {
                client.send_and_hang_up(&request, PATIENCE).await
            } else {
                client.send(&request).await.map(Some)
            };
            match answer {
                Ok(Some(answer)) => {
                    outcome.count(&answer);
                    outcome
                        .faults
                        .extend(judge::fault(sample, &request, &answer));
                }
                Ok(None) => outcome.hung_up += 1,
                // Text that is not HTTP may end its connection without a response. HTTP requests must get one.
                Err(error) if is_http(&request) => outcome.faults.push(format!(
                    "no answer ({error}): {} {} {:?}",
                    request.method,
                    &request.target[..request.target.len().min(300)],
                    request.headers
                )),
                Err(_) => outcome.refused += 1,
            }
        }
        // A large body now and then, refused or not.
        if random.random_range(0..10) == 0 {
            outcome.faults.extend(large(&mut client, &world).await);
        }
    }
    outcome
}

/// A mutation may turn any request into one that waits.
fn may_wait(request: &Request) -> bool {
    ["/poll", "/query/", "/update/", "wait"]
        .iter()
        .any(|part| request.target.contains(part))
}

fn is_http(request: &Request) -> bool {
    let plain = |byte: &u8| byte.is_ascii_graphic();
    request.target.bytes().all(|byte| plain(&byte)) && request.target.starts_with('/')
}

/// A signal as large as a payload may be, and one that is larger.
async fn large(client: &mut Client, world: &World) -> Vec<String> {
    let mut faults = Vec::new();
    for bytes in [1 << 20, 3 << 20] {
        let target = format!("/api/workflows/{}/signal/poke", world.sleeping.workflow);
        let body = serde_json::json!({"input": ["x".repeat(bytes)]});
        let request = Request::new("POST", &target).versioned().json(&body);
        match client.send(&request).await {
            Ok(answer) if answer.status >= 500 => {
                faults.push(format!("{bytes} bytes → {}", answer.status))
            }
            Ok(_) => {}
            Err(error) => faults.push(format!("{bytes} bytes: {error}")),
        }
    }
    faults
}
