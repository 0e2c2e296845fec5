//! The page about Conductor workers in Rust has what a user looks for. Its programs are compiled with `longhaul-embedded`.

const PAGE: &str = include_str!("../../../../docs/conductor-rust.md");

/// Returns the text of a section.
fn section(title: &str) -> &'static str {
    let begin = format!("\n## {title}\n");
    let (_, rest) = PAGE
        .split_once(&begin)
        .unwrap_or_else(|| panic!("the page has no section {title:?}"));
    rest.split("\n## ").next().unwrap()
}

#[test]
fn the_page_covers_writing_configuring_observing_and_testing() {
    for (title, word) in [
        ("A worker", "#[worker_task("),
        ("Settings", "CONDUCTOR_SERVER_URL"),
        ("Schemas", "JsonSchema"),
        ("Metrics", "WORKER_CANONICAL_METRICS"),
        ("Logs", "CONDUCTOR_LOG_LEVEL"),
        ("When something fails", "four times"),
        ("Tests", "ConductorEnvironment"),
        ("Differences from other Conductor SDKs", "worker id"),
    ] {
        assert!(section(title).contains(word), "{title}: {word}");
    }
}

#[test]
fn the_page_says_which_failure_to_use() {
    let text = section("Which failure to use");
    let (_, table) = text.split_once("| what went wrong |").unwrap();
    let cases = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let kinds: Vec<_> = cases
        .map(|case| case.split('|').nth(2).unwrap().trim())
        .collect();
    assert_eq!(kinds.len(), 9);
    assert_eq!(kinds.iter().filter(|kind| **kind == "an error").count(), 4);
    assert!(section("Do and do not").contains("Do not block in an `async fn`"));
}
