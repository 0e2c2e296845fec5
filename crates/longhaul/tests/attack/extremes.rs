//! The largest and the smallest numbers in every number field of every sample, and in some other fields.

use serde_json::Value;

use crate::judge;
use crate::mutate::NUMBERS;
use crate::samples::samples;
use crate::server::Server;
use crate::wire::{Client, Request};
use crate::world::World;

/// Stands for the number until the body is written as text.
const PLACE: &str = "the extreme number";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_number_gets_an_answer() {
    let mut server = Server::start(&[
        "--query-task-timeout-seconds",
        "1",
        "--update-validation-timeout-seconds",
        "1",
    ])
    .await;
    let mut client = server.client();
    let mut faults = Vec::new();
    for (number, extreme) in NUMBERS.iter().enumerate() {
        faults.extend(try_everywhere(&mut client, number as u64, extreme).await);
    }
    assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    judge::verdict(&mut server).await;
}

/// Puts one number into every field. Accepted requests may use up things that later ones need, so they lead to a new world.
async fn try_everywhere(client: &mut Client, number: u64, extreme: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut made = 0;
    let mut world = World::new(client, number * 10_000).await;
    let count = samples(&world).len();
    for index in 0..count {
        let places = {
            let sample = &samples(&world)[index];
            sample.body.as_ref().map_or(0, |body| numbers(body).len())
        };
        for place in 0..places {
            let sample = samples(&world)[index].clone();
            let mut body = sample.body.clone().expect("a body");
            let pointer = &numbers(&body)[place];
            *body.pointer_mut(pointer).expect("the place") = PLACE.into();
            let text = body.to_string().replace(&format!("\"{PLACE}\""), extreme);
            let mut request = Request::new(sample.method, &sample.target)
                .versioned()
                .header("Content-Type", "application/json");
            request.body = Some(text.into_bytes());
            if sample.may_wait() {
                let soon = std::time::Duration::from_millis(30);
                let answer = client.send_and_hang_up(&request, soon).await;
                if let Ok(Some(answer)) = answer {
                    faults.extend(judge::fault(&sample, &request, &answer));
                }
                continue;
            }
            let answer = client.send(&request).await.expect("an answer");
            faults.extend(judge::fault(&sample, &request, &answer));
            if answer.status < 300 && sample.method != "GET" {
                made += 1;
                world = World::new(client, number * 10_000 + made).await;
            }
        }
    }
    faults
}

/// Pointers to all numbers of a body, in order.
fn numbers(body: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Number(_) => found.push(at.to_owned()),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, &format!("{at}/{index}"), found);
                }
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    walk(field, &format!("{at}/{key}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(body, "", &mut found);
    found
}
