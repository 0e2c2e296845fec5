//! No test is switched off.

use super::{Finding, Tree};

/// In two halves, so that this file does not contain the attribute.
const ATTRIBUTE: &str = concat!("#[", "ignore");

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        for (number, _) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains(ATTRIBUTE))
        {
            findings.push(Finding::new(path, number + 1, "switches a test off"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attribute_is_found() {
        let text = format!("#[test]\n{ATTRIBUTE}]\nfn a() {{}}\n");
        let tree = Tree::from([("crates/a/src/lib.rs", text.as_str())]);
        assert_eq!(check(&tree)[0].line, 2);
    }
}
