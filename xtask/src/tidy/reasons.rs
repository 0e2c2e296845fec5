//! Every machine-readable reason is explained in `docs/reasons.md`.

use super::{Finding, Tree};

const REASONS: &str = "crates/protocol/src/reason.rs";
const PAGE: &str = "docs/reasons.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let (Some(source), Some(page)) = (tree.text(REASONS), tree.text(PAGE)) else {
        return vec![Finding::new(
            PAGE,
            0,
            "the page or the list of reasons is missing",
        )];
    };
    source
        .lines()
        .filter(|line| line.trim_end().ends_with(" retry,") || line.trim_end().ends_with(" fatal,"))
        .filter_map(|line| line.split('"').nth(1))
        .filter(|reason| !page.contains(&format!("`{reason}`")))
        .map(|reason| Finding::new(PAGE, 0, format!("does not explain `{reason}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_without_an_entry_is_found() {
        let source = "    A \"run_closed\" fatal,\n    B \"not_due\" retry,\n";
        let tree = Tree::from([(REASONS, source), (PAGE, "| `run_closed` | … |")]);
        let messages: Vec<_> = check(&tree).into_iter().map(|f| f.message).collect();
        assert_eq!(messages, ["does not explain `not_due`"]);
    }
}
