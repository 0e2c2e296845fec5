//! Which crate names which in its code. A manifest cannot show that a crate hands on a lower one under another name, or that the
//! two planes of the server use each other.

use super::{Finding, Tree, dependencies};

/// The planes of the server. Neither may use the other.
const PLANES: [(&str, &str); 2] = [
    ("crates/server/src/worker", "crate::control"),
    ("crates/server/src/control", "crate::worker"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        let Some((name, inside)) = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once("/src/"))
        else {
            continue;
        };
        // The macros write code that names the SDK; the crate that uses them depends on it.
        if name == "macros" {
            continue;
        }
        let own = name.replace('-', "_");
        let allowed = dependencies::allowed(name).unwrap_or_default();
        let planes = || {
            PLANES
                .iter()
                .filter(|(folder, _)| path.starts_with(folder))
                .map(|(_, other)| *other)
        };
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if code.starts_with("//") {
                continue;
            }
            if let Some(other) = whole_crate(code) {
                let message =
                    format!("re-exports all of longhaul_{other}; export the needed types");
                findings.push(Finding::new(path, number + 1, message));
            }
            for other in named_crates(code) {
                // Tests inside `src` may use what tests may depend on.
                let is_test = inside.ends_with("tests.rs") || inside.contains("/tests/");
                let is_allowed = allowed.contains(&&*other.replace('_', "-"));
                if other != own && !is_allowed && !is_test {
                    let message = format!("{name} must not name longhaul_{other}");
                    findings.push(Finding::new(path, number + 1, message));
                }
            }
            for other in planes().filter(|other| code.contains(other)) {
                let message = format!("a plane of the server must not use the other one ({other})");
                findings.push(Finding::new(path, number + 1, message));
            }
        }
    }
    findings
}

/// Returns the crate that a line re-exports as a whole, under its own or another name.
fn whole_crate(code: &str) -> Option<&str> {
    let rest = code
        .strip_prefix("pub use longhaul_")
        .or_else(|| code.strip_prefix("pub extern crate longhaul_"))?;
    let end = rest
        .find(|character: char| !is_name(character))
        .unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    let whole = after.starts_with(';') || after.starts_with(" as ") || after.starts_with("::*");
    whole.then_some(name)
}

/// Returns the names behind `longhaul_` in a line that are used as crates: a path or an import follows.
fn named_crates(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("longhaul_").filter_map(|(at, found)| {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|character| is_name(character) || character == '"') {
            return None;
        }
        let rest = &code[at + found.len()..];
        let end = rest
            .find(|character: char| !is_name(character))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let is_path =
            after.starts_with("::") || after.starts_with(" as ") || after.starts_with(';');
        (is_path && code[..at].matches('"').count().is_multiple_of(2)).then_some(name)
    })
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::from([(path, text)]))
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn a_crate_names_only_the_crates_below_it() {
        let host = "crates/host/src/lib.rs";
        assert!(
            messages(
                host,
                "use longhaul_engine::Run;\nuse longhaul_store::Store;"
            )
            .is_empty()
        );
        let server = "crates/server/src/lib.rs";
        assert_eq!(
            messages(server, "use longhaul_engine::Run;"),
            ["server must not name longhaul_engine"]
        );
        assert_eq!(
            messages("crates/sdk/src/a.rs", "let x: longhaul_host::Host;"),
            ["sdk must not name longhaul_host"]
        );
    }

    #[test]
    fn comments_strings_and_tests_may_name_any_crate() {
        let server = "crates/server/src/lib.rs";
        assert!(messages(server, "// longhaul_engine::Run").is_empty());
        assert!(messages(server, "let name = \"longhaul_runs_total\";").is_empty());
        assert!(messages("crates/server/src/a/tests.rs", "use longhaul_engine::Run;").is_empty());
        assert!(messages("crates/server/tests/it/a.rs", "use longhaul_engine::Run;").is_empty());
    }

    #[test]
    fn no_crate_is_re_exported_as_a_whole() {
        let host = "crates/host/src/lib.rs";
        for line in [
            "pub use longhaul_engine as engine;",
            "pub use longhaul_engine;",
            "pub use longhaul_engine::*;",
        ] {
            assert_eq!(
                messages(host, line),
                ["re-exports all of longhaul_engine; export the needed types"],
                "{line}"
            );
        }
        assert!(messages(host, "pub use longhaul_engine::{Run, Command};").is_empty());
    }

    #[test]
    fn a_crate_with_two_words_in_its_name_can_be_allowed() {
        let text = "use longhaul_conductor_sdk::Client;\n";
        assert!(messages("crates/embedded/src/lib.rs", text).is_empty());
        assert_eq!(messages("crates/sdk/src/lib.rs", text).len(), 1);
    }

    #[test]
    fn the_planes_do_not_use_each_other() {
        assert_eq!(
            messages("crates/server/src/worker/a.rs", "use crate::control::b;").len(),
            1
        );
        assert_eq!(
            messages("crates/server/src/control/a.rs", "crate::worker::b()").len(),
            1
        );
        assert!(messages("crates/server/src/lib.rs", "use crate::control::b;").is_empty());
    }
}
