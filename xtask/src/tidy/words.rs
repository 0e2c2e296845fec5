//! Words and phrases that make the text hard to read, in comments, documents, strings and names of tests. The list has those that
//! came back again and again; each has a plain replacement.

use super::{Finding, Tree};

/// A phrase, word by word, and what to write instead.
const FORBIDDEN: &[(&[&str], &str)] = &[
    (&["anew"], "again"),
    (&["whoever"], "name the caller, worker or process"),
    (&["somebody"], "name the caller, worker or process"),
    (&["nobody"], "no caller, no worker"),
    (&["to", "be", "had"], "available"),
    (&["in", "the", "making"], "being created"),
    (&["for", "ever"], "forever, without limit"),
    (&["is", "told"], "receives, gets, learns"),
];

/// This file has the list.
const SELF: &str = "xtask/src/tidy/words.rs";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        if path == SELF || path.ends_with(".toml") {
            continue;
        }
        let words = words(text);
        for place in 0..words.len() {
            for (phrase, instead) in FORBIDDEN {
                let found = words
                    .get(place..place + phrase.len())
                    .is_some_and(|found| found.iter().map(|word| &word.text).eq(*phrase));
                if found {
                    let message = format!("\"{}\": write {instead}", phrase.join(" "));
                    findings.push(Finding::new(path, words[place].line, message));
                }
            }
        }
    }
    findings
}

struct Word {
    text: String,
    line: usize,
}

/// Splits text into lower-case words. Underscores separate words, so that names of tests are read too. Punctuation that ends a
/// phrase becomes an empty word.
fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line_number = number + 1;
        for piece in line.split([' ', '\t', '_', '/', '!', '#', '*', '-']) {
            let mut rest = piece;
            while !rest.is_empty() {
                let end = rest
                    .find(|character: char| !character.is_alphanumeric())
                    .unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                if !word.is_empty() {
                    words.push(Word {
                        text: word.to_lowercase(),
                        line: line_number,
                    });
                }
                let mut characters = after.chars();
                if characters.next().is_some() {
                    words.push(Word {
                        text: String::new(),
                        line: line_number,
                    });
                }
                rest = characters.as_str();
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let tree = Tree::from([("crates/a/src/lib.rs", text)]);
        check(&tree).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn phrases_are_found_in_comments_strings_and_names() {
        assert_eq!(lines("// Nobody waits."), [1]);
        assert_eq!(lines("let text = \"start anew\";"), [1]);
        assert_eq!(lines("fn a_worker_is_told_so() {}"), [1]);
        assert_eq!(lines("/// It would wait for\n/// ever."), [1]);
        assert_eq!(lines("The worker\nis told."), [2]);
    }

    #[test]
    fn other_words_and_ends_of_sentences_are_not_phrases() {
        assert!(lines("// Renewed forever. It is. Told later.").is_empty());
        assert!(lines("let anewer = somebody_else2;").len() == 1);
        assert!(lines("// What happened is, told simply, this.").is_empty());
    }
}
