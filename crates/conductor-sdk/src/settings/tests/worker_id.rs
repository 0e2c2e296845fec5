//! The generated worker ids.

use std::collections::BTreeSet;

use super::super::{Settings, worker_id};

#[test]
fn generated_worker_ids_are_unique_and_have_four_random_characters() {
    let ids: BTreeSet<String> = (0..500).map(|_| Settings::default().worker_id).collect();
    assert_eq!(ids.len(), 500);
    let middle = format!("-{}-", std::process::id());
    for id in &ids {
        let (host, suffix) = id.rsplit_once(&middle).unwrap();
        assert_ne!(host, "");
        assert_eq!(suffix.len(), 4);
        assert!(suffix.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
    }
}

#[test]
fn the_suffixes_of_one_process_do_not_repeat() {
    let last = 36_u32.pow(4) - 1;
    assert_eq!(worker_id::suffix(0, 0), "0000");
    assert_eq!(worker_id::suffix(last, 0), "zzzz");
    let suffixes: BTreeSet<String> = (0..20_000)
        .map(|count| worker_id::suffix(last, count))
        .collect();
    assert_eq!(suffixes.len(), 20_000);
    assert_eq!(worker_id::suffix(last, u32::MAX).len(), 4);
}

#[test]
fn the_host_name_comes_from_the_kernel_else_from_the_environment() {
    let cases = [
        (Some("kernel\n"), Some("variable"), "kernel"),
        (Some("\n"), Some("variable"), "variable"),
        (Some("(none)\n"), Some("variable"), "variable"),
        (None, Some("variable"), "variable"),
        (None, Some(""), "localhost"),
        (None, None, "localhost"),
    ];
    for (kernel, variable, expected) in cases {
        let name = worker_id::host_name(kernel.map(str::to_owned), variable.map(str::to_owned));
        assert_eq!(name, expected);
    }
}
