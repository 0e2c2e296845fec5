//! Patterns of queries: text in which `*` is any text.

/// A text with at least one `*`. Letters A to Z match in either case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    first: String,
    middle: Vec<String>,
    last: String,
}

impl Pattern {
    /// Reads a pattern; `None` if the text has no `*`.
    pub fn parse(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        let (first, rest) = lower.split_once('*')?;
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        Some(Self {
            first: first.to_owned(),
            middle: middle
                .split('*')
                .filter(|piece| !piece.is_empty())
                .map(str::to_owned)
                .collect(),
            last: last.to_owned(),
        })
    }

    /// Returns the texts between the stars, in lower case. The first and the last are at the ends and may be empty.
    pub fn pieces(&self) -> impl Iterator<Item = &str> {
        let middle = self.middle.iter().map(String::as_str);
        [self.first.as_str()]
            .into_iter()
            .chain(middle)
            .chain([self.last.as_str()])
    }

    /// Returns whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        let lower = text.to_ascii_lowercase();
        let inside = lower
            .strip_prefix(self.first.as_str())
            .and_then(|rest| rest.strip_suffix(self.last.as_str()));
        let Some(mut inside) = inside else {
            return false;
        };
        // The earliest place of each piece leaves the most room for the next, so no other place need be tried.
        for piece in &self.middle {
            match inside.find(piece.as_str()) {
                Some(place) => inside = &inside[place + piece.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "x", true),
            ("ab*", "ABc", true),
            ("ab*", "xab", false),
            ("*ab", "xAb", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-c-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a**c", "abc", true),
            ("*x*x*", "x", false),
            ("é*", "éa", true),
            ("50%*", "50x", false),
            ("a_*", "abc", false),
        ] {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(text), expected, "{pattern:?} {text}");
        }
        assert_eq!(Pattern::parse("plain"), None);
    }
}
