//! Nothing cites a document that is not in the repository: a mentioned `.md` file exists, and so does the heading behind `#`.
//! Section signs are not allowed at all, because they number the sections of other documents.

use super::{Finding, Tree};

const SECTION_SIGN: char = '\u{a7}';
const EXTENSION: &str = ".md";

/// Kinds of files that are checked.
const CHECKED: [&str; 4] = ["rs", "sql", "md", "py"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        let extension = path.rsplit('.').next().unwrap_or_default();
        if !CHECKED.contains(&extension) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.contains(SECTION_SIGN) {
                let message = "cites a section by its sign; name a heading under docs/ instead";
                findings.push(Finding::new(path, number + 1, message));
            }
            for mention in mentions(line) {
                if let Some(message) = unresolved(tree, path, mention) {
                    findings.push(Finding::new(path, number + 1, message));
                }
            }
        }
    }
    findings
}

/// Returns the mentions of Markdown files in a line, with the heading if there is one. Web addresses are left out.
fn mentions(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices(EXTENSION).filter_map(|(at, found)| {
        let start = line[..at]
            .rfind(|character: char| !is_path(character))
            .map_or(0, |place| {
                place + line[place..].chars().next().map_or(1, char::len_utf8)
            });
        let end = at + found.len();
        let is_address = line[..start].ends_with(':') && line[start..].starts_with("//");
        let goes_on = line[end..]
            .chars()
            .next()
            .is_some_and(char::is_alphanumeric);
        if start == at || is_address || goes_on {
            return None;
        }
        let heading = line[end..].strip_prefix('#').map_or(0, |rest| {
            1 + rest
                .find(|character: char| {
                    !(character.is_alphanumeric() || character == '-' || character == '_')
                })
                .unwrap_or(rest.len())
        });
        Some(&line[start..end + heading])
    })
}

fn is_path(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-./".contains(character)
}

/// Returns what is wrong with a mention, or `None` if it resolves.
fn unresolved(tree: &Tree, from: &str, mention: &str) -> Option<String> {
    let (file, heading) = match mention.split_once('#') {
        Some((file, heading)) => (file, Some(heading)),
        None => (mention, None),
    };
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    // Relative to the file, as Markdown links are, or from the root of the repository.
    let beside = joined(folder, file);
    let text = beside
        .as_deref()
        .and_then(|path| tree.text(path))
        .or_else(|| tree.text(file));
    let Some(text) = text else {
        return Some(format!("mentions {file}, which is not in the repository"));
    };
    let heading = heading.filter(|heading| !has_heading(text, heading))?;
    Some(format!(
        "mentions {file}#{heading}, and there is no such heading"
    ))
}

/// Returns the path of `file` seen from `folder`; `None` if it leaves the repository.
fn joined(folder: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn has_heading(text: &str, wanted: &str) -> bool {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| slug(line.trim_start_matches('#').trim()) == wanted)
}

/// Returns the anchor of a heading: lower case, hyphens for spaces, no punctuation.
fn slug(heading: &str) -> String {
    heading
        .chars()
        .filter(|character| character.is_alphanumeric() || " -_".contains(*character))
        .map(|character| match character {
            ' ' => '-',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks one line of a Rust file in a small repository. `{}` in the line is replaced by the extension.
    fn messages(line: &str) -> Vec<String> {
        let line = line.replace("{}", EXTENSION);
        let page = format!("docs/page{EXTENSION}");
        let tree = Tree::from([
            (page.as_str(), "# A page\n\n## Late reports, and more\n"),
            ("crates/a/src/lib.rs", line.as_str()),
        ]);
        check(&tree)
            .into_iter()
            .map(|found| found.message)
            .collect()
    }

    #[test]
    fn a_mentioned_page_and_heading_must_exist() {
        assert!(messages("// See `docs/page{}`.").is_empty());
        assert!(messages("// See docs/page{}#late-reports-and-more.").is_empty());
        assert!(messages("// [a](../../../docs/page{}#a-page)").is_empty());
        assert_eq!(messages("// See docs/other{}.").len(), 1);
        assert_eq!(messages("// See engine{} for this.").len(), 1);
        assert_eq!(messages("// See docs/page{}#early-reports.").len(), 1);
    }

    #[test]
    fn web_addresses_and_other_endings_are_not_mentions() {
        assert!(messages("// https://example.com/other{}").is_empty());
        assert!(messages("// other{}x and {}").is_empty());
    }

    #[test]
    fn section_signs_are_not_allowed() {
        assert_eq!(messages(&format!("// {SECTION_SIGN}4.2")).len(), 1);
    }
}
