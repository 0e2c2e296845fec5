//! The page about compatibility names every route, and says what the server does.

use std::collections::{BTreeMap, BTreeSet};

use crate::conductor::support::{call, send};
use crate::support::Server;

const PAGE: &str = include_str!("../../../../../../docs/conductor-compatibility.md");

/// The first segments of the routes on the page.
const SEGMENTS: [&str; 12] = [
    "admin",
    "environment",
    "event",
    "metadata",
    "queue",
    "scheduler",
    "schema",
    "secrets",
    "tasks",
    "token",
    "version",
    "workflow",
];

/// Returns a path with all parameters alike.
fn normal(path: &str) -> String {
    let segments = path
        .split('/')
        .map(|segment| match segment.starts_with('{') {
            true => "{}",
            false => segment,
        });
    segments.collect::<Vec<_>>().join("/")
}

/// Returns the word of every route on the page, by method and path.
fn listed() -> BTreeMap<(String, String), &'static str> {
    let mut listed = BTreeMap::new();
    for line in PAGE.lines() {
        let Some(rest) = line.strip_prefix("| `") else {
            continue;
        };
        let Some((route, rest)) = rest.split_once("` | ") else {
            continue;
        };
        let word = rest.split(' ').next().expect("a word");
        let (methods, path) = route.split_once(" /").expect("methods and a path");
        for method in methods.split(", ") {
            let key = (method.to_owned(), normal(&format!("/{path}")));
            assert_eq!(listed.insert(key, word), None, "{line} is there twice");
        }
    }
    listed
}

fn served() -> BTreeSet<(String, String)> {
    let routes = longhaul_server::routes().into_iter();
    let of_plane = routes.filter_map(|route| {
        let path = route.path.strip_prefix("/api/")?;
        let segment = path.split('/').next()?;
        let is_own = SEGMENTS.contains(&segment);
        is_own.then(|| (route.method.to_owned(), normal(&format!("/{path}"))))
    });
    of_plane.collect()
}

#[test]
fn the_page_lists_every_route_as_it_is() {
    let (listed, served) = (listed(), served());
    assert!(listed.len() > 100, "the page is read");
    for route in &served {
        let word = listed.get(route).copied();
        assert_eq!(word, Some("yes"), "{route:?}");
    }
    for (route, word) in &listed {
        match *word {
            "yes" => assert!(served.contains(route), "{route:?} is not served"),
            "no" | "planned" => assert!(!served.contains(route), "{route:?} is served"),
            other => panic!("{route:?}: {other}"),
        }
    }
}

#[tokio::test]
async fn what_is_not_served_is_refused_with_a_reason() {
    let server = Server::open().await;
    let served = served();
    for (route, word) in listed() {
        if served.contains(&route) {
            continue;
        }
        let (method, path) = &route;
        let path = path.replace("{}", "x");
        let answer = send(call(&server, method, &path).json(&serde_json::json!({}))).await;
        let reason = match answer.status {
            404 => "not_found",
            405 => "method_not_allowed",
            status => panic!("{method} {path} ({word}): {status}"),
        };
        answer.refused(answer.status, reason);
    }
}
