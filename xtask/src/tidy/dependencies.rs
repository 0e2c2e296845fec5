//! Which crate may depend on which, by their manifests. `imports` checks the same arrows in the code.

use super::{Finding, Tree};

/// Arrows point one way: `longhaul → server → host → store → engine → protocol`. The SDKs depend on the protocol and on the
/// transport below them; `embedded` joins server and SDK in one process.
pub(super) const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("engine", &["protocol"]),
    ("store", &["engine", "protocol"]),
    ("host", &["engine", "store", "protocol"]),
    ("server", &["host", "protocol"]),
    (
        "longhaul",
        &[
            "store",
            "host",
            "server",
            "system",
            "protocol",
            "sdk",
            "conductor-sdk",
            "examples",
        ],
    ),
    ("macros", &[]),
    // For tests only.
    ("test-postgres", &[]),
    ("system", &["host", "protocol"]),
    ("transport", &["protocol"]),
    ("sdk", &["protocol", "macros", "transport"]),
    ("conductor-sdk", &["protocol", "macros", "transport"]),
    ("examples", &["sdk", "conductor-sdk"]),
    (
        "embedded",
        &[
            "sdk",
            "conductor-sdk",
            "server",
            "host",
            "store",
            "system",
            "protocol",
            "transport",
        ],
    ),
];

/// Returns the crates that a crate may depend on; `None` if the table has no such crate.
pub(super) fn allowed(name: &str) -> Option<&'static [&'static str]> {
    MAY_DEPEND_ON
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, allowed)| *allowed)
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, manifest) in tree.files() {
        let name = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        let Some(name) = name.filter(|name| !name.contains('/')) else {
            continue;
        };
        let Some(allowed) = allowed(name) else {
            let message = "the crate is not in the table of dependency directions";
            findings.push(Finding::new(path, 0, message));
            continue;
        };
        // Tests may reach further down than the product.
        let product = manifest
            .split("[dev-dependencies]")
            .next()
            .unwrap_or_default();
        for (number, line) in product.lines().enumerate() {
            let Some(rest) = line.strip_prefix("longhaul-") else {
                continue;
            };
            let dependency = rest.split(['.', ' ', '=']).next().unwrap_or_default();
            if !allowed.contains(&dependency) {
                let message = format!("{name} must not depend on longhaul-{dependency}");
                findings.push(Finding::new(path, number + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_arrows_of_the_table_are_allowed() {
        let tree = Tree::from([
            (
                "crates/engine/Cargo.toml",
                "longhaul-protocol.workspace = true\n",
            ),
            (
                "crates/server/Cargo.toml",
                "longhaul-store = \"1\"\n[dev-dependencies]\nlonghaul-engine = \"1\"\n",
            ),
            ("crates/unknown/Cargo.toml", ""),
        ]);
        let paths: Vec<_> = check(&tree)
            .into_iter()
            .map(|finding| (finding.path, finding.line))
            .collect();
        assert_eq!(
            paths,
            [
                ("crates/server/Cargo.toml".to_owned(), 1),
                ("crates/unknown/Cargo.toml".to_owned(), 0)
            ]
        );
    }
}
